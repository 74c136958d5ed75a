package handlers

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// patch is a JSON merge patch (RFC 7396), or the part of one that is for one member. It is never changed, so it may be
// applied again and again.
type patch struct {
	// raw is the value as it was sent.
	raw jsontext.Value
	// members are those of an object, in their order, and position finds them by name; both nil for any other value.
	members  []patchMember
	position map[string]int
}

// patchMember is one member of an object in a patch.
type patchMember struct {
	// name is as it was written, with its quotes.
	name jsontext.Value
	patch
}

// object tells whether the patch is merged into what is there, rather than put in its place.
func (p *patch) object() bool { return p.position != nil }

// removes tells whether the patch takes its member away.
func (p *patch) removes() bool { return p.raw.Kind() == jsontext.KindNull }

// parsePatch reads a merge patch under the rules for documents. It must be an object, because a record is one.
func parsePatch(body []byte) (*patch, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	p, err := readPatch(d, body)
	if err != nil {
		return nil, jsonFault(err)
	}
	end := d.InputOffset()
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, refuse(errInvalidJSON, "there is data after the patch, from byte offset %d on", end)
	}
	if !p.object() {
		return nil, refuse(errInvalidJSON, "a merge patch of a record is one JSON object, this is something else")
	}
	return &p, nil
}

// readPatch reads the value that d is about to read from body. Everything is read once, however deep it is.
func readPatch(d *jsontext.Decoder, body []byte) (p patch, err error) {
	if d.PeekKind() != jsontext.KindBeginObject {
		p.raw, err = readRaw(d, body)
		return p, err
	}
	if _, err := d.ReadToken(); err != nil {
		return patch{}, err
	}
	start := d.InputOffset() - 1
	p.position = map[string]int{}
	for d.PeekKind() != jsontext.KindEndObject {
		var m patchMember
		if m.name, err = readRaw(d, body); err != nil {
			return patch{}, err
		}
		if m.patch, err = readPatch(d, body); err != nil {
			return patch{}, err
		}
		p.position[unquoted(m.name)] = len(p.members)
		p.members = append(p.members, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return patch{}, err
	}
	p.raw = body[start:d.InputOffset()]
	return p, nil
}

// readRaw reads a value and returns its text within body, which lasts longer than the decoder's.
func readRaw(d *jsontext.Decoder, body []byte) (jsontext.Value, error) {
	value, err := d.ReadValue()
	if err != nil {
		return nil, err
	}
	end := d.InputOffset()
	return body[end-int64(len(value)) : end : end], nil
}

// unquoted is the string that a valid JSON string stands for.
func unquoted(quoted jsontext.Value) string {
	if inner := quoted[1 : len(quoted)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	text, _ := jsontext.AppendUnquote(nil, quoted)
	return string(text)
}

// mergeInto returns the document with the patch applied. What the patch does not touch keeps its bytes and its place, the
// white space around it included; new members come last, in the order of the patch.
func (p *patch) mergeInto(document []byte) ([]byte, error) {
	m := merger{
		// The names in a stored document were checked when it was stored.
		decoder: jsontext.NewDecoder(bytes.NewBuffer(document), jsontext.AllowDuplicateNames(true)),
		target:  document,
		out:     make([]byte, 0, len(document)+len(p.raw)),
	}
	if err := m.merge(p); err != nil {
		return nil, err
	}
	return m.out, nil
}

// merger writes a patched document while it reads the old one, once.
type merger struct {
	decoder *jsontext.Decoder
	target  []byte
	out     []byte
}

// merge writes the value that the decoder is about to read, patched.
func (m *merger) merge(p *patch) error {
	if !p.object() || m.decoder.PeekKind() != jsontext.KindBeginObject {
		m.out = p.appendNew(m.out)
		return m.decoder.SkipValue()
	}
	if _, err := m.decoder.ReadToken(); err != nil {
		return err
	}
	m.out = append(m.out, '{')
	empty := len(m.out)
	met := make([]bool, len(p.members))
	for m.decoder.PeekKind() != jsontext.KindEndObject {
		if err := m.member(p, met, len(m.out) == empty); err != nil {
			return err
		}
	}
	from := m.decoder.InputOffset()
	if _, err := m.decoder.ReadToken(); err != nil {
		return err
	}
	for i := range p.members {
		if !met[i] {
			m.out = p.members[i].appendNew(m.out, len(m.out) == empty)
		}
	}
	m.out = append(m.out, m.target[from:m.decoder.InputOffset()]...)
	return nil
}

// member writes one member of the old object, unless the patch p of the object removes it. met notes which members of
// the patch were needed; first says that none is written yet.
func (m *merger) member(p *patch, met []bool, first bool) error {
	from := m.decoder.InputOffset()
	name, err := readRaw(m.decoder, m.target)
	if err != nil {
		return err
	}
	i, patched := p.position[unquoted(name)]
	if patched {
		met[i] = true
		if p.members[i].removes() {
			return m.decoder.SkipValue()
		}
	}
	// What stands before the name: white space and, but for the first member, a comma.
	before := m.target[from : m.decoder.InputOffset()-int64(len(name))]
	if first {
		before = before[bytes.IndexByte(before, ',')+1:]
	}
	m.out = append(append(m.out, before...), name...)
	from = m.decoder.InputOffset()
	if !patched {
		if err := m.decoder.SkipValue(); err != nil {
			return err
		}
		m.out = append(m.out, m.target[from:m.decoder.InputOffset()]...)
		return nil
	}
	value := bytes.TrimLeft(m.target[from:], ":"+jsonSpace)
	m.out = append(m.out, m.target[from:len(m.target)-len(value)]...)
	return m.merge(&p.members[i].patch)
}

// appendNew writes what the patch makes where nothing was. Only objects are gone through: an array in a patch is taken as
// it is, with its nulls.
func (p *patch) appendNew(out []byte) []byte {
	if !p.object() {
		return append(out, p.raw...)
	}
	out = append(out, '{')
	empty := len(out)
	for i := range p.members {
		out = p.members[i].appendNew(out, len(out) == empty)
	}
	return append(out, '}')
}

// appendNew writes a member that was not there, unless it stands for a removal.
func (m *patchMember) appendNew(out []byte, first bool) []byte {
	if m.removes() {
		return out
	}
	if !first {
		out = append(out, ',')
	}
	return m.patch.appendNew(append(append(out, m.name...), ':'))
}
