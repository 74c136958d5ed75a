package handlers

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
	"golang.org/x/sync/semaphore"

	"keyrange/store"
)

// Bounds of one bulk request. An item counts from its arrival until its result is written, so they bound the memory of a
// bulk, and so that the store has enough items at once to merge.
const (
	// bulkWindowItems is the largest number of items under way.
	bulkWindowItems = 128
	// bulkWindowBytes bounds their documents together; one larger item goes alone.
	bulkWindowBytes = 8 << 20
	// bulkChunkBytes is how much of the answer is gathered before it is sent while results keep coming.
	bulkChunkBytes = 32 << 10
)

// frame is how a bulk answer is written: open, then the results with between before all but the first and after behind
// each, then end.
type frame struct {
	contentType, open, between, after, end string
	// live sends every result as soon as no other is ready; otherwise only whole chunks are sent.
	live bool
}

// operation is what a bulk request does with each of its items.
type operation struct {
	// scan reads an item from its text. The key that it finds makes later items with the same key wait.
	scan func(raw []byte, it *item) error
	// run does the work and returns what the result of the item says. ctx ends at the item's own timeout.
	run func(ctx context.Context, it *item) (rec store.Record, status int, err error)
}

// item is one record of a bulk request. All but done belong to the goroutine that works on it until done is closed, and
// to the writer of the results afterwards.
type item struct {
	doc document
	// cond is what the item demands of the record that is there.
	cond store.Condition
	// position counts the items from 0.
	position int
	// weight is what the item takes of the window.
	weight int64
	// earlier is the item before it with the same key, nil when that is no longer under way.
	earlier *item
	done    chan struct{}

	// rec is the record written; of one that was in the way, it has only key and tag.
	rec store.Record
	// status is that of success.
	status int
	err    error
}

// bulk is one bulk request under way: the request's goroutine reads items and starts a worker for each, another one
// writes their results in order.
type bulk struct {
	server    *Server
	x         *exchange
	operation operation
	frame     frame
	window    *semaphore.Weighted
	// queue has the items whose results are to be written, in order.
	queue chan *item

	mu sync.Mutex
	// underWay finds the last item of each key that is not done.
	underWay map[string]*item
}

// runBulk does an operation with each item of a bulk request and answers with a result for each. source gives their texts, or the
// error of one that has none; an error that matches errClientGone ends it and gets no result. Its context ends when
// results can no longer be written. Every item has the request timeout for itself.
func (s *Server) runBulk(x *exchange, op operation, f frame, source func(stop context.Context) iter.Seq2[[]byte, error]) (err error) {
	b := &bulk{
		server: s, x: x, operation: op, frame: f,
		window:   semaphore.NewWeighted(bulkWindowBytes),
		queue:    make(chan *item, bulkWindowItems),
		underWay: make(map[string]*item),
	}
	// The server ends the context of a request when reading its body fails, even by a deadline; the items read by then
	// still get their results.
	client, done := store.Together(context.WithoutCancel(x.ctx))
	defer done() // by then every item has its result
	stop, cancel := context.WithCancel(client)
	defer cancel()
	written := make(chan error, 1)
	go func() { written <- b.writeResults(cancel) }()
	defer func() {
		// Also when reading panicked, the writer must be through before the response is given up.
		close(b.queue)
		err = errors.Join(err, <-written)
		x.setWriteDeadline(time.Time{})
	}()
	return b.readItems(client, stop, source(stop))
}

// readItems starts the items of the source under client, each as soon as the window has room for it, until stop ends.
func (b *bulk) readItems(client, stop context.Context, source iter.Seq2[[]byte, error]) error {
	position := -1
	for raw, err := range source {
		if errors.Is(err, errClientGone) {
			return err
		}
		position++
		// The least weight makes the bytes of the window bound the number of items as well.
		it := &item{
			position: position,
			weight:   min(max(int64(len(raw)), bulkWindowBytes/bulkWindowItems), bulkWindowBytes),
			done:     make(chan struct{}), err: err,
		}
		if b.window.Acquire(stop, it.weight) != nil {
			return nil
		}
		if it.err == nil {
			it.err = b.operation.scan(raw, it)
		}
		if it.err != nil {
			close(it.done)
		} else {
			it.rec.Key = it.doc.key
			b.enter(it)
			go b.work(client, it)
		}
		// Never blocks: the queue holds as many as the window lets in.
		b.queue <- it
	}
	return nil
}

