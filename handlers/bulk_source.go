package handlers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// lineBufferBytes is the buffer that lines are read through; a longer line is put together from pieces.
const lineBufferBytes = 64 << 10

// arrayFrame is the answer to a JSON array.
var arrayFrame = frame{contentType: mediaJSON, open: `{"results":[`, between: ",", end: "]}\n"}

// linesFrame is the answer to a stream of lines.
var linesFrame = frame{contentType: mediaNDJSON, after: "\n", live: true}

// bulkArray does an operation with the items of a JSON array. An array that is no JSON is refused before the first.
func (s *Server) bulkArray(x *exchange, op operation, body []byte) error {
	if !utf8.Valid(body) {
		return refuse(errInvalidJSON, "the array is not valid UTF-8")
	}
	for _, err := range elements(body) {
		if err != nil {
			return err
		}
	}
	one := s.recordLimit(x)
	return s.runBulk(x, op, arrayFrame, func(context.Context) iter.Seq2[[]byte, error] {
		return func(yield func([]byte, error) bool) {
			for raw := range elements(body) { //nolint:errcheck // there is none, as was just seen
				var err error
				if int64(len(raw)) > one.bytes {
					raw, err = nil, one.exceeded()
				}
				if !yield(raw, err) {
					return
				}
			}
		}
	})
}

// elements gives the texts of the elements of a JSON array that is all of body, and at last the syntax error if there is
// one. What is only wrong inside one element, like a repeated name, is left to its own check.
func elements(body []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		if _, err := d.ReadToken(); err != nil {
			yield(nil, jsonFault(err))
			return
		}
		for d.PeekKind() != jsontext.KindEndArray {
			raw, err := d.ReadValue()
			if err != nil {
				yield(nil, jsonFault(err))
				return
			}
			if !yield(raw, nil) {
				return
			}
		}
		if _, err := d.ReadToken(); err != nil {
			yield(nil, jsonFault(err))
			return
		}
		end := d.InputOffset()
		if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
			yield(nil, refuse(errInvalidJSON, "there is data after the array, from byte offset %d on", end))
		}
	}
}

// bulkLines does an operation with the items of a stream of lines and answers each as it goes. A client has to read while it sends, as
// curl does: when nobody takes the results, the stream stops.
func (s *Server) bulkLines(x *exchange, op operation) error {
	// Without it, HTTP/1 would read the rest of the body before the first result leaves.
	_ = http.NewResponseController(x.Response().Writer).EnableFullDuplex()
	return s.runBulk(x, op, linesFrame, func(stop context.Context) iter.Seq2[[]byte, error] {
		body := &patientReader{x: x, stop: stop, body: x.Request().Body, idle: s.streamIdle}
		return lines(body, s.recordLimit(x))
	})
}

// patientReader reads a body that may come slowly: every single wait is bounded, not their sum. It stops reading when
// stop ends.
type patientReader struct {
	x    *exchange
	stop context.Context
	body io.Reader
	idle time.Duration
}

// Read reads once. At the end of the body no bound is left on the connection, which then only waits for the answer.
func (r *patientReader) Read(p []byte) (int, error) {
	// In this order: whoever ends stop sets a past deadline after it, so that one of the two is seen.
	r.x.setReadDeadline(time.Now().Add(r.idle))
	if err := r.stop.Err(); err != nil {
		return 0, because(errClientGone, err)
	}
	n, err := r.body.Read(p)
	if errors.Is(err, io.EOF) {
		r.x.setReadDeadline(time.Time{})
	}
	return n, err
}

// lines gives the lines of a stream that are not blank, without their ends. A line above the limit is skipped and given as
// an error. A stream that breaks off ends with an error, and its unfinished line is not given: it may not be all of it.
func lines(stream io.Reader, most limit) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		buffered := bufio.NewReaderSize(stream, lineBufferBytes)
		for {
			line, tooLong, err := readLine(buffered, most.bytes)
			if err != nil && !errors.Is(err, io.EOF) {
				yield(nil, bodyFault(err))
				return
			}
			switch {
			case tooLong:
				if !yield(nil, most.exceeded()) {
					return
				}
			case len(line) > 0:
				if !yield(line, nil) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// readLine reads one line into memory of its own and trims it. Of a line longer than most bytes it keeps nothing.
func readLine(r *bufio.Reader, most int64) (line []byte, tooLong bool, err error) {
	for {
		var piece []byte
		piece, err = r.ReadSlice('\n')
		switch {
		case tooLong:
		case int64(len(line)+len(piece)) > most+int64(len("\r\n")):
			line, tooLong = nil, true
		default:
			line = append(line, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			line = bytes.Trim(line, jsonSpace)
			return line, tooLong || int64(len(line)) > most, err
		}
	}
}
