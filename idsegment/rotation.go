package idsegment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// Rotation hands out the IDs of one range from the sequences of all issuers in turn, so that records that are created
// together get neighbouring IDs, and goes on with what is left while some issuers fail. All methods are safe for
// concurrent use.
type Rotation struct {
	slots  []slot
	closed atomic.Bool
	mu     sync.Mutex // held to change a slot

	closing  sync.Once
	closeErr error

	_    [cacheLineBytes]byte // callers on all cores change turn, and only read the rest
	turn atomic.Uint64
}

// slot is the place of one issuer.
type slot struct {
	sequence atomic.Pointer[Sequence] // nil while there is none
	rewound  bool                     // the last sequence was taken out because its issuer was rewound; under the rotation's mu
	// reuseFrom is the end of what sequences issued that were taken out; under the rotation's mu. Others may have been given
	// those IDs too, so they are not issued again.
	reuseFrom int64
}

// NewRotation makes a rotation without sequences, for so many issuers (from 1) as there are.
func NewRotation(issuers int) *Rotation { return &Rotation{slots: make([]slot, issuers)} }

// Set puts the sequence of issuer i in force, counted from 0: the one with number i+1. The rotation closes it from now on.
// When the slot is taken or the rotation closed, s is not used; it has not leased anything, so nothing is lost.
func (r *Rotation) Set(i int, s *Sequence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := &r.slots[i]
	if !r.closed.Load() && slot.sequence.CompareAndSwap(nil, s) {
		slot.rewound = false
	}
}

// AtHand returns how many IDs of each issuer, by its slot, can be issued without another lease, and how many its next lease
// will take; 0 and 0 for one without a sequence.
func (r *Rotation) AtHand() (ids, steps []int64) {
	for i := range r.slots {
		var id, step int64
		if s := r.working(i); s != nil {
			id, step = s.AtHand()
		}
		ids, steps = append(ids, id), append(steps, step)
	}
	return ids, steps
}

// Missing returns the slots without a sequence, from 0. A sequence whose issuer turned out to be rewound is taken out.
func (r *Rotation) Missing() []int {
	var missing []int
	for i := range r.slots {
		if r.working(i) == nil {
			missing = append(missing, i)
		}
	}
	return missing
}

// working returns the sequence of a slot, and nil when there is none or it has just been taken out as rewound.
func (r *Rotation) working(i int) *Sequence {
	s := r.slots[i].sequence.Load()
	if s != nil && s.rewound.Load() {
		r.empty(i, s)
		return nil
	}
	return s
}

// empty takes a rewound sequence out of its slot. It is not closed: it has nothing to hand back, and a lease of it that
// still runs ends by its own timeout.
func (r *Rotation) empty(i int, s *Sequence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := &r.slots[i]
	if slot.sequence.CompareAndSwap(s, nil) {
		slot.rewound = true
		slot.reuseFrom = max(slot.reuseFrom, s.Leased())
	}
}

// Next issues an ID to the caller, who is the only one ever to get it. While any sequence has one at hand it returns at
// once and does not look at ctx; otherwise it takes the first that an issuer gives, until ctx ends. Errors match one of:
// ErrExhausted, when the IDs of an issuer are used up and no other gives one; ErrRewound, when no sequence is left and an
// issuer was rewound; ErrClosed; ErrUnavailable (with the error of ctx if that ended).
func (r *Rotation) Next(ctx context.Context) (int64, error) {
	if len(r.slots) > 1 {
		return r.nextOfMany(ctx)
	}
	s := r.slots[0].sequence.Load()
	if s == nil {
		return 0, r.refusal(ctx, nil)
	}
	id, err := s.Next(ctx)
	if err != nil && errors.Is(err, ErrRewound) {
		r.empty(0, s)
	}
	return id, err
}

// nextOfMany is Next with several issuers.
func (r *Rotation) nextOfMany(ctx context.Context) (int64, error) {
	count, turn := uint64(len(r.slots)), r.turn.Add(1)
	for k := range count {
		s := r.working(int((turn + k) % count))
		if s == nil {
			continue
		}
		if id, ok := s.try(); ok {
			if k > 0 {
				r.turn.Add(k) // otherwise the next in line would serve the turns of those that it was taken instead of
			}
			return id, nil
		}
	}
	return r.ask(ctx)
}

// answer is what a sequence said.
type answer struct {
	from *Sequence
	id   int64
	err  error
}

// ask asks all sequences at once and returns the first ID that comes. All have answered when it returns.
func (r *Rotation) ask(ctx context.Context) (int64, error) {
	asked, answers := r.candidates()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	arriving := make(chan answer)
	for _, s := range asked {
		go func() {
			id, err := s.Next(asking)
			arriving <- answer{s, id, err}
		}()
	}
	var id int64
	found := false
	for range asked {
		a := <-arriving
		switch {
		case a.err != nil:
			answers = append(answers, a)
		case found:
			a.from.Reuse(a.id)
		default:
			id, found = a.id, true
			cancel() // the leases go on, for the next callers
		}
	}
	if found {
		return id, nil
	}
	return 0, r.refusal(ctx, answers)
}

