package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	jsonType = "application/json"
	// exportPage is the most records per request; the gateway sends fewer when they are large.
	exportPage = 1000
)

// exportPart is one page of the list, as lines.
type exportPart struct {
	lines           []byte
	records, folded int64
	next            string // the cursor of the next page; empty after the last
}

// fetch gets the page at a cursor, again and again while that may help.
func (r *exportRun) fetch(ctx context.Context, cursor string) (p exportPart, err error) {
	for tries := 1; ; tries++ {
		p, err = r.fetchOnce(ctx, cursor)
		var transient *transientError
		switch {
		case err == nil || !errors.As(err, &transient):
			return p, err
		case ctx.Err() != nil:
			return p, ctx.Err()
		case tries == importRounds:
			return p, fmt.Errorf("gave up after %d tries: %w; run the same export again to go on", importRounds, err)
		}
		select {
		case <-ctx.Done():
			return p, ctx.Err()
		case <-time.After(max(r.sender.wait(tries), transient.after)):
		}
	}
}

// fetchOnce gets a page. A page that did not come whole is none.
func (r *exportRun) fetchOnce(ctx context.Context, cursor string) (exportPart, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(r.sender.idle, func() { cancel(errImportStalled) })
	defer idle.Stop()

	target := *r.sender.target
	query := url.Values{"limit": {strconv.Itoa(exportPage)}, "order": {r.order}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	target.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return exportPart{}, err
	}
	req.Header.Set("Accept", jsonType)
	resp, err := r.sender.client.Do(req)
	if err != nil {
		return exportPart{}, r.sender.lost(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := r.sender.accept(resp, jsonType); err != nil {
		return exportPart{}, err
	}
	body := &meteredReader{resp.Body, func() { idle.Reset(r.sender.idle) }}
	p, err := readPart(body, r.lines[:0])
	r.lines = p.lines
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errNotAList) {
		return p, fmt.Errorf("%s: not a gateway's list: %w", r.sender.target.Redacted(), err)
	}
	if err != nil {
		return p, r.sender.lost(ctx, err)
	}
	return p, nil
}

// errNotAList is JSON that is no page of a list.
var errNotAList = errors.New("not of the form {\"items\":[...],\"next\":\"...\"}")

// readPart reads a page of a list to its end and makes lines of its items, whose bytes it keeps. The lines go into a
// buffer as far as it is large enough.
func readPart(body io.Reader, buffer []byte) (p exportPart, err error) {
	p.lines = buffer
	d := jsontext.NewDecoder(body, jsontext.AllowDuplicateNames(true))
	if err := expect(d, jsontext.KindBeginObject); err != nil {
		return p, err
	}
	items := false
	for d.PeekKind() == jsontext.KindString {
		name, err := d.ReadToken()
		if err != nil {
			return p, err
		}
		switch name.String() {
		case "items":
			items = true
			err = p.readItems(d)
		case "next":
			var next jsontext.Token
			if next, err = d.ReadToken(); err == nil && next.Kind() == jsontext.KindString {
				p.next = next.String()
			} else if err == nil {
				err = errNotAList
			}
		default:
			err = d.SkipValue()
		}
		if err != nil {
			return p, err
		}
	}
	if err := expect(d, jsontext.KindEndObject); err != nil {
		return p, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return p, errors.Join(errNotAList, err)
	}
	if !items || p.next != "" && p.records == 0 {
		return p, errNotAList // it would never end
	}
	return p, nil
}

func (p *exportPart) readItems(d *jsontext.Decoder) error {
	if err := expect(d, jsontext.KindBeginArray); err != nil {
		return err
	}
	for d.PeekKind() == jsontext.KindBeginObject {
		item, err := d.ReadValue()
		if err != nil {
			return err
		}
		start := len(p.lines)
		p.lines = append(append(p.lines, item...), '\n')
		if line := p.lines[start : len(p.lines)-1]; bytes.ContainsAny(line, "\r\n") {
			p.folded++
			for i, b := range line {
				if b == '\n' || b == '\r' { // between tokens: a string would have it escaped
					line[i] = ' '
				}
			}
		}
		p.records++
	}
	return expect(d, jsontext.KindEndArray)
}

// expect reads one token of a kind.
func expect(d *jsontext.Decoder, kind jsontext.Kind) error {
	token, err := d.ReadToken()
	if err == nil && token.Kind() != kind {
		err = errNotAList
	}
	return err
}
