package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"keyrange/idsegment"
	"keyrange/rangeshard"
)

// retryClosed is how long creates are refused at once after no range could be opened, before the next one tries, and how
// long a placement with too few open ranges waits before it looks for more.
const retryClosed = time.Second

// Placement says where new records go. Reads and updates do not depend on it: they follow the stored ID.
type Placement struct {
	// Spread is how many ranges, on different nodes, take new records in turn. With 1 (or 0) range after range is filled,
	// the lowest with IDs left first.
	Spread int
	// HighLevel is the share of a range, above 0 and up to 1, beyond which it is passed over while others are below; 0
	// means 1. Only spreading looks at it.
	HighLevel float64
}

func (h Placement) withDefaults() *Placement {
	h.Spread = max(h.Spread, 1)
	if h.HighLevel <= 0 {
		h.HighLevel = 1
	}
	return &h
}

// placement decides where the new records of one collection go.
type placement struct {
	store      *Store
	collection string
	options    idsegment.Options
	how        atomic.Pointer[Placement]

	// open are the ranges that give IDs, never changed in place.
	open atomic.Pointer[[]*openRange]
	turn atomic.Uint64
	// filling lets one caller at a time open ranges; the others wait for what it finds.
	filling sync.Mutex
	// refused is why the last attempt to open a range failed. That answer stands, and no further range is looked for, until
	// then. Both are under filling; nextFill repeats the time for those who only look.
	refused  error
	nextFill atomic.Int64 // unix nanoseconds
	// fillingApart is set while a fill runs that nobody waits for.
	fillingApart atomic.Bool
}

// openRange is a range that gives IDs to new records.
type openRange struct {
	rangeshard.Range
	node *node
	ids  *idsegment.Rotation
}

func newPlacement(s *Store, collection string, options idsegment.Options, how Placement) *placement {
	p := &placement{store: s, collection: collection, options: options}
	p.how.Store(how.withDefaults())
	p.open.Store(&[]*openRange{})
	return p
}

// next takes an ID for a new record. ErrExhausted and ErrUnavailable mean that nothing was written anywhere.
func (p *placement) next(ctx context.Context) (int64, error) {
	for {
		r, err := p.pick(ctx)
		if err != nil {
			return 0, err
		}
		id, err := r.ids.Next(ctx)
		switch {
		case err == nil:
			return id, nil
		case errors.Is(err, idsegment.ErrExhausted), errors.Is(err, idsegment.ErrClosed): // closed by who saw it first
			p.retire(ctx, r)
		case errors.Is(err, idsegment.ErrRewound):
			// Opening it again compares the issuers with the node's ledger anew, so it recovers once they are mended.
			p.distrust(r)
			return 0, fmt.Errorf("take an ID for %s: %w: %w", p.collection, ErrUnavailable, err)
		default:
			return 0, fmt.Errorf("take an ID for %s: %w: %w", p.collection, ErrUnavailable, err)
		}
	}
}

// pick chooses the range for the next ID: the open ranges in turn, without those whose node is down or drained, and
// without those above the high level while others are below.
func (p *placement) pick(ctx context.Context) (*openRange, error) {
	low, high := p.usable()
	switch {
	case len(low)+len(high) == 0:
		if err := p.fill(ctx); err != nil {
			return nil, err
		}
		low, high = p.usable()
	case (len(low) < p.how.Load().Spread || p.incomplete()) && time.Now().UnixNano() > p.nextFill.Load():
		p.fillApart() // nobody waits for more ranges or issuers while there is one
	}
	if len(low) == 0 {
		low = high
	}
	if len(low) == 0 {
		return nil, fmt.Errorf("take an ID for %s: %w: no open range is usable any more", p.collection, ErrUnavailable)
	}
	return low[p.turn.Add(1)%uint64(len(low))], nil
}

// usable returns the open ranges that may take records, apart by whether they are above the high level.
func (p *placement) usable() (low, high []*openRange) {
	now := p.store.topology.Load()
	for _, r := range *p.open.Load() {
		switch {
		case r.node.down() || now.drained(r.node):
		case p.isHigh(r.Range, r.ids.Issued()):
			high = append(high, r)
		default:
			low = append(low, r)
		}
	}
	return low, high
}

// isHigh reports whether a range of which so many IDs are leased is above the high level.
func (p *placement) isHigh(r rangeshard.Range, issued int64) bool {
	how := p.how.Load()
	return how.Spread > 1 && float64(issued) > how.HighLevel*float64(r.Hi-r.Lo)
}

// incomplete reports whether an open range lacks the IDs of an issuer.
func (p *placement) incomplete() bool {
	for _, r := range *p.open.Load() {
		if len(r.ids.Missing()) > 0 {
			return true
		}
	}
	return false
}

// reuse gives back an ID that was certainly never written anywhere.
func (p *placement) reuse(id int64) {
	if r := p.openAt(id); r != nil {
		r.ids.Reuse(id)
	}
}

// openAt finds the open range of an ID; nil when it is not open any more.
func (p *placement) openAt(id int64) *openRange {
	for _, r := range *p.open.Load() {
		if r.Contains(id) {
			return r
		}
	}
	return nil
}

