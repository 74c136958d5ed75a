package idsegment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Options tune a sequence. Zero values take the defaults.
type Options struct {
	// MinStep and MaxStep bound how many IDs are leased at once; defaults 100 and 10,000. In between, the step follows the
	// rate of use. It never passes a thousandth of the bounds, nor falls below 1; only for callers that wait is more leased.
	MinStep, MaxStep int64
	// LeaseTimeout bounds one lease, whatever the deadlines of the callers that wait for it; default 2 s.
	LeaseTimeout time.Duration
	// Now is the clock that segments, and the pauses after failed leases, are timed by; default time.Now. No ID depends on
	// it.
	Now func() time.Time
	// Logger takes the alarms (level error) and failed prefetches that no caller heard of (warn); nil discards them.
	Logger *slog.Logger
}

const (
	defaultMinStep      = 100
	defaultMaxStep      = 10_000
	defaultLeaseTimeout = 2 * time.Second
)

func (o Options) withDefaults() Options {
	if o.MinStep <= 0 {
		o.MinStep = defaultMinStep
	}
	if o.MaxStep <= 0 {
		o.MaxStep = defaultMaxStep
	}
	if o.LeaseTimeout <= 0 {
		o.LeaseTimeout = defaultLeaseTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Sequence hands out the IDs that one issuer gives in one range to this process, from two segments: one in use, the other
// fetched before that one is used up. All methods are safe for concurrent use.
type Sequence struct {
	// current and reusable (the length of reuse) are all that the fast path of Next reads. They change under mu.
	current  atomic.Pointer[buffer]
	reusable atomic.Int64
	leased   atomic.Int64
	// rest is the time by clock until which try starts no lease: never while one runs, 0 when it may. It changes under mu.
	rest atomic.Int64
	// rewound says that stopped matches ErrRewound.
	rewound atomic.Bool

	issuer Leaser
	name   Name
	bounds Bounds // with a stride from 1
	opts   Options
	log    *slog.Logger
	born   time.Time

	mu      sync.Mutex
	next    *buffer // follows current; nil while there is none
	running *refill // nil while none runs; never set while next is
	step    step
	floor   int64 // no segment may start below
	reuse   []int64
	wanted  int64         // IDs that waiting callers still miss
	failure error         // of the last lease, nil when it came in
	failed  time.Duration // by clock, when that was
	warned  bool          // a failure was logged, and no lease has come in since
	stopped error         // matches ErrClosed or ErrRewound once nothing may be issued any more
	stop    chan struct{} // closed with stopped

	closing  sync.Once
	closeErr error
}

// NewSequence makes a sequence of the range name with the IDs in bounds, which are the issuer's. A segment that starts below
// floor, the highest of them that is known to be issued plus 1, is refused; what other issuers gave in the range does not
// count. Nothing is leased before the first ID is asked for. The caller closes it, unless it never asks for one.
func NewSequence(issuer Leaser, name Name, bounds Bounds, floor int64, opts Options) *Sequence {
	opts = opts.withDefaults()
	bounds.Stride = bounds.stride()
	s := &Sequence{
		issuer: issuer, name: name, bounds: bounds, opts: opts,
		log:   opts.Logger.With("collection", name.Collection, "range", name.Range),
		born:  opts.Now(),
		step:  newStep(bounds, opts),
		floor: bounds.ceil(floor),
		stop:  make(chan struct{}),
	}
	s.current.Store(&buffer{})
	s.leased.Store(min(s.floor, bounds.Hi))
	return s
}

// Next issues an ID to the caller, who is the only one ever to get it. While a segment is at hand it returns at once and
// does not look at ctx; otherwise it waits for a lease until ctx ends. Errors match ErrExhausted, ErrUnavailable (with
// the error of ctx if that ended, with ErrMismatch if the database is another issuer), ErrRewound or ErrClosed.
func (s *Sequence) Next(ctx context.Context) (int64, error) {
	if s.reusable.Load() == 0 {
		b := s.current.Load()
		if offset := b.used.Add(1) - 1; offset < b.length {
			if offset >= b.mark.Load() {
				s.prefetch(b)
			}
			return b.id(offset), nil
		}
	}
	var id [1]int64
	_, err := s.fill(ctx, id[:])
	return id[0], err
}

// NextN issues n IDs, not always consecutive, and leases what is missing in one piece. With an error it returns those
// that it got before, which the caller may use or give to Reuse.
func (s *Sequence) NextN(ctx context.Context, n int) ([]int64, error) {
	ids := make([]int64, n)
	got, err := s.fill(ctx, ids)
	return ids[:got], err
}

// fill issues IDs into ids, waiting for refills as long as some are missing, and returns how many it issued.
func (s *Sequence) fill(ctx context.Context, ids []int64) (got int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Counted until the caller has its IDs: whoever starts the next refill leases enough for all who wait.
	s.wanted += int64(len(ids))
	defer func() { s.wanted -= int64(len(ids) - got) }()
	var waited *refill
	for {
		if s.stopped != nil {
			return 0, s.stopped // the IDs got so far are lost: after a rewind they are not to be trusted
		}
		taken := s.take(ids[got:])
		got += taken
		s.wanted -= int64(taken)
		s.prefetchBehindMark()
		if got == len(ids) {
			return got, nil
		}
		if waited != nil && waited.err != nil {
			return got, waited.err
		}
		waited = s.refill()
		if err := s.wait(ctx, waited); err != nil {
			return got, err
		}
	}
}

// wait gives mu up until the refill has ended, the sequence has stopped, or ctx ends, which is an error. It needs mu.
func (s *Sequence) wait(ctx context.Context, r *refill) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-r.done:
	case <-s.stop:
	case <-ctx.Done():
		return fmt.Errorf("wait for IDs of %s: %w: %w", s.name, ErrUnavailable, ctx.Err())
	}
	return nil
}

