package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"keyrange/store"
)

const (
	// pageBytes bounds the documents of a page, which is held in memory; a larger document is a page of its own.
	pageBytes = 8 << 20
	// pieceBytes is how much of a stream is sent at once. A client has streamIdle to take each.
	pieceBytes = 256 << 10
)

// Headers of a list.
const (
	headerLink    = "Link"
	headerTrailer = "Trailer"
	// headerItems is the trailer of a stream that ended well: how many lines it has.
	headerItems = "X-Item-Count"
)

// source gives the pages of a list.
type source func(ctx context.Context, walk store.Walk) (store.Page, error)

// pager answers one request with the records of a source, in pages or as a stream.
type pager struct {
	server *Server
	x      *exchange
	source source
	// cursor is where the answer begins; after its end, where the next one does.
	cursor cursor
	// limit is the most records, or -1 for all.
	limit  int
	fields fields
	// count is how many records a group has; -1 when that was not asked for.
	count int64
}

// fetch gets the next records, up to a limit, and moves the cursor behind them.
func (p *pager) fetch(ctx context.Context, limit int) (store.Page, error) {
	page, err := p.source(ctx, store.Walk{After: p.cursor.after, Descending: p.cursor.descending, Limit: limit, MaxBytes: pageBytes})
	if err != nil {
		return page, err
	}
	if len(page.Records) > 0 {
		p.cursor.after = page.Next
	}
	for i := range page.Records {
		r := &page.Records[i]
		if r.Document, err = p.fields.project(p.x.collection, r.Document); err != nil {
			// The text of the error could quote the document.
			return store.Page{}, errors.New("the document of record " + r.Tag.String() + " is no JSON object")
		}
	}
	return page, nil
}

// next is the value of the Link header for the page behind the cursor: the same request with another cursor.
func (p *pager) next() string {
	target := *p.x.Request().URL
	query := target.Query()
	query.Set("cursor", p.cursor.String())
	return "<" + target.EscapedPath() + "?" + query.Encode() + `>; rel="next"`
}

// page answers with one page: {"items":[...],"next":"..."}, without next at the end of the list.
func (p *pager) page(ctx context.Context) error {
	page, err := p.fetch(ctx, p.limit)
	if err != nil {
		return err
	}
	size := len(`{"items":[],"next":""}`) + 2*cursorBytes
	for i := range page.Records {
		size += len(page.Records[i].Document) + 1
	}
	body := append(make([]byte, 0, size), `{"items":[`...)
	for i := range page.Records {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, page.Records[i].Document...)
	}
	body = append(body, ']')
	if p.count >= 0 {
		body = strconv.AppendInt(append(body, `,"count":`...), p.count, 10)
	}
	if page.More {
		body, _ = jsontext.AppendQuote(append(body, `,"next":`...), p.cursor.String())
		p.x.Response().Header()[headerLink] = []string{p.next()}
	}
	p.x.items = len(page.Records)
	return p.x.sendJSON(http.StatusOK, append(body, "}\n"...))
}

// stream answers with a line for each record. A line break within a document, which can only be between its tokens,
// becomes a space. Every page is fetched within the request timeout; the stream as a whole has no end to bound.
//
// An answer that ended well has trailers: the number of lines, and the Link to the rest when the limit was reached. When
// something goes wrong on the way the connection is broken, so that a part is never taken for the whole.
func (p *pager) stream(ctx context.Context) error {
	batch := p.batch(maxPageItems)
	page, err := p.fetch(ctx, batch)
	if err != nil {
		return err
	}
	header := p.x.Response().Header()
	header[echo.HeaderContentType] = []string{mediaNDJSON}
	header[echo.HeaderCacheControl] = []string{"no-store"}
	header[headerTrailer] = []string{headerItems + ", " + headerLink}
	p.x.Response().WriteHeader(http.StatusOK)
	if p.x.isHead() {
		return nil
	}
	if err := p.streamPages(page, batch); err != nil {
		return fmt.Errorf("%w: %w", errCutOff, err)
	}
	header[headerItems] = []string{strconv.Itoa(p.x.items)}
	return nil
}

// streamPages writes a page and all behind it.
func (p *pager) streamPages(page store.Page, batch int) error {
	client := p.x.ctx
	defer p.x.setWriteDeadline(time.Time{})
	for {
		if err := p.write(page.Records); err != nil {
			return err
		}
		if !page.More {
			return nil
		}
		// A page that is cut short for its bytes costs the store more than one that is asked for in that size.
		if batch = p.batch(2 * batch); len(page.Records) < batch/2 {
			batch = p.batch(len(page.Records))
		}
		if batch == 0 {
			p.x.Response().Header()[headerLink] = []string{p.next()}
			return nil
		}
		var err error
		if page, err = p.fetchAnother(client, batch); err != nil {
			return err
		}
	}
}

// fetchAnother fetches within a request timeout of its own.
func (p *pager) fetchAnother(client context.Context, batch int) (store.Page, error) {
	ctx, cancel := context.WithTimeout(client, p.x.limits.RequestTimeout)
	defer cancel()
	page, err := p.fetch(ctx, batch)
	return page, settle(client, ctx, true, err)
}

// batch is how many records a stream asks for next, when it would like so many; 0 at its limit.
func (p *pager) batch(records int) int {
	records = min(records, maxPageItems)
	if p.limit < 0 {
		return records
	}
	return min(records, p.limit-p.x.items)
}

// write sends records, a line each, in pieces.
func (p *pager) write(records []store.Record) error {
	var piece []byte
	for i := range records {
		start := len(piece)
		piece = append(piece, records[i].Document...)
		oneLine(piece[start:])
		piece = append(piece, '\n')
		p.x.items++
		if len(piece) >= pieceBytes || i == len(records)-1 {
			if err := p.send(piece); err != nil {
				return err
			}
			piece = piece[:0]
		}
	}
	return nil
}

// send sends one piece, which the client must take in time.
func (p *pager) send(piece []byte) error {
	for len(piece) > 0 {
		part := piece[:min(len(piece), pieceBytes)]
		piece = piece[len(part):]
		if err := p.server.sendChunk(p.x, mediaNDJSON, part); err != nil {
			return err
		}
	}
	return nil
}

// oneLine turns the line breaks of a document into spaces.
func oneLine(document []byte) {
	for at := bytes.IndexAny(document, "\r\n"); at >= 0; at = bytes.IndexAny(document, "\r\n") {
		document[at] = ' '
		document = document[at+1:]
	}
}