// drop drops the IDs in hand of the issuer that an ID came from, after it turned out to be issued twice.
func (p *placement) drop(id int64) {
	if r := p.openAt(id); r != nil {
		r.ids.Drop(id)
	}
}

// distrust closes a range of which no issuer can be trusted.
func (p *placement) distrust(r *openRange) {
	p.filling.Lock()
	defer p.filling.Unlock()
	if p.without(r) {
		p.refuse(fmt.Errorf("%w: the IDs of range %d of %s are in doubt", ErrUnavailable, r.Number, p.collection))
	}
}

// retire closes a range without IDs left.
func (p *placement) retire(ctx context.Context, r *openRange) {
	p.filling.Lock()
	defer p.filling.Unlock()
	if !p.without(r) {
		return
	}
	p.nextFill.Store(0)
	if err := r.ids.Close(ctx); err != nil {
		p.store.log.Warn("unused IDs are lost", "collection", p.collection, "range", r.Number, "cause", err.Error())
	}
}

// without takes a range off the open ones; false when it was not among them. It needs filling.
func (p *placement) without(r *openRange) bool {
	open := *p.open.Load()
	i := slices.Index(open, r)
	if i < 0 {
		return false
	}
	rest := slices.Delete(slices.Clone(open), i, i+1)
	p.open.Store(&rest)
	return true
}

// refuse makes an answer stand for a while. It needs filling.
func (p *placement) refuse(err error) {
	p.refused = err
	p.nextFill.Store(time.Now().Add(retryClosed).UnixNano())
}

// warm opens the ranges that take the next records.
func (p *placement) warm(ctx context.Context) error { return p.fill(ctx) }

// fill opens ranges until enough are usable, and asks the issuers that they lack. It fails when no range is usable.
func (p *placement) fill(ctx context.Context) error {
	p.filling.Lock()
	defer p.filling.Unlock()
	low, high := p.usable()
	if len(low) >= p.how.Load().Spread && !p.incomplete() {
		return nil
	}
	if time.Now().UnixNano() < p.nextFill.Load() && (p.refused != nil || len(low)+len(high) > 0) {
		return p.refused
	}
	p.complete(ctx)
	var err error
	if len(low) < p.how.Load().Spread {
		err = p.openMore(ctx)
	}
	if low, high = p.usable(); len(low) >= p.how.Load().Spread && !p.incomplete() {
		p.refused = nil
		p.nextFill.Store(0)
		return nil
	}
	if len(low)+len(high) > 0 {
		if err != nil {
			p.store.log.Warn("not all ranges could be opened", "collection", p.collection, "cause", err.Error())
		}
		err = nil // it is tried again later
	} else if err == nil {
		err = fmt.Errorf("take an ID for %s: %w: no node with room for new records is up", p.collection, ErrUnavailable)
	}
	p.refuse(err)
	return err
}

// complete asks the issuers that the open ranges lack. That one does not answer is no fault while another does. It needs
// filling.
func (p *placement) complete(ctx context.Context) {
	for _, r := range *p.open.Load() {
		if r.node.down() {
			continue
		}
		for _, i := range r.ids.Missing() {
			if err := p.join(ctx, r, i); err != nil {
				p.store.log.Debug("an issuer gives no IDs of a range", "collection", p.collection, "range", r.Number, "cause", err.Error())
			}
		}
	}
}

// fillApart starts a fill that nobody waits for, unless one runs.
func (p *placement) fillApart() {
	if !p.fillingApart.CompareAndSwap(false, true) {
		return
	}
	p.store.tasks.Go(func() {
		defer p.fillingApart.Store(false)
		ctx, cancel := context.WithTimeout(p.store.background, defaultDeadline)
		defer cancel()
		_ = p.fill(ctx) // that there is no more is no fault
	})
}

// SetPlacement changes where new records go. Ranges that are open are closed, and those that follow from the new rule
// opened by the next creates.
func (s *Store) SetPlacement(ctx context.Context, how Placement) {
	for _, p := range s.placements {
		if next := how.withDefaults(); *p.how.Swap(next) != *next {
			for _, r := range *p.open.Load() {
				p.retire(ctx, r)
			}
			p.lookAgain()
		}
	}
}

// retry takes in a new topology: it closes ranges whose node is drained or has moved to another database, and lets the
// next create look for others at once.
func (p *placement) retry(ctx context.Context) {
	now := p.store.topology.Load()
	for _, r := range *p.open.Load() {
		if now.drained(r.node) || !slices.Contains(now.nodes, r.node) {
			p.retire(ctx, r)
		}
	}
	p.lookAgain()
}

// lookAgain lets the next create look for ranges at once.
func (p *placement) lookAgain() {
	p.filling.Lock()
	defer p.filling.Unlock()
	p.refused = nil
	p.nextFill.Store(0)
}

// close hands the unused IDs back.
func (p *placement) close(ctx context.Context) error {
	p.filling.Lock()
	defer p.filling.Unlock()
	open := p.open.Swap(&[]*openRange{})
	p.refused = fmt.Errorf("%w: the gateway is stopping", ErrUnavailable)
	p.nextFill.Store(time.Now().Add(time.Hour).UnixNano())
	var errs []error
	for _, r := range *open {
		errs = append(errs, r.ids.Close(ctx))
	}
	return errors.Join(errs...)
}
