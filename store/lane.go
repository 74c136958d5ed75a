package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// lane merges calls of one kind without ever making one wait for others: a call that finds the lane free goes at once,
// alone; while batches are on their way, arrivals queue, and the batch that ends is followed by one that takes them all,
// up to a limit. So at low load nothing is delayed, and the busier it gets, the more a round trip carries.
//
// A batch that is stuck, on a connection that died without a word, holds up nobody for long: once the last batch is out
// for longer than patience, an arrival starts another beside it, up to spare ones.
//
// Fairness: the queue is served in order of arrival, and a bulk request has a bounded number of items under way, so a
// single request is behind a few batches at most.
type lane[Q, A any] struct {
	// run asks all questions of a batch at once and answers each.
	run func(ctx context.Context, batch []Q) []answer[A]
	// limit bounds the questions in a batch, and weight (which may be nil) their sizes together, in bytes.
	limit  int
	weight func(Q) int
	// seen is told of each batch; nil when nobody wants to know.
	seen *laneMetrics
	// parallel bounds the batches on their way.
	parallel int
	// unsent and unknown are what a caller is told that gives up while its question is queued, or on its way.
	unsent, unknown error
	// woken is called by each caller whose answer came with a batch, before it goes on; nil but in tests, which have to let
	// such callers go on in an order of their choice.
	woken func(ctx context.Context)

	mu      sync.Mutex
	queue   []*call[Q, A]
	running int
	started time.Time // when the last batch went out
}

// answer is the outcome of one question.
type answer[A any] struct {
	value A
	err   error
}

// call is a question that waits for its answer.
type call[Q, A any] struct {
	question Q
	deadline time.Time
	queued   time.Time
	span     trace.Span // of the step that waits for the answer; nil when it is not traced
	answer   answer[A]
	done     chan struct{} // closed when answer is set
}

const (
	// batchBytes bounds the documents in one batch, so that a batch of large ones does not hold up the rest.
	batchBytes = 1 << 20
	// patience is far above what a healthy batch takes and well below a request's time.
	patience = 500 * time.Millisecond
	// spare bounds the batches beside those that seem stuck.
	spare = 3
)

// ask returns the answer to a question, or an error that matches unsent or unknown when ctx ends before. It is a step of the
// request.
func (l *lane[Q, A]) ask(ctx context.Context, question Q) (A, error) {
	if l.seen == nil {
		return l.wait(ctx, question, nil)
	}
	ctx, s := beginStep(ctx, l.seen.lane)
	value, err := l.wait(ctx, question, s.span)
	s.end(err)
	return value, err
}

// wait returns the answer to a question; span is that of the step, nil when it is not traced.
func (l *lane[Q, A]) wait(ctx context.Context, question Q, span trace.Span) (A, error) {
	l.mu.Lock()
	free := l.free()
	if free && len(l.queue) == 0 {
		l.begin()
		l.mu.Unlock()
		var spans []trace.Span
		if span != nil {
			spans = []trace.Span{span}
		}
		a := l.send(ctx, []Q{question}, spans)[0]
		l.next()
		return a.value, a.err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(defaultDeadline)
	}
	c := &call[Q, A]{question: question, deadline: deadline, queued: time.Now(), span: span, done: make(chan struct{})}
	l.queue = append(l.queue, c)
	if free {
		l.begin()
		go l.runQueued(l.take())
	}
	l.mu.Unlock()
	select {
	case <-c.done:
		if l.woken != nil {
			l.woken(ctx)
		}
		return c.answer.value, c.answer.err
	case <-ctx.Done():
		var none A
		if l.withdraw(c) {
			return none, fmt.Errorf("queued: %w: %w", l.unsent, ctx.Err())
		}
		return none, fmt.Errorf("under way: %w: %w", l.unknown, ctx.Err())
	}
}

// free reports whether a batch may go out. It needs mu.
func (l *lane[Q, A]) free() bool {
	return l.running < l.parallel || l.running < l.parallel+spare && time.Since(l.started) > patience
}

// begin counts a batch that goes out. It needs mu.
func (l *lane[Q, A]) begin() {
	l.running++
	l.started = time.Now()
}

// send runs a batch; spans are those of the steps that wait for it and are traced.
func (l *lane[Q, A]) send(ctx context.Context, batch []Q, spans []trace.Span) []answer[A] {
	if l.seen == nil {
		return l.run(ctx, batch)
	}
	ctx, span := beginBatch(ctx, l.seen.lane, len(batch), spans)
	began := time.Now()
	answers := l.run(ctx, batch)
	l.seen.size.Observe(float64(len(batch)))
	l.seen.duration.Observe(time.Since(began).Seconds())
	if span != nil {
		span.End() // each step says how its own question fared
	}
	return answers
}

// withdraw takes a call out of the queue; not ok when it is on its way already.
func (l *lane[Q, A]) withdraw(c *call[Q, A]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, c)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	return true
}

// next ends a batch and, when calls are queued, starts the one that takes them.
func (l *lane[Q, A]) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running--; len(l.queue) > 0 && l.running < l.parallel {
		l.begin()
		go l.runQueued(l.take())
	}
}

// runQueued runs batches for as long as calls are queued.
func (l *lane[Q, A]) runQueued(batch []*call[Q, A]) {
	for {
		questions := make([]Q, len(batch))
		var spans []trace.Span
		end := batch[0].deadline
		for i, c := range batch {
			questions[i] = c.question
			if c.span != nil {
				spans = append(spans, c.span)
			}
			if c.deadline.After(end) {
				end = c.deadline
			}
		}
		// The batch belongs to no caller: it has until the last of them gives up.
		ctx, cancel := context.WithDeadline(context.Background(), end)
		answers := l.send(ctx, questions, spans)
		cancel()
		for i, c := range batch {
			c.answer = answers[i]
			close(c.done)
		}
		l.mu.Lock()
		l.running--
		if len(l.queue) == 0 || l.running >= l.parallel {
			l.mu.Unlock()
			return
		}
		l.begin()
		batch = l.take()
		l.mu.Unlock()
	}
}

// take removes the next batch from the queue. It needs mu.
func (l *lane[Q, A]) take() []*call[Q, A] {
	n, bytes := 0, 0
	for n < len(l.queue) && n < l.limit {
		if l.weight != nil {
			if bytes += l.weight(l.queue[n].question); n > 0 && bytes > batchBytes {
				break
			}
		}
		n++
	}
	batch := slices.Clone(l.queue[:n])
	if l.seen != nil {
		for now, i := time.Now(), 0; i < n; i++ {
			l.seen.wait.Observe(now.Sub(batch[i].queued).Seconds())
		}
	}
	l.queue = slices.Delete(l.queue, 0, n)
	return batch
}

// answersOf pairs a batch that has no values with its errors.
func answersOf(errs []error) []answer[struct{}] {
	answers := make([]answer[struct{}], len(errs))
	for i, err := range errs {
		answers[i].err = err
	}
	return answers
}

// failed gives every question of a batch the same error.
func failed[A any](n int, err error) []answer[A] {
	answers := make([]answer[A], n)
	for i := range answers {
		answers[i].err = err
	}
	return answers
}
