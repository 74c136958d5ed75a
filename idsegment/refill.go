package idsegment

import (
	"context"
	"errors"
	"fmt"
)

// refill is one lease on its way, shared by all callers that wait. err is set before done is closed.
type refill struct {
	done chan struct{}
	err  error
}

// prefetch starts a refill in the background because b has reached its mark. Of many callers that see it, one does.
func (s *Sequence) prefetch(b *buffer) {
	if b.mark.Swap(never) == never {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Meanwhile b may have been used up, and replaced by a buffer with a mark of its own.
	if s.stopped == nil && s.next == nil && s.current.Load() == b {
		s.refill()
	}
}

// refill returns the running refill, or starts one that depends on no caller's deadline. It needs mu.
func (s *Sequence) refill() *refill {
	if s.running == nil {
		s.running = &refill{done: make(chan struct{})}
		go s.lease(s.running, max(s.step.next(s.opts.Now()), s.wanted))
	}
	return s.running
}

// lease runs a refill.
func (s *Sequence) lease(r *refill, count int64) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.LeaseTimeout)
	defer cancel()
	segment, err := s.issuer.Lease(ctx, s.name, count)
	if err != nil && ctx.Err() != nil {
		// Not the cause: a caller would take the deadline of the lease for its own.
		err = fmt.Errorf("lease %s: %w: no answer within %v", s.name, ErrUnavailable, s.opts.LeaseTimeout)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.check(segment)
	}
	s.settle(segment, err)
	r.err = err
	s.running = nil
	close(r.done)
}

// check refuses a segment that may hold an ID that was issued before or belongs to another range. It needs mu.
func (s *Sequence) check(segment Segment) error {
	switch {
	case segment.Start < s.floor:
		return fmt.Errorf("lease %s: %w: the segment [%d, %d) starts below %d, the lowest ID not seen yet",
			s.name, ErrRewound, segment.Start, segment.End, s.floor)
	case segment.Start >= segment.End || segment.End > s.bounds.Hi:
		return fmt.Errorf("lease %s: %w: the segment [%d, %d) is empty or outside the range [%d, %d)",
			s.name, ErrRewound, segment.Start, segment.End, s.bounds.Lo, s.bounds.Hi)
	}
	return nil
}

// settle takes in how a lease ended. It needs mu.
func (s *Sequence) settle(segment Segment, err error) {
	switch {
	case err == nil:
		s.floor = segment.End
		s.step.leased(s.opts.Now())
		last := segment.End == s.bounds.Hi
		s.leased.Store(segment.End)
		if !errors.Is(s.stopped, ErrRewound) { // after Close it is kept too, to be handed back
			s.next = newBuffer(segment, last)
		}
	case errors.Is(err, ErrRewound):
		if !errors.Is(s.stopped, ErrRewound) {
			s.alarm(err)
		}
	case errors.Is(err, ErrExhausted):
		s.leased.Store(s.bounds.Hi)
	default:
		s.prefetchAgain()
		if s.wanted == 0 && s.stopped == nil {
			s.log.Warn("prefetch of a segment failed", "error", err)
		}
	}
}

// prefetchAgain lets the next try start when half of what is left is used, so that a short outage goes unnoticed. It
// needs mu.
func (s *Sequence) prefetchAgain() {
	b := s.current.Load()
	if left := b.left(); left > 0 {
		b.mark.Store(b.length - left/2)
	}
}
