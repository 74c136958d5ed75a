package handlers

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"keyrange/store"
)

// document is a JSON object that keeps the rules for records.
type document struct {
	// text is the object as it was sent, without the white space around it.
	text []byte
	// key is the string in the key member; hasKey tells an absent one.
	key    string
	hasKey bool
	// group is that in the group member, empty when there is none.
	group string
}

// scanner checks documents without building values of them. One scanner checks one document at a time.
type scanner struct {
	input   bytes.Buffer
	decoder *jsontext.Decoder
	// name is scratch for a member name that is written with escapes.
	name []byte
}

// scanners keeps scanners for reuse, because the name tables of a decoder are worth keeping.
var scanners = sync.Pool{New: func() any { return &scanner{decoder: jsontext.NewDecoder(new(bytes.Buffer))} }}

// scan checks that raw is one JSON object in valid UTF-8 with nothing after it and no member name twice in any
// object, and finds its key and its group. An escaped lone surrogate counts as invalid UTF-8 and the depth ends at 10,000, both by
// jsontext. The errors match errInvalidJSON, or errInvalidKey for a key that is no string or breaks the rules, or store.ErrGroup for such a group.
func (c *Collection) scan(raw []byte) (document, error) {
	s := scanners.Get().(*scanner)
	defer s.release()
	s.read(raw)
	return s.scan(raw, c)
}

// read makes the decoder read a document. It reads a bytes.Buffer in place and leaves its bytes alone.
func (s *scanner) read(raw []byte) {
	s.input = *bytes.NewBuffer(raw)
	s.decoder.Reset(&s.input)
}

// release gives a scanner back. One in the pool must not hold on to the document.
func (s *scanner) release() {
	s.input = bytes.Buffer{}
	s.decoder.Reset(&s.input)
	scanners.Put(s)
}

// scan is Collection.scan on a scanner whose decoder is about to read raw.
func (s *scanner) scan(raw []byte, of *Collection) (doc document, err error) {
	d := s.decoder
	if kind := d.PeekKind(); kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid {
		return document{}, refuse(errInvalidJSON, "a record is one JSON object, this is something else")
	}
	if _, err = d.ReadToken(); err != nil {
		return document{}, jsonFault(err)
	}
	start := d.InputOffset() - 1
	// A wrong key or group is reported after the whole document was read: what is no JSON has none.
	var keyErr, groupErr error
	for d.PeekKind() != jsontext.KindEndObject {
		name, err := d.ReadValue()
		if err != nil {
			return document{}, jsonFault(err)
		}
		isKey := s.named(name, of.KeyMember)
		isGroup := of.GroupMember != "" && !isKey && s.named(name, of.GroupMember)
		value, err := d.ReadValue()
		if err != nil {
			return document{}, jsonFault(err)
		}
		if isKey {
			doc.key, keyErr = keyOf(value)
			doc.hasKey = true
		}
		if isGroup {
			doc.group, groupErr = groupOf(value)
		}
	}
	if _, err = d.ReadToken(); err != nil {
		return document{}, jsonFault(err)
	}
	end := d.InputOffset()
	if _, err = d.ReadToken(); !errors.Is(err, io.EOF) {
		return document{}, refuse(errInvalidJSON, "there is data after the object, from byte offset %d on", end)
	}
	doc.text = raw[start:end:end]
	return doc, cmp.Or(keyErr, groupErr)
}

// named tells whether a member name, as it is written in the document, is the given one.
func (s *scanner) named(quoted jsontext.Value, name string) bool {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == name
	}
	var err error
	s.name, err = jsontext.AppendUnquote(s.name[:0], quoted)
	return err == nil && string(s.name) == name
}

// keyOf is the key in a key member.
func keyOf(value jsontext.Value) (string, error) {
	if value.Kind() != jsontext.KindString {
		return "", refuse(errInvalidKey, "the key in the document is not a string")
	}
	key, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return "", refuse(errInvalidKey, "the key in the document is not valid UTF-8")
	}
	return string(key), checkKey(string(key))
}

// jsonFault describes a syntax error by its offset. The error's own text could quote the document, which must not reach
// the log.
func jsonFault(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax) && errors.Is(syntax.Err, jsontext.ErrDuplicateName):
		return refuse(errInvalidJSON, "a member name is repeated at byte offset %d", syntax.ByteOffset)
	case errors.As(err, &syntax) && errors.Is(syntax.Err, io.ErrUnexpectedEOF):
		return refuse(errInvalidJSON, "the JSON ends too early, at byte offset %d", syntax.ByteOffset)
	case errors.As(err, &syntax):
		return refuse(errInvalidJSON, "%v, at byte offset %d", syntax.Err, syntax.ByteOffset)
	case errors.Is(err, io.EOF):
		return refuse(errInvalidJSON, "there is no JSON at byte offset 0: the body is empty")
	}
	return because(errInvalidJSON, err)
}

// documentOpening is the start of a document whose key is put first.
func documentOpening(keyMember string) []byte {
	// Invalid UTF-8 in a name would be replaced; the configuration has refused it.
	quoted, _ := jsontext.AppendQuote([]byte{'{'}, keyMember)
	return append(quoted, ':')
}

// withKey returns the document with the key as its first member and all else as it was. The document must have no key
// member and the key must be valid.
func (c *collection) withKey(doc document, key string) []byte {
	rest := doc.text[1:]
	out := make([]byte, 0, len(c.opening)+len(key)+len(`"",`)+len(rest))
	out = append(out, c.opening...)
	out, _ = jsontext.AppendQuote(out, key)
	if bytes.TrimLeft(rest, jsonSpace)[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}

// jsonSpace is the white space of JSON.
const jsonSpace = " \t\r\n"

// complete makes what is stored under key: the key is put in where it is missing. limit is in bytes, of what is stored.
func (c *collection) complete(doc document, key string, limit int64) (store.Content, error) {
	text := doc.text
	if !doc.hasKey {
		text = c.withKey(doc, key)
	}
	if int64(len(text)) > limit {
		return store.Content{}, refuse(store.ErrTooLarge, "the document with its key has %d bytes, the smallest node takes %d", len(text), limit)
	}
	return store.Content{Document: text, Group: doc.group}, nil
}
