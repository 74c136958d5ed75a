package handlers

import (
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxFields is the most members that a request may ask for.
const maxFields = 100

// fields are the names of the top-level members that a request asks for; nil for the whole documents.
type fields []string

// fieldsOf reads the query parameter fields: names between commas. The error matches errParameter.
func fieldsOf(query url.Values) (fields, error) {
	text, given, err := single(query, "fields")
	if err != nil || !given {
		return nil, err
	}
	names := strings.Split(text, ",")
	switch {
	case slices.Contains(names, ""):
		return nil, refuse(errParameter, "fields: a name is empty: send names between commas, like fields=a,b")
	case len(names) > maxFields:
		return nil, refuse(errParameter, "fields: at most %d names", maxFields)
	}
	return names, nil
}

// project returns a document with only the members asked for and the key member, in the order of the document and with
// the bytes that they have there; the document itself for nil.
func (f fields) project(c *collection, document []byte) ([]byte, error) {
	if f == nil {
		return document, nil
	}
	s := scanners.Get().(*scanner)
	defer s.release()
	s.read(document)
	out := append(make([]byte, 0, min(len(document), 1<<10)), '{')
	if _, err := s.decoder.ReadToken(); err != nil {
		return nil, err
	}
	for s.decoder.PeekKind() == jsontext.KindString {
		name, err := s.decoder.ReadValue()
		if err != nil {
			return nil, err
		}
		at := len(out)
		if at > 1 {
			out = append(out, ',')
		}
		// Copied now: the next value may overwrite it.
		out = append(append(out, name...), ':')
		wanted := s.named(name, c.KeyMember) || slices.ContainsFunc(f, func(field string) bool { return s.named(name, field) })
		value, err := s.decoder.ReadValue()
		if err != nil {
			return nil, err
		}
		if out = append(out, value...); !wanted {
			out = out[:at]
		}
	}
	_, err := s.decoder.ReadToken()
	return append(out, '}'), err
}
