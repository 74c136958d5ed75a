package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	importRounds        = 5                      // tries in a row that settle no record before the import gives up on them
	importBackoff       = 200 * time.Millisecond // before the first repetition, then doubled
	importMaxBackoff    = 5 * time.Second
	importMaxRetryAfter = 30 * time.Second // the longest wait a server may ask for
	importIdle          = 60 * time.Second // without a byte sent or a result received: the server has stalled

	problemMaxBytes = 64 << 10 // of an error document
	ndjsonType      = "application/x-ndjson"
	problemType     = "application/problem+json"
)

var errImportStalled = errors.New("the server has stalled")

// importAnswer is the gateway's result for one record.
type importAnswer struct {
	Status int    `json:"status"`
	Key    string `json:"key"`
	Error  struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	} `json:"error"`
}

// transient tells whether the same record may well be taken a little later. Sending a record twice is harmless: its key
// is in it, so it is created once.
func (a importAnswer) transient() bool { return transientStatus(a.Status) }

func transientStatus(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// transientError is a request that failed as a whole and may succeed later; after is the wait the server asked for.
type transientError struct {
	cause error
	after time.Duration
}

func (e *transientError) Error() string { return e.cause.Error() }
func (e *transientError) Unwrap() error { return e.cause }

// importSender posts records to the bulk endpoint of one collection. It is safe for concurrent use.
type importSender struct {
	client  *http.Client
	target  *url.URL
	idle    time.Duration
	backoff time.Duration
}

func newImportSender(base *url.URL, collection string, concurrency int, caller callerOptions) (importSender, error) {
	transport, err := caller.transport()
	if err != nil {
		return importSender{}, err
	}
	transport.MaxIdleConnsPerHost = concurrency
	client, err := caller.client(transport)
	return importSender{
		client:  client,
		target:  base.JoinPath("v1", url.PathEscape(collection)),
		idle:    importIdle,
		backoff: importBackoff,
	}, err
}

// nextChunk reads records until there are enough for a request; records that are no good go to the tally. It returns
// what it has along with every error, io.EOF included, and may have none.
func (r *importRun) nextChunk(source importSource, most, size int) (chunk []importRecord, err error) {
	for bytes := 0; len(chunk) < most && bytes < size; {
		began := source.offset()
		record, err := source.next()
		record.input = source.offset() - began
		var fault *importFault
		switch {
		case errors.As(err, &fault):
			failure := importFailure{Line: fault.line, Code: fault.code, Detail: fault.detail}
			if err := r.tally.fail(failure, record.input); err != nil {
				return chunk, err
			}
		case err != nil:
			return chunk, err
		default:
			chunk = append(chunk, record)
			bytes += len(record.doc)
		}
	}
	return chunk, nil
}

// send brings a chunk to its end: every record created, found or failed. It repeats what the server was too busy for
// and what got no answer, as long as that leads anywhere. The error ends the import; records without an answer are then
// in no count. It starts no request once stop is closed.
func (r *importRun) send(ctx context.Context, stop <-chan struct{}, left []importRecord) error {
	for tries := 0; len(left) > 0; {
		select {
		case <-stop:
			return errImportInterrupted
		default:
		}
		before := len(left)
		var err error
		left, err = r.post(ctx, left)
		var transient *transientError
		if err != nil && !errors.As(err, &transient) {
			return err
		}
		if len(left) == 0 {
			break
		}
		if tries++; len(left) < before {
			tries = 0
		}
		if tries == importRounds {
			if err != nil {
				return fmt.Errorf("gave up after %d tries: %w", importRounds, err)
			}
			break
		}
		wait := r.sender.wait(tries)
		if transient != nil {
			wait = max(wait, transient.after)
		}
		select {
		case <-stop:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	for _, record := range left {
		if err := r.tally.fail(record.failure(), record.input); err != nil {
			return err
		}
	}
	return nil
}

// wait returns the pause after so many tries in a row for nothing, less than importRounds, spread by half so that senders do not march in step.
func (s importSender) wait(tries int) time.Duration {
	d := min(s.backoff<<max(tries-1, 0), importMaxBackoff)
	return d/2 + rand.N(d+1)
}

// post sends the records in one request, counts what the answers settle and returns the rest: the records the server
// was too busy for, each with that answer, and those it did not answer. The error, if any, is why there are such.
func (r *importRun) post(ctx context.Context, records []importRecord) (left []importRecord, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(r.sender.idle, func() { cancel(errImportStalled) })
	defer idle.Stop()

	resp, err := r.sender.do(ctx, records, func() { idle.Reset(r.sender.idle) })
	if err != nil {
		return records, r.sender.lost(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := r.sender.accept(resp, ndjsonType); err != nil {
		return records, err
	}
	results := json.NewDecoder(resp.Body)
	for i, record := range records {
		var answer importAnswer
		if err := results.Decode(&answer); err != nil {
			left = append(left, records[i:]...)
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the answer ended after %d of %d results", i, len(records))
			}
			return left, r.sender.lost(ctx, err)
		}
		idle.Reset(r.sender.idle)
		record.answer = answer
		switch {
		case answer.Status == 0 || answer.Key != "" && answer.Key != record.key:
			return records[i:], fmt.Errorf("%s is out of step: %d results on, it answered for key %.80q where line %d has %.80q",
				r.sender.target.Redacted(), i, answer.Key, record.line, record.key)
		case answer.transient():
			left = append(left, record)
		default:
			if err := r.tally.settle(record); err != nil {
				return nil, err
			}
		}
	}
	if err := results.Decode(new(importAnswer)); err == nil {
		return left, fmt.Errorf("%s is out of step: more results than records", r.sender.target.Redacted())
	}
	return left, nil
}

// do starts a request and returns as soon as the answer begins, which may be before all is sent; sent is called as the
// records leave.
func (s importSender) do(ctx context.Context, records []importRecord, sent func()) (*http.Response, error) {
	docs := make(net.Buffers, len(records))
	for i, record := range records {
		docs[i] = record.doc
	}
	body := func() (io.ReadCloser, error) {
		rest := slices.Clone(docs) // reading consumes it
		return io.NopCloser(&meteredReader{&rest, sent}), nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.GetBody = body // for a kept connection that turns out to be closed
	req.ContentLength = -1
	if req.Body, err = body(); err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", ndjsonType)
	req.Header.Set("Accept", ndjsonType)
	return s.client.Do(req)
}

// accept returns nil when the response is of the wanted media type, and else says what it is instead.
func (s importSender) accept(resp *http.Response, wanted string) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // no type is a foreign type, too
	if resp.StatusCode == http.StatusOK && kind == wanted {
		return nil
	}
	var problem struct{ Code, Detail, Title string }
	if kind == problemType {
		body, err := io.ReadAll(io.LimitReader(resp.Body, problemMaxBytes))
		if err == nil {
			err = json.Unmarshal(body, &problem)
		}
		if err != nil {
			return &transientError{cause: fmt.Errorf("%s: a broken error document: %w", s.target.Redacted(), err)}
		}
	}
	err := fmt.Errorf("%s answered %s", s.target.Redacted(), resp.Status)
	if problem.Code != "" {
		err = fmt.Errorf("%w, %s: %s", err, problem.Code, cmp.Or(problem.Detail, problem.Title))
	}
	if transientStatus(resp.StatusCode) {
		return &transientError{cause: err, after: retryAfter(resp.Header)}
	}
	if problem.Code == "" {
		return fmt.Errorf("%w (%s): not a gateway", err, cmp.Or(kind, "no content type"))
	}
	return err
}

// lost turns an error of the connection into a transient one and drops what net/http says twice.
func (s importSender) lost(ctx context.Context, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &kind) {
		return fmt.Errorf("%s: not a gateway's result: %w", s.target.Redacted(), err)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return &transientError{cause: fmt.Errorf("%s: %w", s.target.Redacted(), err)}
}

// retryAfter reads the header's number of seconds, at most importMaxRetryAfter; 0 when there is none.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(min(seconds, 3600))*time.Second, importMaxRetryAfter)
}

// meteredReader calls read at every read.
type meteredReader struct {
	r    io.Reader
	read func()
}

func (m *meteredReader) Read(p []byte) (int, error) {
	m.read()
	return m.r.Read(p)
}
