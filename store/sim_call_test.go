package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"
)

// simFate is what becomes of a call to a simulated database.
type simFate int

const (
	// fateDone: it took effect and was answered.
	fateDone simFate = iota
	// fateRefused: nothing happened and nothing will, and the caller knows.
	fateRefused
	// fateLost: it took effect, and the reply got lost.
	fateLost
	// fateLate: no reply, and it takes effect at some later moment, whoever is still waiting then.
	fateLate
	// fateNever: no reply, and it never takes effect.
	fateNever
	// fateDead: the gateway that called is dead. It never learns anything, nor does anything it does have an effect.
	fateDead
)

func (f simFate) String() string {
	return [...]string{"done", "refused", "reply lost", "lands later", "never lands", "dead"}[f]
}

// simCall is a call that waits until the controller lets it go.
type simCall struct {
	ctx     context.Context
	gateway *simGateway
	// label says what is asked, in the same words on each run of a seed: calls are sorted by it.
	label string
	// order tells calls apart that came later from those before, when all else is equal.
	order int
	// pass marks a turnstile: no database is asked, callers only go on one after the other.
	pass bool
	// write says that it may take effect.
	write bool
	// items is how many requests share it.
	items int
	// stalled: nobody answers before its deadline.
	stalled bool
	// settle carries out a fate and fills in the answer. It runs in the controller's goroutine, so it needs no lock.
	settle func(f simFate)
	// resume is closed when the call goes on; fate is set before.
	resume chan struct{}
	fate   simFate
}

// outcome is an error of a database, with the end of the caller's context if that was the cause.
func (c *simCall) outcome(is error) error {
	if err := c.ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", is, err)
	}
	return fmt.Errorf("%w: simulated", is)
}

// park waits until the controller lets the call go, and reports whether its gateway is still alive.
func (w *simWorld) park(c *simCall) bool {
	c.resume = make(chan struct{})
	w.mu.Lock()
	if c.gateway.dead {
		w.mu.Unlock()
		return false
	}
	w.arrivals++
	c.order = w.arrivals
	w.parked = append(w.parked, c)
	w.mu.Unlock()
	w.signal()
	<-c.resume
	return c.fate != fateDead
}

// signal ends the controller's wait for time to pass.
func (w *simWorld) signal() {
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

// turnstile lets the goroutines that an event set going at once go on one by one, in an order that the seed fixes.
func (w *simWorld) turnstile(ctx context.Context, g *simGateway, label string) {
	w.park(&simCall{ctx: ctx, gateway: g, label: label, pass: true})
}

// waiting returns the calls that wait, in canonical order.
func (w *simWorld) waiting() []*simCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.parked, func(a, b *simCall) int {
		endA, _ := a.ctx.Deadline()
		endB, _ := b.ctx.Deadline()
		return cmp.Or(cmp.Compare(a.label, b.label), endA.Compare(endB), cmp.Compare(a.order, b.order))
	})
	return slices.Clone(w.parked)
}

// release carries out a fate and lets the call go on. Time passes with each, so that no two goroutines ever wait for the
// same moment, which would wake them in an order that nobody controls.
func (w *simWorld) release(c *simCall, f simFate) {
	w.mu.Lock()
	w.parked = slices.DeleteFunc(w.parked, func(other *simCall) bool { return other == c })
	w.mu.Unlock()
	time.Sleep(time.Duration(1 + w.rng.IntN(1000)))
	if !c.pass {
		w.stats.calls++
		if c.items > 1 {
			w.stats.merged++
		}
		w.tracef("%s: %s", c.label, f)
		c.settle(f)
	}
	if c.fate = f; c.gateway.dead {
		c.fate = fateDead
	}
	close(c.resume)
}

// settleDown waits until nobody can go on without the controller, and meanwhile lets callers through turnstiles and ends
// calls that are past their deadline.
func (w *simWorld) settleDown() {
	for {
		synctest.Wait()
		w.collect()
		var next *simCall
		for _, c := range w.waiting() {
			if c.pass {
				next = c
				break
			}
			if next == nil && c.ctx.Err() != nil {
				next = c
			}
		}
		switch {
		case next == nil:
			return
		case next.pass:
			w.release(next, fateDone)
		default:
			w.release(next, w.fateAtDeadline(next))
		}
	}
}

// advance lets time pass, until something happens or a call's deadline has come.
func (w *simWorld) advance(d time.Duration) {
	now := time.Now()
	for _, c := range w.waiting() {
		if end, ok := c.ctx.Deadline(); ok && end.After(now) {
			d = min(d, end.Sub(now))
		}
	}
	select {
	case <-w.arrived: // an old signal
	default:
	}
	timer := time.NewTimer(d + time.Duration(1+w.rng.IntN(1000)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.arrived:
	}
	w.settleDown()
}
