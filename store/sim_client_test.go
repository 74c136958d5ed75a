package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// simKind is what an operation asks of the store.
type simKind string

const (
	simCreate simKind = "create"
	simPut    simKind = "put"
	simDelete simKind = "delete"
	simGet    simKind = "get"
)

// simClient runs operations one after the other.
type simClient struct {
	number  int
	gateway *simGateway
	// left is how many operations it has still to start, current the one under way.
	left    int
	current *simOperation
}

// simOperation is one request and what became of it.
type simOperation struct {
	number   int
	client   *simClient
	gateway  *simGateway
	kind     simKind
	key      string
	document string
	cond     Condition
	// expires is the expiry that a create or a put gives the record; zero for none.
	expires time.Time
	timeout time.Duration

	ctx    context.Context
	cancel context.CancelFunc
	began  time.Time
	// called and returned are moments of the world's clock; returned is 0 while the operation runs.
	called, returned int64
	// ended is when it returned, by the clock of the nodes.
	ended time.Time
	// killed: its gateway died, and nobody heard anything.
	killed bool
	// heard and took are what its goroutine heard and when; result is what counts.
	heard  simResult
	took   time.Duration
	result simResult
}

// simResult is what the store answered.
type simResult struct {
	record  Record
	created bool
	err     error
}

// String is for traces.
func (r simResult) String() string {
	if r.err != nil {
		return r.err.Error()
	}
	return fmt.Sprintf("ok %s %s created=%v", r.record.Tag, r.record.Document, r.created)
}

func (op *simOperation) String() string {
	text := fmt.Sprintf("operation %d of client %d on %s: %s %s %s%s", op.number, op.client.number, op.gateway.name, op.kind, op.key, op.document, describeCondition(op.cond))
	if !op.expires.IsZero() {
		text += " until " + op.expires.Sub(op.client.gateway.world.birth).String()
	}
	return text
}

func describeCondition(c Condition) string {
	switch {
	case c.Exists:
		return " if it exists"
	case len(c.Tags) > 0:
		return fmt.Sprintf(" if at %v", c.Tags)
	}
	return ""
}

// running lists the operations under way.
func (w *simWorld) running() []*simOperation {
	var all []*simOperation
	for _, c := range w.clients {
		if c.current != nil {
			all = append(all, c.current)
		}
	}
	return all
}

// startNext lets a client start an operation of the seed's choice.
func (w *simWorld) startNext(c *simClient) {
	op := &simOperation{client: c, key: w.keys[w.rng.IntN(len(w.keys))]}
	switch n := w.rng.IntN(10); {
	case n < 3:
		op.kind = simCreate
	case n < 5:
		op.kind = simPut
	case n < 8:
		op.kind = simDelete
	default:
		op.kind = simGet
	}
	if op.kind == simPut || op.kind == simDelete {
		op.cond = w.condition(op.key)
	}
	if w.mortal && (op.kind == simCreate || op.kind == simPut) && w.rng.IntN(2) == 0 {
		lives := []time.Duration{takeOverPoll, takeOverGrace, time.Second, 5 * time.Second}
		op.expires = time.Now().Add(lives[w.rng.IntN(len(lives))])
	}
	op.timeout = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second}[w.rng.IntN(3)]
	op.timeout += time.Duration(w.rng.IntN(50_000_000))
	c.left--
	w.start(op)
}

// condition demands nothing, mostly, or one of the versions that clients have seen.
func (w *simWorld) condition(key string) Condition {
	var seen []Tag
	for _, op := range w.operations {
		if op.key == key && op.returned > 0 && op.result.err == nil && op.kind != simDelete {
			seen = append(seen, op.result.record.Tag)
		}
	}
	switch n := w.rng.IntN(10); {
	case n < 1:
		return Condition{Exists: true}
	case n < 5 && len(seen) > 0:
		return Condition{Tags: []Tag{seen[len(seen)-1]}}
	case n < 6 && len(seen) > 0:
		return Condition{Tags: []Tag{seen[w.rng.IntN(len(seen))], {ID: 1, Version: 1}}}
	}
	return Condition{}
}