// enter makes an item wait for an earlier one with its key, so that they are done in their order.
func (b *bulk) enter(it *item) {
	if !it.doc.hasKey {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	it.earlier = b.underWay[it.doc.key]
	b.underWay[it.doc.key] = it
}

// leave undoes enter when an item is done.
func (b *bulk) leave(it *item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.underWay[it.doc.key] == it {
		delete(b.underWay, it.doc.key)
	}
}

// work does the operation with one item.
func (b *bulk) work(client context.Context, it *item) {
	defer close(it.done)
	defer b.leave(it)
	defer func() {
		if cause := recover(); cause != nil {
			it.err = panicError(cause)
		}
	}()
	if it.earlier != nil {
		<-it.earlier.done
		it.earlier = nil
	}
	ctx, cancel := context.WithTimeout(client, b.x.limits.RequestTimeout)
	defer cancel()
	var rec store.Record
	var status int
	var err error
	if it.doc.hasKey {
		err = b.server.permitKey(b.x, it.doc.key) // a made key is looked at when it is made
	}
	if err == nil {
		rec, status, err = b.operation.run(ctx, it)
	}
	it.err = settle(client, ctx, false, err)
	var conflict *store.ConflictError
	switch {
	case err == nil:
		it.rec, it.status = rec, status
	case errors.As(err, &conflict):
		it.rec.Tag = conflict.Existing
	}
	it.doc.text, it.rec.Document = nil, nil
}

// writeResults writes the answer until the queue is closed. When the client no longer takes it, broken is called and the
// rest is only waited for. It returns that error, if any, and the first failure of an item that is the gateway's own.
func (b *bulk) writeResults(broken func()) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			broken()
			err = errors.Join(err, panicError(cause))
		}
	}()
	w := &resultWriter{bulk: b, broken: broken, buffer: []byte(b.frame.open)}
	var failure error
	for it := w.next(); it != nil; it = w.next() {
		if b.x.items > 0 {
			w.buffer = append(w.buffer, b.frame.between...)
		}
		b.x.items++
		status := w.result(it)
		if it.err != nil {
			b.x.failed++
		}
		if status >= http.StatusInternalServerError && failure == nil {
			failure = it.err
		}
		b.window.Release(it.weight)
		if len(w.buffer) >= bulkChunkBytes {
			w.send()
		}
	}
	w.buffer = append(w.buffer, b.frame.end...)
	w.send()
	return errors.Join(w.err, failure)
}

// resultWriter gathers the results of a bulk request and sends them.
type resultWriter struct {
	*bulk
	buffer []byte
	// err is the first error of sending, upon which broken was called; nothing is sent after it.
	err    error
	broken func()
}

// next is the next item in order, done; nil after the last. When it has to wait, a live answer is first sent as far as
// it is.
func (w *resultWriter) next() *item {
	var it *item
	select {
	case it = <-w.queue:
	default:
		w.sendLive()
		it = <-w.queue
	}
	if it == nil {
		return nil
	}
	select {
	case <-it.done:
	default:
		w.sendLive()
		<-it.done
	}
	return it
}

// sendLive sends the results gathered, if the answer is a live one and there are any.
func (w *resultWriter) sendLive() {
	if w.frame.live && len(w.buffer) > 0 {
		w.send()
	}
}

// send sends what is gathered; the first time the header goes before it.
func (w *resultWriter) send() {
	if w.err == nil {
		if w.err = w.server.sendChunk(w.x, w.frame.contentType, w.buffer); w.err != nil {
			w.broken()
			// The reader may be waiting for a client that only sends.
			w.x.setReadDeadline(time.Unix(1, 0))
		}
	}
	w.buffer = w.buffer[:0]
}

// sendChunk sends a part of an answer whose length is not known; the first time the header goes before it. Waiting for
// the client is bounded. An error matches errClientGone.
func (s *Server) sendChunk(x *exchange, contentType string, chunk []byte) error {
	response := x.Response()
	response.Header()[echo.HeaderContentType] = []string{contentType}
	x.setWriteDeadline(time.Now().Add(s.streamIdle))
	_, err := response.Write(chunk)
	flushErr := http.NewResponseController(response.Writer).Flush()
	if err = errors.Join(err, flushErr); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return because(errClientGone, err)
	}
	return nil
}

// result appends the result of one item and returns its status.
func (w *resultWriter) result(it *item) int {
	line, detail := &status{status: it.status}, ""
	if it.err != nil {
		line, detail = statusOf(it.err)
	}
	out := w.buffer
	out = append(out, `{"status":`...)
	out = strconv.AppendInt(out, int64(line.status), 10)
	if it.rec.Key != "" {
		out = append(out, `,"key":`...)
		out, _ = jsontext.AppendQuote(out, it.rec.Key)
	}
	if it.rec.Tag != (store.Tag{}) {
		out = append(out, `,"etag":`...)
		out, _ = jsontext.AppendQuote(out, formatETag(it.rec.Tag))
	}
	if it.err != nil {
		out = append(out, `,"error":{"code":`...)
		out, _ = jsontext.AppendQuote(out, line.code)
		out = append(out, `,"detail":`...)
		out, _ = jsontext.AppendQuote(out, detail)
		out = append(out, '}')
	}
	w.buffer = append(append(out, '}'), w.frame.after...)
	return line.status
}
