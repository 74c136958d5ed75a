package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// importMaxRecord bounds one record of the input, in bytes. It only protects memory: the gateway's own limit is lower.
const importMaxRecord = 16 << 20

const utf8BOM = "\uFEFF" // what some spreadsheets put in front

// importRecord is one record of the input.
type importRecord struct {
	line   int    // where it begins in the input, from 1
	key    string // its business key
	doc    []byte // the document to send, with a newline at the end
	input  int64  // bytes of the input it took
	answer importAnswer
}

// importSource reads records one by one. The error of next is io.EOF at the end, an *importFault for a record that is
// no good while the rest may be, and anything else ends the import. offset says how much of the input is behind it, in
// bytes.
type importSource interface {
	next() (importRecord, error)
	offset() int64
}

// importFault is a record that cannot be sent.
type importFault struct {
	line   int
	code   string // invalid_json, invalid_csv, invalid_key or too_long
	detail string
}

func (f *importFault) Error() string { return fmt.Sprintf("line %d: %s: %s", f.line, f.code, f.detail) }

// newImportSource reads the header of a CSV input; an empty input has no records and is no error.
func newImportSource(input io.Reader, format string, key importKey) (importSource, error) {
	const readAhead = 64 << 10
	budget := &budgetReader{r: input, left: importMaxRecord}
	buffered := bufio.NewReaderSize(budget, readAhead)
	var skipped int64
	if bom, err := buffered.Peek(len(utf8BOM)); err == nil && string(bom) == utf8BOM {
		n, err := buffered.Discard(len(utf8BOM))
		if err != nil {
			return nil, err
		}
		skipped = int64(n)
	}
	if format == "csv" {
		return newCSVSource(buffered, budget, skipped, key)
	}
	budget.left = -1 // lines are bounded where they are read, and a long one is no reason to stop
	return &ndjsonSource{in: buffered, read: skipped, key: key}, nil
}

// importKey says where the business key of a record is.
type importKey struct {
	field  string // the member of the input; not empty once the flags are checked
	member string // the member the gateway looks at
}

// choose returns the key of a record that has these values under field and member, nil for an absent one, and whether
// the member has to be added.
func (k importKey) choose(field, member *string) (key string, add bool, err error) {
	switch {
	case field == nil:
		return "", false, fmt.Errorf("no member %q", k.field)
	case *field == "":
		return "", false, fmt.Errorf("member %q is empty", k.field)
	case member == nil:
		return *field, true, nil
	case *member != *field:
		return "", false, fmt.Errorf("member %q is %.80q, but %q is %.80q", k.member, *member, k.field, *field)
	}
	return *field, false, nil
}

// ---- NDJSON

// ndjsonSource reads a JSON object per line and leaves its bytes alone, but for the key it may add.
type ndjsonSource struct {
	in   *bufio.Reader
	line int
	read int64
	key  importKey
	buf  []byte
	dec  jsontext.Decoder
}

func (s *ndjsonSource) offset() int64 { return s.read }

func (s *ndjsonSource) next() (importRecord, error) {
	for {
		line, tooLong, err := s.readLine()
		if err != nil {
			return importRecord{}, err
		}
		if tooLong {
			return importRecord{}, &importFault{s.line, "too_long", fmt.Sprintf("longer than %d MiB", importMaxRecord>>20)}
		}
		if len(bytes.TrimSpace(line)) > 0 {
			return s.record(line)
		}
	}
}

