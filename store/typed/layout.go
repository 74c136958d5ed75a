package typed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Column is a column that keeps a member of documents.
type Column struct {
	// Member is the name of the member, Name that of the column: letters, digits and underscores.
	Member, Name string
	Type         Type
	// Required refuses documents without the member, unless there is a default.
	Required bool
	// Default is the cell of documents without the member; nil for none.
	Default any
}

// Layout says where the members of the documents of a collection are kept. It is safe for concurrent use.
type Layout struct {
	keyMember string
	columns   []Column
	keep      bool
	// at finds a column by its member, opening and openings are the starts of a document and of each member in it.
	at       map[string]int
	opening  []byte
	openings [][]byte
}

// NewLayout makes a layout of columns with different members, none of which is the one with the key. keep keeps members
// without a column instead of refusing them.
func NewLayout(keyMember string, columns []Column, keep bool) *Layout {
	l := &Layout{keyMember: keyMember, columns: columns, keep: keep, at: map[string]int{}}
	l.opening, _ = jsontext.AppendQuote([]byte{'{'}, keyMember) // config has refused invalid UTF-8
	l.opening = append(l.opening, ':')
	for i, c := range columns {
		l.at[c.Member] = i
		name, _ := jsontext.AppendQuote([]byte{','}, c.Member)
		l.openings = append(l.openings, append(name, ':'))
	}
	return l
}

// Columns lists the columns; the caller must not change them.
func (l *Layout) Columns() []Column { return l.columns }

// Row is a document in columns.
type Row struct {
	// Cells has a value for each column, nil for a member that is absent.
	Cells []any
	// Rest is a JSON object of the members without a column; {} without any.
	Rest []byte
}

// Bytes is about what the row takes in a statement, in bytes.
func (r Row) Bytes() int {
	const number = 32 // digits of an integer or a double, and what is around them
	n := len(r.Rest)
	for _, cell := range r.Cells {
		switch v := cell.(type) {
		case string:
			n += len(v) + len(`'',`)
		case []byte:
			n += len(v) + len(`_binary'',`)
		default:
			n += number
		}
	}
	return n
}

// MemberError is a member that the columns do not take.
type MemberError struct {
	// Member is the name, cut when it is long. Reason follows it and never quotes a value.
	Member, Reason string
}

func (e *MemberError) Error() string { return fmt.Sprintf("member %q %s", e.Member, e.Reason) }

// longestName is how much of a member's name an error repeats, in bytes.
const longestName = 64

func refuse(member, reason string) error {
	if len(member) > longestName {
		member = member[:longestName] + "..."
	}
	return &MemberError{member, reason}
}

var errDocument = errors.New("the document is not one JSON object")

// none is the rest of a document that has a column for each member.
const none = "{}"

// scanner reads documents; one at a time.
type scanner struct {
	input   bytes.Buffer
	decoder *jsontext.Decoder
	name    []byte
}

var scanners = sync.Pool{New: func() any { return &scanner{decoder: jsontext.NewDecoder(new(bytes.Buffer))} }}

// each calls fn for each member of an object, with its name, and the name and the value as they are written.
func each(document []byte, fn func(name, quoted, value []byte) error) error {
	s := scanners.Get().(*scanner)
	// The decoder reads a bytes.Buffer in place and leaves its bytes alone.
	s.input = *bytes.NewBuffer(document)
	s.decoder.Reset(&s.input)
	defer func() {
		// A pooled scanner must not hold on to the document.
		s.input = bytes.Buffer{}
		s.decoder.Reset(&s.input)
		scanners.Put(s)
	}()
	if token, err := s.decoder.ReadToken(); err != nil || token.Kind() != jsontext.KindBeginObject {
		return errDocument
	}
	for s.decoder.PeekKind() != jsontext.KindEndObject {
		quoted, err := s.decoder.ReadValue()
		if err != nil {
			return errDocument
		}
		if s.name, err = jsontext.AppendUnquote(s.name[:0], quoted); err != nil {
			return errDocument
		}
		// What the decoder returned is only good until it reads on.
		end := s.decoder.InputOffset()
		at := document[end-int64(len(quoted)) : end]
		value, err := s.decoder.ReadValue()
		if err != nil {
			return errDocument
		}
		if err := fn(s.name, at, value); err != nil {
			return err
		}
	}
	if _, err := s.decoder.ReadToken(); err != nil {
		return errDocument
	}
	if _, err := s.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return errDocument
	}
	return nil
}