// candidates returns the sequences to ask, and the answers of those that need not be asked. Exhausted ones need not, until
// it is time to look whether another gateway has handed IDs back. When there are only those and failing ones, nobody is
// asked: there are IDs in other ranges, so no caller should wait for an issuer that does not answer.
func (r *Rotation) candidates() (asked []*Sequence, answers []answer) {
	var failing []answer
	healthy := false
	for i := range r.slots {
		s := r.working(i)
		if s == nil {
			continue
		}
		switch err := s.failing(); {
		case errors.Is(err, ErrExhausted):
			answers = append(answers, answer{from: s, err: err})
		case err != nil:
			failing = append(failing, answer{from: s, err: err})
		default:
			healthy = true
			asked = append(asked, s)
		}
	}
	if len(answers) > 0 && !healthy {
		return nil, append(answers, failing...)
	}
	for _, a := range failing {
		asked = append(asked, a.from)
	}
	return asked, answers
}

// refusal is the error of Next after these answers, of which it keeps only the texts: each may match another error than
// all of them together.
func (r *Rotation) refusal(ctx context.Context, answers []answer) error {
	var exhausted, gaveUp bool
	texts := []string{}
	for _, a := range answers {
		exhausted = exhausted || errors.Is(a.err, ErrExhausted)
		gaveUp = gaveUp || ctx.Err() != nil && errors.Is(a.err, ctx.Err())
		texts = append(texts, a.err.Error())
	}
	missing := r.Missing()
	if len(missing) > 0 {
		texts = append(texts, fmt.Sprintf("%d of %d issuers are out of service", len(missing), len(r.slots)))
	}
	text := strings.Join(texts, "; ")
	switch {
	case r.closed.Load():
		return fmt.Errorf("take an ID: %w", ErrClosed)
	case gaveUp:
		return fmt.Errorf("take an ID: %w: %w: %s", ErrUnavailable, ctx.Err(), text)
	case exhausted:
		return fmt.Errorf("take an ID: %w: %s", ErrExhausted, text)
	case len(missing) == len(r.slots) && r.anyRewound():
		return fmt.Errorf("take an ID: %w: %s", ErrRewound, text)
	}
	return fmt.Errorf("take an ID: %w: %s", ErrUnavailable, text)
}

// anyRewound reports whether a slot is empty because its issuer was rewound.
func (r *Rotation) anyRewound() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.slots {
		if r.slots[i].rewound {
			return true
		}
	}
	return false
}

// Reuse takes back an ID that was issued and certainly never written anywhere, nor will be; it is issued again before
// others of its issuer. Only the caller it was issued to may do so, once. It is ignored when the sequence that issued it is
// not in force any more.
func (r *Rotation) Reuse(id int64) {
	i, ok := r.slotOf(id)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := &r.slots[i]
	if s := slot.sequence.Load(); s != nil && id >= slot.reuseFrom {
		s.Reuse(id)
	}
}

// slotOf returns the slot of the issuer whose class the ID is in; false when it is no ID.
func (r *Rotation) slotOf(id int64) (int, bool) {
	return int((id - 1) % int64(len(r.slots))), id >= 1
}

// Drop ends the sequence of the ID's issuer because the ID turned out to be issued twice, see Sequence.Drop, and takes it
// out of its slot.
func (r *Rotation) Drop(id int64) {
	i, ok := r.slotOf(id)
	if !ok {
		return
	}
	if s := r.slots[i].sequence.Load(); s != nil {
		s.Drop()
		r.empty(i, s)
	}
}

// Issued is how many IDs of the range are leased, as far as the sequences in force know.
func (r *Rotation) Issued() int64 {
	var sum int64
	for i := range r.slots {
		if s := r.slots[i].sequence.Load(); s != nil {
			sum += s.issued()
		}
	}
	return sum
}

// Close closes all sequences at once, see Sequence.Close, and returns their errors. It may be called twice; the second
// call returns what the first did.
func (r *Rotation) Close(ctx context.Context) error {
	r.closing.Do(func() {
		r.mu.Lock()
		r.closed.Store(true) // under mu, so that no sequence is set that is not closed below
		r.mu.Unlock()
		errs := make([]error, len(r.slots))
		var wg sync.WaitGroup
		for i := range r.slots {
			if s := r.slots[i].sequence.Load(); s != nil {
				wg.Go(func() { errs[i] = s.Close(ctx) })
			}
		}
		wg.Wait()
		r.closeErr = errors.Join(errs...)
	})
	return r.closeErr
}
