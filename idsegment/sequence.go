package idsegment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Options tune a sequence. Zero values take the defaults.
type Options struct {
	// MinStep and MaxStep bound how many IDs are leased at once; defaults 100 and 10,000. In between, the step follows the
	// rate of use. It never passes a thousandth of the range, nor falls below 1; only for callers that wait is more leased.
	MinStep, MaxStep int64
	// LeaseTimeout bounds one lease, whatever the deadlines of the callers that wait for it; default 2 s.
	LeaseTimeout time.Duration
	// Now is the clock that segments are timed by; default time.Now. No ID depends on it.
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

// Sequence hands out the IDs of one range to this process, from two segments: one in use, the other fetched before
// that one is used up. All methods are safe for concurrent use.
type Sequence struct {
	// current and reusable (the length of reuse) are all that the fast path of Next reads. They change under mu.
	current  atomic.Pointer[buffer]
	reusable atomic.Int64
	leased   atomic.Int64

	issuer Leaser
	name   Name
	bounds Bounds
	opts   Options
	log    *slog.Logger

	mu      sync.Mutex
	next    *buffer // follows current; nil while there is none
	running *refill // nil while none runs; never set while next is
	step    step
	floor   int64 // no segment may start below
	reuse   []int64
	wanted  int64         // IDs that waiting callers still miss
	stopped error         // matches ErrClosed or ErrRewound once nothing may be issued any more
	stop    chan struct{} // closed with stopped

	closing  sync.Once
	closeErr error
}

// NewSequence makes a sequence of the range name with the IDs in bounds. A segment that starts below floor, the highest
// ID known to be issued plus 1, is refused. Nothing is leased before the first ID is asked for. The caller closes it.
func NewSequence(issuer Leaser, name Name, bounds Bounds, floor int64, opts Options) *Sequence {
	opts = opts.withDefaults()
	s := &Sequence{
		issuer: issuer, name: name, bounds: bounds, opts: opts,
		log:   opts.Logger.With("collection", name.Collection, "range", name.Range),
		step:  newStep(bounds, opts),
		floor: max(floor, bounds.Lo),
		stop:  make(chan struct{}),
	}
	s.current.Store(&buffer{})
	s.leased.Store(s.floor)
	return s
}

// Next issues an ID to the caller, who is the only one ever to get it. While a segment is at hand it returns at once and
// does not look at ctx; otherwise it waits for a lease until ctx ends. Errors match ErrExhausted, ErrUnavailable (with
// the error of ctx if that ended), ErrRewound or ErrClosed.
func (s *Sequence) Next(ctx context.Context) (int64, error) {
	if s.reusable.Load() == 0 {
		b := s.current.Load()
		if offset := b.used.Add(1) - 1; offset < b.length {
			if offset >= b.mark.Load() {
				s.prefetch(b)
			}
			return b.start + offset, nil
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
		if b := s.current.Load(); b.used.Load() > b.mark.Load() && b.mark.Swap(never) != never && s.next == nil {
			s.refill()
		}
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
// any other. Only the caller it was issued to may do so, once. An ID outside the range is ignored, and so is any once
// the sequence is closed or dropped.
func (s *Sequence) Reuse(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped == nil && id >= s.bounds.Lo && id < s.bounds.Hi {
		s.setReuse(append(s.reuse, id))
	}
}

// Leased is the end of what has been leased, as far as this process knows: all IDs of the range below it are issued, in
// hand here or with another gateway.
func (s *Sequence) Leased() int64 { return s.leased.Load() }

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

const (
	// never is a mark that no offset reaches.
	never = math.MaxInt64
	// cacheLineBytes is what amd64 and arm64 processors fetch and own as one, in most models.
	cacheLineBytes = 64
)

// buffer is a segment in use. Every ID is taken by moving used, so it cannot be taken twice, and a buffer that is used
// up or retired never issues again, whoever still holds a pointer to it.
type buffer struct {
	used atomic.Int64 // offset of the next ID; passes length when callers find nothing
	// Callers on all cores fight for used; what they only read is kept out of its cache line.
	_      [cacheLineBytes]byte
	mark   atomic.Int64 // the offset from which the next segment is to be fetched
	start  int64
	length int64
}

// newBuffer makes a buffer that asks for the next segment once half of it is used, or never when it is the last one.
func newBuffer(segment Segment, last bool) *buffer {
	b := &buffer{start: segment.Start, length: segment.End - segment.Start}
	b.mark.Store(b.length / 2)
	if last {
		b.mark.Store(never)
	}
	return b
}

// take issues as many IDs as are left into ids and returns how many.
func (b *buffer) take(ids []int64) int {
	want := int64(len(ids))
	offset := b.used.Add(want) - want
	got := max(0, min(want, b.length-offset))
	for i := range got {
		ids[i] = b.start + offset + i
	}
	return int(got)
}

// left is how many IDs are not taken yet.
func (b *buffer) left() int64 { return max(0, b.length-b.used.Load()) }

// retire takes all IDs that are left and returns them.
func (b *buffer) retire() Segment {
	offset := min(b.length, b.used.Swap(b.length))
	return Segment{Start: b.start + offset, End: b.start + b.length}
}
