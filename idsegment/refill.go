package idsegment

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// refillPause is how long a failed lease keeps try from starting another: an issuer that is down costs a lease now and
// then, and the sequences of the others are used meanwhile.
const refillPause = time.Second

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

// prefetchBehindMark starts a refill if take has carried the current segment past its mark. It needs mu.
func (s *Sequence) prefetchBehindMark() {
	if b := s.current.Load(); b.used.Load() > b.mark.Load() && b.mark.Swap(never) != never && s.next == nil {
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
	switch {
	case err != nil && ctx.Err() != nil:
		// Not the cause: a caller would take the deadline of the lease for its own.
		err = fmt.Errorf("lease %s: %w: no answer within %v", s.name, ErrUnavailable, s.opts.LeaseTimeout)
	case errors.Is(err, ErrMismatch):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
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

// check refuses a segment that may hold an ID that was issued before or is not the issuer's to give. It needs mu.
func (s *Sequence) check(segment Segment) error {
	last := segment.End - s.bounds.Stride
	switch {
	case segment.Start < s.floor:
		return fmt.Errorf("lease %s: %w: the segment [%d, %d) starts below %d, the lowest ID not seen yet",
			s.name, ErrRewound, segment.Start, segment.End, s.floor)
	case segment.Start >= segment.End || !s.bounds.contains(segment.Start) || !s.bounds.contains(last):
		return fmt.Errorf("lease %s: %w: the segment [%d, %d) is empty or outside the issuer's bounds %v",
			s.name, ErrRewound, segment.Start, segment.End, s.bounds)
	}
	return nil
}

// settle takes in how a lease ended. It needs mu.
func (s *Sequence) settle(segment Segment, err error) {
	s.failure, s.failed = err, s.clock()
	s.rest.Store(0)
	switch {
	case err == nil:
		s.floor = segment.End
		s.step.leased(s.opts.Now())
		s.leased.Store(min(segment.End, s.bounds.Hi))
		s.warned = false
		if !errors.Is(s.stopped, ErrRewound) { // after Close it is kept too, to be handed back
			s.next = newBuffer(segment, s.bounds.Stride, segment.End >= s.bounds.Hi)
		}
	case errors.Is(err, ErrRewound):
		if !errors.Is(s.stopped, ErrRewound) {
			s.alarm(err)
		}
	case errors.Is(err, ErrExhausted):
		s.leased.Store(s.bounds.Hi)
		s.pause()
	default:
		s.pause()
		s.prefetchAgain()
		if s.wanted == 0 && s.stopped == nil && !s.warned {
			s.warned = true
			s.log.Warn("prefetch of a segment failed", "error", err)
		}
	}
}

// clock is the time since the sequence was made: unlike the time of day, nobody sets it back.
func (s *Sequence) clock() time.Duration { return s.opts.Now().Sub(s.born) }

// pause keeps try from starting a lease for a while after one has failed. It needs mu.
func (s *Sequence) pause() {
	if s.stopped == nil {
		s.rest.Store(int64(s.failed + refillPause))
	}
}

// resting reports whether try is not to start a lease: one runs that it started, or the last one has just failed.
func (s *Sequence) resting() bool {
	rest := s.rest.Load()
	return rest == never || rest != 0 && int64(s.clock()) < rest
}

// failing returns how the last lease failed, for as long as it takes to pause and to fail again, and another pause in which
// a caller begins with that; nil when it came in, or when its failure is too long ago to say anything about now.
func (s *Sequence) failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil && s.clock() < s.failed+refillPause+s.opts.LeaseTimeout+refillPause {
		return s.failure
	}
	return nil
}

// prefetchAgain lets the next try start when half of what is left is used, so that a short outage goes unnoticed. It
// needs mu.
func (s *Sequence) prefetchAgain() {
	b := s.current.Load()
	if left := b.left(); left > 0 {
		b.mark.Store(b.length - left/2)
	}
}