// readLine returns the next line without its end, valid until the next call. Of a line that is too long it returns
// nothing, but reads past it.
func (s *ndjsonSource) readLine() (line []byte, tooLong bool, err error) {
	s.buf = s.buf[:0]
	began := s.read
	for {
		part, err := s.in.ReadSlice('\n')
		s.read += int64(len(part))
		if tooLong = tooLong || len(s.buf)+len(part) > importMaxRecord; !tooLong {
			s.buf = append(s.buf, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) && s.read > began {
			err = nil // the last line has no end
		}
		s.line++
		line = bytes.TrimSuffix(s.buf, []byte("\n"))
		return bytes.TrimSuffix(line, []byte("\r")), tooLong, err
	}
}

func (s *ndjsonSource) record(line []byte) (importRecord, error) {
	var field, member jsontext.Value
	if err := s.scan(line, &field, &member); err != nil {
		return importRecord{}, &importFault{s.line, "invalid_json", strings.TrimPrefix(err.Error(), "jsontext: ")}
	}
	key, add, err := s.chooseKey(field, member)
	if err != nil {
		return importRecord{}, &importFault{s.line, "invalid_key", err.Error()}
	}
	doc := make([]byte, 0, len(line)+len(s.key.member)+len(key)+16)
	if add {
		brace := bytes.IndexByte(line, '{') + 1
		doc = append(doc, line[:brace]...)
		doc, err = appendMember(doc, s.key.member, key)
		if err != nil {
			return importRecord{}, &importFault{s.line, "invalid_key", err.Error()}
		}
		doc = append(doc, ',') // there is another member, the one the key is from
		line = line[brace:]
	}
	doc = append(append(doc, line...), '\n')
	return importRecord{line: s.line, key: key, doc: doc}, nil
}

// scan checks that line is one JSON object, as strictly as the gateway, and finds the two members that matter.
func (s *ndjsonSource) scan(line []byte, field, member *jsontext.Value) error {
	s.dec.Reset(bytes.NewReader(line))
	if s.dec.PeekKind() != '{' {
		if _, err := s.dec.ReadValue(); err != nil {
			return err
		}
		return errors.New("not a JSON object")
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	for s.dec.PeekKind() == '"' {
		token, err := s.dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		if name != s.key.field && name != s.key.member {
			if err := s.dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		value, err := s.dec.ReadValue()
		if err != nil {
			return err
		}
		if name == s.key.field {
			*field = value.Clone()
		}
		if name == s.key.member {
			*member = value.Clone()
		}
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	if _, err := s.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value on the line")
	}
	return nil
}

func (s *ndjsonSource) chooseKey(field, member jsontext.Value) (key string, add bool, err error) {
	var values [2]*string
	for i, v := range []jsontext.Value{field, member} {
		if v == nil {
			continue
		}
		text := string(v)
		switch {
		case v.Kind() == '"':
			unquoted, err := jsontext.AppendUnquote(nil, v)
			if err != nil {
				return "", false, err
			}
			text = string(unquoted)
		case i == 0 && s.key.field != s.key.member && v.Kind() == '0' && !strings.ContainsAny(text, ".eE"):
		default:
			return "", false, fmt.Errorf("member %q is %.80s; a key is a string", []string{s.key.field, s.key.member}[i], text)
		}
		values[i] = &text
	}
	return s.key.choose(values[0], values[1])
}

// ---- CSV

// csvSource makes a JSON object of strings from every row below the header.
type csvSource struct {
	in      *csv.Reader
	budget  *budgetReader
	skipped int64 // bytes in front of what the CSV reader counts
	line    int   // where the last good row began
	names   []string
	field   int // index of the key's column, -1 for none
	member  int
	key     importKey
}

func newCSVSource(in io.Reader, budget *budgetReader, skipped int64, key importKey) (*csvSource, error) {
	s := &csvSource{in: csv.NewReader(in), budget: budget, skipped: skipped, key: key, field: -1, member: -1}
	names, err := s.in.Read()
	if errors.Is(err, io.EOF) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("CSV header: %w", err)
	}
	for i, name := range names {
		if name == "" {
			return nil, fmt.Errorf("CSV header: column %d has no name", i+1)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("CSV header: two columns are named %q", name)
		}
	}
	s.names = names
	s.field, s.member = slices.Index(names, key.field), slices.Index(names, key.member)
	if s.field < 0 {
		return nil, fmt.Errorf("CSV header: no column %q for the key", key.field)
	}
	return s, nil
}

func (s *csvSource) offset() int64 { return s.skipped + s.in.InputOffset() }

func (s *csvSource) next() (importRecord, error) {
	s.budget.left = importMaxRecord
	row, err := s.in.Read()
	var bad *csv.ParseError
	if errors.As(err, &bad) {
		detail := bad.Err.Error()
		if errors.Is(err, csv.ErrFieldCount) {
			detail = fmt.Sprintf("%d fields, the header has %d", len(row), len(s.names))
		}
		return importRecord{}, &importFault{bad.StartLine, "invalid_csv", detail}
	}
	if errors.Is(err, io.EOF) {
		return importRecord{}, err
	}
	if err != nil {
		return importRecord{}, fmt.Errorf("CSV, after line %d: %w", s.line, err)
	}
	line, _ := s.in.FieldPos(0)
	s.line = line
	var member *string
	if s.member >= 0 {
		member = &row[s.member]
	}
	key, add, err := s.key.choose(&row[s.field], member)
	if err != nil {
		return importRecord{}, &importFault{line, "invalid_key", err.Error()}
	}
	doc, err := s.document(row, key, add)
	if err != nil {
		return importRecord{}, &importFault{line, "invalid_csv", strings.TrimPrefix(err.Error(), "jsontext: ")}
	}
	return importRecord{line: line, key: key, doc: doc}, nil
}

func (s *csvSource) document(row []string, key string, add bool) (doc []byte, err error) {
	doc = append(doc, '{')
	if add {
		if doc, err = appendMember(doc, s.key.member, key); err != nil {
			return nil, err
		}
		doc = append(doc, ',')
	}
	for i, value := range row {
		if i > 0 {
			doc = append(doc, ',')
		}
		if doc, err = appendMember(doc, s.names[i], value); err != nil {
			return nil, err
		}
	}
	return append(doc, '}', '\n'), nil
}

// appendMember appends a member of a JSON object whose value is a string; the error is about invalid UTF-8.
func appendMember(dst []byte, name, value string) ([]byte, error) {
	dst, err := jsontext.AppendQuote(dst, name)
	if err != nil {
		return nil, err
	}
	return jsontext.AppendQuote(append(dst, ':'), value)
}

// budgetReader fails once more than left bytes are read; a negative left is no limit. The CSV reader has no bound of
// its own: an unclosed quote would take the rest of the file for one field.
type budgetReader struct {
	r    io.Reader
	left int
}

func (b *budgetReader) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("a record is longer than %d MiB, perhaps after an unclosed quote", importMaxRecord>>20)
	}
	if b.left > 0 && len(p) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	if b.left > 0 {
		b.left -= n
	}
	return n, err
}