// start sends an operation to the gateway of its client.
func (w *simWorld) start(op *simOperation) {
	time.Sleep(time.Duration(1 + w.rng.IntN(1000))) // see release
	op.number, op.gateway, op.began = len(w.operations)+1, op.client.gateway, time.Now()
	if op.kind == simCreate || op.kind == simPut {
		op.document = fmt.Sprintf("%s#%d", op.key, op.number)
	}
	op.ctx, op.cancel = context.WithTimeout(context.WithValue(context.Background(), operationKey{}, op), op.timeout)
	w.clock++
	op.called = w.clock
	w.operations = append(w.operations, op)
	op.client.current = op
	if !w.calm {
		w.stats.operations++
	}
	w.tracef("%s, within %s", op, op.timeout)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				op.heard = simResult{err: fmt.Errorf("panic: %v", p)}
			}
			op.took = time.Since(op.began)
			w.mu.Lock()
			w.finished = append(w.finished, op)
			w.mu.Unlock()
			w.signal()
		}()
		op.heard = w.perform(op)
	}()
}

// perform calls the store, or what a mutant has in its place.
func (w *simWorld) perform(op *simOperation) (r simResult) {
	s, content := op.gateway.store, Content{Document: []byte(op.document), ExpiresAt: op.expires}
	if w.grouped {
		content.Group = op.key
	}
	switch op.kind {
	case simCreate:
		r.record, r.err = s.Create(op.ctx, simCollection, op.key, content)
		r.created = r.err == nil
	case simPut:
		r.record, r.created, r.err = s.Put(op.ctx, simCollection, op.key, content, op.cond)
	case simDelete:
		switch {
		case w.mutant == mutantIndexFirst && !op.cond.demanded():
			r.err = deleteIndexFirst(op.ctx, s, op.key)
		case w.mutant == mutantClaimed:
			r.err = deleteClaimed(op.ctx, s, op.key, op.cond)
		default:
			r.err = s.Delete(op.ctx, simCollection, op.key, op.cond)
		}
	case simGet:
		if w.mutant == mutantUnconfirmed {
			r.record, r.err = getUnconfirmed(op.ctx, s, op.key)
		} else {
			r.record, r.err = s.Get(op.ctx, simCollection, op.key)
		}
	}
	return r
}

// simOverrun is how far beyond its deadline an operation may end: the time that the controller itself lets pass.
const simOverrun = time.Millisecond

// collect takes note of operations that have ended.
func (w *simWorld) collect() {
	w.mu.Lock()
	finished := w.finished
	w.finished = nil
	w.mu.Unlock()
	for len(finished) > 0 {
		first := 0 // which of several goroutines came first is not up to the seed
		for i, op := range finished {
			if op.number < finished[first].number {
				first = i
			}
		}
		op := finished[first]
		finished[first] = finished[len(finished)-1]
		finished = finished[:len(finished)-1]
		if op.returned > 0 {
			continue // its gateway was killed
		}
		if op.took > op.timeout+simOverrun {
			w.violate("I8: %s took %s of %s", op, op.took, op.timeout)
		}
		w.end(op, op.heard)
	}
}

// end notes how an operation ended and lets its client go on.
func (w *simWorld) end(op *simOperation, r simResult) {
	op.cancel()
	op.ended = time.Now()
	w.clock++
	op.returned, op.result, op.client.current = w.clock, r, nil
	w.tracef("operation %d ends: %s", op.number, r)
	switch outcomeOf(r.err) {
	case outcomeUnknown:
		w.stats.unknown++
	case outcomeRefused:
		w.stats.refused++
	}
}

// simOutcome is what kind of answer an operation got.
type simOutcome string

const (
	outcomeOK           simOutcome = "ok"
	outcomeNotFound     simOutcome = "not found"
	outcomeConflict     simOutcome = "conflict"
	outcomePrecondition simOutcome = "precondition"
	// outcomeRefused: the request changed nothing, and may be repeated.
	outcomeRefused simOutcome = "refused"
	outcomeUnknown simOutcome = "unknown"
	// outcomeNone: the error matches none of those that the store may answer here, or several.
	outcomeNone simOutcome = "none"
)

// outcomeOf sorts an answer; every error of a store is to match exactly one of its sentinels.
func outcomeOf(err error) simOutcome {
	if err == nil {
		return outcomeOK
	}
	outcome := outcomeNone
	for _, known := range []struct {
		is      error
		outcome simOutcome
	}{
		{ErrNotFound, outcomeNotFound}, {ErrConflict, outcomeConflict}, {ErrPrecondition, outcomePrecondition},
		{ErrBusy, outcomeRefused}, {ErrUnavailable, outcomeRefused}, {ErrUnknown, outcomeUnknown},
	} {
		if errors.Is(err, known.is) {
			if outcome != outcomeNone {
				return outcomeNone
			}
			outcome = known.outcome
		}
	}
	return outcome
}
