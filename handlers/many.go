package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
	"golang.org/x/sync/semaphore"

	"keyrange/store"
)

// parameterKey is the query parameter that names a record to read.
const parameterKey = "key"

// collectionParameters are those of GET of a collection. parameterKey goes with no other.
var collectionParameters = []string{parameterKey, "limit", "cursor", "order", "fields", parameterGroup, parameterCount, parameterDeletion}

// maxBodyKeys is the largest number of keys of one op=get.
const maxBodyKeys = 10_000

// firstGuessBytes is what a record is taken to weigh as long as none was read.
const firstGuessBytes = bulkWindowBytes / 16

// getCollection answers GET and HEAD of a collection: the records under the keys in the query, or else a list.
func (s *Server) getCollection(ctx context.Context, x *exchange) error {
	keys := x.query[parameterKey]
	switch {
	case x.query.Has(parameterDeletion):
		return s.deletion(ctx, x)
	case len(keys) == 0:
		return s.list(ctx, x)
	case len(x.query) > 1:
		return refuse(errParameter, "key goes with no other parameter.")
	case len(keys) > maxQueryKeys:
		return refuse(errParameter, "key is given %d times, at most %d are allowed: send more keys with POST and op=get.", len(keys), maxQueryKeys)
	}
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return err
		}
	}
	return s.many(x, keys)
}

// postKeys answers op=get: the records under the keys in the body. A body with a bad key is refused as a whole.
func (s *Server) postKeys(x *exchange, media string) error {
	most := limit{x.limits.MaxBulkBytes, errBulkTooLarge, "a list of keys (server.max_bulk_bytes)"}
	var items iter.Seq2[[]byte, error]
	if media == mediaNDJSON {
		body, _, err := x.readBody(most, most)
		if err != nil {
			return err
		}
		items = lines(bytes.NewReader(body), most)
	} else {
		body, err := x.readArray(most, opGet)
		if err != nil {
			return err
		}
		items = elements(body)
	}
	var keys []string
	for raw, err := range items {
		if err != nil {
			return err
		}
		if len(keys) == maxBodyKeys {
			return refuse(errBulkTooLarge, "op=get takes at most %d keys", maxBodyKeys)
		}
		key, err := keyIn(raw)
		if err == nil {
			err = s.permitKey(x, key)
		}
		if err != nil {
			return itemFault(len(keys), err)
		}
		keys = append(keys, key)
	}
	return s.many(x, keys)
}

// itemFault says which item an error is about; position counts from 0.
func itemFault(position int, err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return err
	}
	return refuse(f.kind, "item %d: %s", position+1, f.detail)
}

// lookup is the read of one record of many. All but done belong to its goroutine until done is closed.
type lookup struct {
	key string
	// weight is what the record is taken to need of the window.
	weight int64
	done   chan struct{}
	rec    store.Record
	err    error
}

// lookups are the reads for one answer: as many at once as the window lets in, answered in order.
type lookups struct {
	server *Server
	x      *exchange
	window *semaphore.Weighted
	// queue has the reads in order; it is closed after the last.
	queue chan *lookup
	// largest is the size of the largest record so far in bytes, which the next ones are taken to have.
	largest atomic.Int64
}

// many answers with the records under the keys, in the order of the keys, and then those keys that have none. A key that
// comes again is passed over. Each read has the request timeout for itself. When one fails the whole answer fails: with a
// problem document, or when part of it is sent already, by a broken connection.
func (s *Server) many(x *exchange, keys []string) (err error) {
	if err := x.accepts(mediaJSON); err != nil {
		return err
	}
	x.Response().Header()[echo.HeaderCacheControl] = []string{"no-store"}
	client := x.ctx
	ctx, cancel := context.WithCancel(client)
	l := &lookups{server: s, x: x, window: semaphore.NewWeighted(bulkWindowBytes), queue: make(chan *lookup, bulkWindowItems)}
	l.largest.Store(firstGuessBytes)
	go l.start(ctx, keys)
	defer func() {
		cancel()
		for one := range l.queue {
			<-one.done
		}
		x.setWriteDeadline(time.Time{})
	}()
	if err = l.answer(); err == nil {
		err = settle(client, client, true, client.Err())
	}
	if err != nil && x.Response().Committed {
		err = fmt.Errorf("%w: %w", errCutOff, err)
	}
	return err
}

// start begins the reads, until ctx ends.
func (l *lookups) start(ctx context.Context, keys []string) {
	defer close(l.queue)
	seen := make(map[string]bool, len(keys))
	first := true
	for _, key := range keys {
		if seen[key] {
			continue
		}
		seen[key] = true
		one := &lookup{key: key, weight: l.largest.Load(), done: make(chan struct{})}
		if l.window.Acquire(ctx, one.weight) != nil {
			return
		}
		go l.read(ctx, one, first)
		first = false
		// Never blocks: the queue holds as many as the window lets in.
		l.queue <- one
	}
}

// read reads one record.
func (l *lookups) read(client context.Context, one *lookup, first bool) {
	defer close(one.done)
	defer func() {
		if cause := recover(); cause != nil {
			one.err = panicError(cause)
		}
	}()
	ctx, cancel := context.WithTimeout(client, l.x.limits.RequestTimeout)
	defer cancel()
	one.rec, one.err = l.server.records.Get(ctx, l.x.collection.Name, one.key)
	one.err = settle(client, ctx, true, one.err)
	size := min(max(int64(len(one.rec.Document)), bulkWindowBytes/bulkWindowItems), bulkWindowBytes)
	if first {
		l.largest.CompareAndSwap(firstGuessBytes, size)
	}
	for seen := l.largest.Load(); size > seen && !l.largest.CompareAndSwap(seen, size); seen = l.largest.Load() {
	}
}

// answer writes the answer: at once when it is small, otherwise in chunks.
func (l *lookups) answer() error {
	out, missing := []byte(`{"items":[`), []byte(`],"missing":[`)
	items, absent := 0, 0
	for one := range l.queue {
		<-one.done
		switch {
		case one.err == nil:
			if items++; items > 1 {
				out = append(out, ',')
			}
			out = append(out, one.rec.Document...)
		case errors.Is(one.err, store.ErrNotFound):
			if absent++; absent > 1 {
				missing = append(missing, ',')
			}
			missing, _ = jsontext.AppendQuote(missing, one.key)
		default:
			return one.err
		}
		l.x.items++
		l.window.Release(one.weight)
		if len(out) >= bulkChunkBytes {
			if err := l.server.sendChunk(l.x, mediaJSON, out); err != nil {
				return err
			}
			out = out[:0]
		}
	}
	out = append(append(out, missing...), "]}\n"...)
	if l.x.Response().Committed {
		return l.server.sendChunk(l.x, mediaJSON, out)
	}
	return l.x.sendJSON(http.StatusOK, out)
}