// try issues an ID that is at hand. Without one it returns false and has a lease on its way, unless the last one failed a
// moment ago; it never waits for it.
func (s *Sequence) try() (int64, bool) {
	if s.reusable.Load() == 0 {
		// Looking first: an idle sequence is passed over by every caller, which must not fight for its counter.
		if b := s.current.Load(); b.left() > 0 {
			if offset := b.used.Add(1) - 1; offset < b.length {
				if offset >= b.mark.Load() {
					s.prefetch(b)
				}
				return b.id(offset), true
			}
		}
		if s.resting() {
			return 0, false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var id [1]int64
	switch {
	case s.stopped != nil:
		return 0, false
	case s.take(id[:]) == 1:
		s.prefetchBehindMark()
		return id[0], true
	case !s.resting():
		s.refill()
		s.rest.Store(never)
	}
	return 0, false
}

// take issues what is at hand, reusable IDs first, and returns how many those were. It needs mu.
func (s *Sequence) take(ids []int64) int {
	got := min(len(ids), len(s.reuse))
	kept := len(s.reuse) - got
	copy(ids, s.reuse[kept:])
	s.setReuse(s.reuse[:kept])
	for {
		b := s.current.Load()
		got += b.take(ids[got:])
		if got < len(ids) && s.next != nil {
			s.current.Store(s.next)
			s.next = nil
			continue
		}
		return got
	}
}

// setReuse needs mu.
func (s *Sequence) setReuse(ids []int64) {
	s.reuse = ids
	s.reusable.Store(int64(len(ids)))
}

// Reuse takes back an ID that was issued and certainly never written anywhere, nor will be; it is issued again before
// any other. Only the caller it was issued to may do so, once. An ID outside the bounds is ignored, and so is any once
// the sequence is closed or dropped.
func (s *Sequence) Reuse(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped == nil && s.bounds.contains(id) {
		s.setReuse(append(s.reuse, id))
	}
}

// AtHand returns how many IDs can be issued without another lease, and how many the next lease will take.
func (s *Sequence) AtHand() (ids, step int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids = s.current.Load().left() + int64(len(s.reuse))
	if s.next != nil {
		ids += s.next.left()
	}
	return ids, s.step.size
}

// Leased is the end of what has been leased, as far as this process knows: all IDs of the bounds below it are issued, in
// hand here or with another gateway. It is not above Hi.
func (s *Sequence) Leased() int64 { return s.leased.Load() }

// issued is how many IDs of the bounds are below Leased.
func (s *Sequence) issued() int64 { return s.bounds.countBelow(s.Leased()) }

// Drop ends the sequence because an ID turned out to be issued twice: every ID at hand is forgotten and none is issued
// any more, Next says ErrRewound. It does not wait for a running lease; Close does.
func (s *Sequence) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(s.stopped, ErrRewound) {
		s.alarm(fmt.Errorf("IDs of %s: %w: dropped, because one was issued twice", s.name, ErrRewound))
	}
}

// alarm stops the sequence for good. Whatever it still holds may be held by another gateway too. It needs mu.
func (s *Sequence) alarm(err error) {
	s.halt(err)
	s.rewound.Store(true)
	s.next = nil
	s.log.Error("issuer cannot be trusted, no more IDs are issued", "error", err)
}

// halt refuses all IDs from now on and returns what is left of the current segment, of which no caller gets an ID any
// more. It needs mu.
func (s *Sequence) halt(err error) Segment {
	if s.stopped == nil {
		close(s.stop)
	}
	s.stopped = err
	s.rest.Store(0) // lest a caller of try takes it for one that rests
	s.setReuse(nil)
	return s.current.Swap(&buffer{}).retire()
}

// Close ends the sequence, waits for a running lease and hands the unused IDs back to the issuer, as far as nobody has
// leased since; reusable ones are lost. Without an answer within ctx, all are lost and the error matches
// ErrUnavailable; that is no fault, only a gap. It may be called twice; the second call returns what the first did.
func (s *Sequence) Close(ctx context.Context) error {
	s.closing.Do(func() { s.closeErr = s.shut(ctx) })
	return s.closeErr
}

func (s *Sequence) shut(ctx context.Context) error {
	s.mu.Lock()
	var tail Segment
	if s.stopped == nil {
		tail = s.halt(fmt.Errorf("IDs of %s: %w", s.name, ErrClosed))
	}
	running := s.running
	s.mu.Unlock()
	if running != nil {
		select {
		case <-running.done:
		case <-ctx.Done():
			return fmt.Errorf("close the sequence %s: %w: a lease is still running: %w", s.name, ErrUnavailable, ctx.Err())
		}
	}
	s.mu.Lock()
	trusted := errors.Is(s.stopped, ErrClosed)
	if s.next != nil {
		next := s.next.retire()
		if tail.End == next.Start {
			next.Start = tail.Start
		}
		// Otherwise another gateway has leased between the two, and the first cannot go back.
		tail, s.next = next, nil
	}
	s.mu.Unlock()
	if !trusted || tail.Start >= tail.End {
		return nil
	}
	_, err := s.issuer.Return(ctx, s.name, tail)
	return err
}
