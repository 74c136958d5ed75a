package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"keyrange/store"
)

// generatedKeyAttempts is how often a record posted without a key gets a new one when there is a record under it. Made
// keys are unique by design, so a second attempt is an accident and a fourth a fault.
const generatedKeyAttempts = 4

// get answers GET and HEAD of a record. If-Modified-Since is ignored: a record may change twice within its second.
func (s *Server) get(ctx context.Context, x *exchange) error {
	header := x.Request().Header
	cond, err := ifMatch(header)
	if err != nil {
		return err
	}
	rec, err := s.records.Get(ctx, x.collection.Name, x.key)
	if err != nil {
		return err
	}
	if !matches(cond, rec.Tag) {
		return store.ErrPrecondition
	}
	etag := x.describe(rec)
	// Caches may keep a record, but must ask each time whether it is still the same.
	x.Response().Header()[echo.HeaderCacheControl] = []string{"no-cache"}
	if notModified(header, etag) {
		x.Response().WriteHeader(http.StatusNotModified)
		return nil
	}
	return x.sendRecord(http.StatusOK, rec)
}

// put stores the body under the key of the path, whether or not there is a record, unless the request demands either.
func (s *Server) put(ctx context.Context, x *exchange) error {
	cond, createOnly, err := writeConditions(x.Request().Header, true)
	if err != nil {
		return err
	}
	if err := x.readTTL(); err != nil {
		return err
	}
	body, err := x.readRecord(s.recordLimit(x))
	if err != nil {
		return err
	}
	content, err := s.replacement(x, body)
	if err != nil {
		return err
	}
	if content, err = s.expiring(x, content); err != nil {
		return err
	}
	var rec store.Record
	created := true
	if createOnly {
		rec, _, err = s.records.CreateOnce(ctx, x.collection.Name, x.key, content, store.Once{})
		if errors.Is(err, store.ErrConflict) {
			return because(store.ErrPrecondition, err)
		}
	} else {
		rec, created, err = s.records.Put(ctx, x.collection.Name, x.key, content, cond)
	}
	if err != nil {
		return err
	}
	if created {
		return x.sendCreated(rec)
	}
	return x.sendWritten(http.StatusOK, rec)
}

// replacement checks a document that is to be stored under the key of the path, and returns what is stored.
func (s *Server) replacement(x *exchange, body []byte) (store.Content, error) {
	doc, err := x.collection.scan(body)
	if err != nil {
		return store.Content{}, err
	}
	if doc.hasKey && doc.key != x.key {
		return store.Content{}, errKeyMismatch
	}
	return x.collection.complete(doc, x.key, s.records.MaxDocumentBytes())
}

// delete removes a record. A body is not looked at.
func (s *Server) delete(ctx context.Context, x *exchange) error {
	cond, _, err := writeConditions(x.Request().Header, false)
	if err != nil {
		return err
	}
	if err := s.records.Delete(ctx, x.collection.Name, x.key, cond); err != nil {
		return err
	}
	x.Response().WriteHeader(http.StatusNoContent)
	return nil
}

// post creates the record or the records in the body, or does with them what op says.
func (s *Server) post(ctx context.Context, x *exchange) (err error) {
	header := x.Request().Header
	if len(header[headerIfMatch])+len(header[headerIfNoneMatch])+len(header[headerIfUnmodSince]) > 0 {
		return refuse(errCondition, "POST takes no conditions: without op it only ever creates, and op=delete takes an etag in each item")
	}
	if x.idempotency, err = idempotencyOf(header); err != nil {
		return err
	}
	if err := x.readTTL(); err != nil {
		return err
	}
	media, err := mediaType(header)
	if err != nil {
		return err
	}
	op, err := x.operation()
	switch {
	case err != nil:
		return err
	case op == opGet:
		return s.postKeys(x, media)
	case op != "":
		return s.postBulk(x, op, media)
	}
	if err := x.accepts(media); err != nil {
		return err
	}
	if media == mediaNDJSON {
		return s.bulkLines(x, s.creating(x))
	}
	body, array, err := x.readBody(s.recordLimit(x), x.bulkLimit())
	if err != nil {
		return err
	}
	if array {
		return s.bulkArray(x, s.creating(x), body)
	}
	doc, err := x.collection.scan(body)
	if err != nil {
		return err
	}
	x.key = doc.key // as far as it is known
	rec, replayed, err := s.create(ctx, x, doc, 0)
	if err != nil {
		return err
	}
	x.key = rec.Key
	if replayed {
		x.Response().Header()[headerReplayed] = []string{"true"}
	}
	return x.sendCreated(rec)
}

// create stores a new record under the key in its document, or under a made one. position counts the items of a bulk
// request from 0. replayed says that an earlier repetition of the request has created it.
func (s *Server) create(ctx context.Context, x *exchange, doc document, position int) (rec store.Record, replayed bool, err error) {
	switch {
	case doc.hasKey:
		return s.createUnder(ctx, x, doc, doc.key)
	case x.idempotency != "":
		return s.createUnder(ctx, x, doc, x.idempotency.madeKey(x.collection, position))
	}
	for range generatedKeyAttempts {
		key, err := s.options.NewKey()
		if err != nil {
			return store.Record{}, false, fmt.Errorf("%w: make a key: %w", store.ErrUnavailable, err)
		}
		rec, _, err := s.createUnder(ctx, x, doc, key)
		if !errors.Is(err, store.ErrConflict) {
			return rec, false, err
		}
	}
	// The conflicts stay out of the chain: the client posted no key that could exist.
	return store.Record{}, false, fmt.Errorf("%w: %d made keys in a row existed", store.ErrBusy, generatedKeyAttempts)
}

// createUnder stores a new record under a key.
func (s *Server) createUnder(ctx context.Context, x *exchange, doc document, key string) (rec store.Record, replayed bool, err error) {
	if err := s.permitKey(x, key); err != nil {
		return store.Record{}, false, err
	}
	content, err := x.collection.complete(doc, key, s.records.MaxDocumentBytes())
	if err != nil {
		return store.Record{}, false, err
	}
	if content, err = s.expiring(x, content); err != nil {
		return store.Record{}, false, err
	}
	return s.records.CreateOnce(ctx, x.collection.Name, key, content, x.idempotency.once(x.collection, key, doc.text))
}

// describe sets the headers that tell a record's version and expiry, and returns the ETag.
func (x *exchange) describe(rec store.Record) string {
	header, etag := x.Response().Header(), formatETag(rec.Tag)
	header[headerETag] = []string{etag}
	describeExpiry(header, rec)
	header[echo.HeaderLastModified] = []string{rec.UpdatedAt.UTC().Format(http.TimeFormat)}
	return etag
}

// sendRecord answers with a record as it is stored.
func (x *exchange) sendRecord(status int, rec store.Record) error {
	x.Response().Header()[echo.HeaderContentType] = []string{mediaJSON}
	return x.send(status, rec.Document)
}

// sendCreated answers 201 with the record and where it is.
func (x *exchange) sendCreated(rec store.Record) error {
	x.Response().Header()[echo.HeaderLocation] = []string{location(x.collection.Name, rec.Key)}
	return x.sendWritten(http.StatusCreated, rec)
}