// Split puts a document into columns. The member with the key is left out; null is the same as absent. The error is a
// *MemberError when a member is not what its column takes, is missing, or has no column.
func (l *Layout) Split(document []byte) (Row, error) {
	r := Row{Cells: make([]any, len(l.columns))}
	rest := []byte{'{'}
	err := each(document, func(name, quoted, value []byte) error {
		i, ok := l.at[string(name)]
		switch {
		case string(name) == l.keyMember:
			return nil
		case ok && string(value) == "null":
			return nil
		case ok:
			var err error
			if r.Cells[i], err = l.columns[i].Type.Encode(value); err != nil {
				return refuse(string(name), err.Error())
			}
			return nil
		case !l.keep:
			return refuse(string(name), "has no column in this collection, which takes no others")
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(rest, quoted...), ':')
		rest = append(rest, value...)
		return nil
	})
	if err != nil {
		return Row{}, err
	}
	for i, c := range l.columns {
		if r.Cells[i] == nil {
			r.Cells[i] = c.Default
		}
		if r.Cells[i] == nil && c.Required {
			return Row{}, refuse(c.Member, "is required")
		}
	}
	rest = append(rest, '}')
	r.Rest = rest
	return r, nil
}

// Join makes the document of a key from its row: the key first, then the columns in their order, then the rest. A
// member in the rest counts more than its column: it was written by a gateway that did not know the column yet.
// An error says that the row was not written by a gateway with columns, or was changed since.
func (l *Layout) Join(key string, r Row) ([]byte, error) {
	if len(r.Cells) != len(l.columns) {
		return nil, fmt.Errorf("there are %d cells for %d columns", len(r.Cells), len(l.columns))
	}
	var hidden map[int]bool
	if string(r.Rest) != none {
		var err error
		if hidden, err = l.hidden(r.Rest); err != nil {
			return nil, err
		}
	}
	out := make([]byte, 0, len(l.opening)+len(key)+len(r.Rest)+len(l.columns)*32)
	out = append(out, l.opening...)
	out, err := jsontext.AppendQuote(out, key)
	if err != nil {
		return nil, errors.New("the stored key is not valid UTF-8")
	}
	for i, c := range l.columns {
		if r.Cells[i] == nil || hidden[i] {
			continue
		}
		if out, err = c.Type.Decode(append(out, l.openings[i]...), r.Cells[i]); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	rest := bytes.TrimSpace(r.Rest)
	if inner := bytes.TrimSpace(rest[1 : len(rest)-1]); len(inner) > 0 {
		out = append(append(out, ','), inner...)
	}
	return append(out, '}'), nil
}

// hidden checks the members without a column of a stored row, and lists the columns that they hide.
func (l *Layout) hidden(rest []byte) (map[int]bool, error) {
	var hidden map[int]bool
	err := each(rest, func(name, _, _ []byte) error {
		if string(name) == l.keyMember {
			return errors.New("the key is among the members without a column: the row was written by a gateway without columns")
		}
		if i, ok := l.at[string(name)]; ok {
			if hidden == nil {
				hidden = map[int]bool{}
			}
			hidden[i] = true
		}
		return nil
	})
	if errors.Is(err, errDocument) {
		err = errors.New("the members without a column are not one JSON object")
	}
	return hidden, err
}
