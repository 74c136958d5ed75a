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

// placement decides where the new records of one collection go.
type placement struct {
	store      *Store
	collection string
	options    idsegment.Options
	Placement

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
	ids  *idsegment.Sequence
}

func newPlacement(s *Store, collection string, options idsegment.Options, how Placement) *placement {
	how.Spread = max(how.Spread, 1)
	if how.HighLevel <= 0 {
		how.HighLevel = 1
	}
	p := &placement{store: s, collection: collection, options: options, Placement: how}
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
			// Opening it again compares the issuer with the range table anew, so it recovers once the issuer is mended.
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
	case len(low) < p.Spread && time.Now().UnixNano() > p.nextFill.Load():
		p.fillApart() // nobody waits for more ranges while there is one
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
		case p.isHigh(r.Range, r.ids.Leased()):
			high = append(high, r)
		default:
			low = append(low, r)
		}
	}
	return low, high
}

// isHigh reports whether a range of which the IDs below next are leased is above the high level.
func (p *placement) isHigh(r rangeshard.Range, next int64) bool {
	return p.Spread > 1 && float64(next-r.Lo) > p.HighLevel*float64(r.Hi-r.Lo)
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

// distrust drops all IDs in hand of a range (nil is none) after one of them turned out to be issued twice.
func (p *placement) distrust(r *openRange) {
	if r == nil {
		return
	}
	r.ids.Drop()
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

// fill opens ranges until enough are usable. It fails when none is.
func (p *placement) fill(ctx context.Context) error {
	p.filling.Lock()
	defer p.filling.Unlock()
	low, high := p.usable()
	if len(low) >= p.Spread {
		return nil
	}
	if time.Now().UnixNano() < p.nextFill.Load() && (p.refused != nil || len(low)+len(high) > 0) {
		return p.refused
	}
	err := p.openMore(ctx)
	if low, high = p.usable(); len(low) >= p.Spread {
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

// openMore opens ranges as far as there are any to open. It needs filling.
func (p *placement) openMore(ctx context.Context) error {
	now := p.store.topology.Load()
	if p.Spread == 1 && len(*p.open.Load()) > 0 {
		return fmt.Errorf("take an ID for %s: %w: %s is down", p.collection, ErrUnavailable, (*p.open.Load())[0].node.name)
	}
	issued, err := p.store.issuer.List(ctx)
	if err != nil {
		return fmt.Errorf("open a range of %s: %w: %w", p.collection, ErrUnavailable, err)
	}
	all := p.candidates(now, issued)
	if len(all) == 0 && len(*p.open.Load()) == 0 {
		return fmt.Errorf("all ranges of %s up to %d are full: %w: append a node to the config", p.collection, now.layout.LastRange(), ErrExhausted)
	}
	var errs []error
	for _, c := range p.choose(all) {
		r, err := p.openRange(ctx, c)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		open := append(slices.Clone(*p.open.Load()), r)
		p.open.Store(&open)
		p.store.log.Info("range opened", "collection", p.collection, "range", r.Number, "node", r.node.name, "first_id", r.Lo, "last_id", r.Hi-1)
	}
	return errors.Join(errs...)
}

// candidate is a range that is not open and has IDs left.
type candidate struct {
	rangeshard.Range
	node *node
	// registered says that the issuer knows the range; next is its first ID that is not leased.
	registered bool
	next       int64
}

// candidates lists the ranges that could be opened, in order, without those on nodes that are drained.
func (p *placement) candidates(now *topology, issued []idsegment.Issued) []candidate {
	known := map[int64]idsegment.Issued{}
	for _, seq := range issued {
		if seq.Collection == p.collection {
			known[seq.Range] = seq
		}
	}
	var all []candidate
	for number := int64(1); number <= now.layout.LastRange(); number++ {
		r, n, _ := now.layout.Range(number) // every number up to the last is owned
		seq, registered := known[number]
		if registered && seq.Next >= seq.End || p.openAt(r.Lo) != nil || now.layout.Nodes()[n].Drain {
			continue
		}
		c := candidate{Range: r, node: now.nodes[n], registered: registered, next: r.Lo}
		if registered {
			c.next = seq.Next
		}
		all = append(all, c)
	}
	return all
}

// choose picks the candidates to open. Filling range after range that is the first one, whatever the state of its node.
// Spreading, it is one range on each node that is up and has none below the high level open. Only when no range anywhere
// is below that level, those above are used.
func (p *placement) choose(all []candidate) []candidate {
	if p.Spread == 1 {
		return all[:min(1, len(all))]
	}
	low, high := p.usable()
	hasLow, hasAny := map[*node]bool{}, map[*node]bool{}
	for _, r := range low {
		hasLow[r.node], hasAny[r.node] = true, true
	}
	for _, r := range high {
		hasAny[r.node] = true
	}
	var chosen, full []candidate
	for _, c := range all {
		switch {
		case c.node.down():
		case !p.isHigh(c.Range, c.next) && !hasLow[c.node]:
			hasLow[c.node] = true
			chosen = append(chosen, c)
		case !hasAny[c.node]:
			hasAny[c.node] = true
			full = append(full, c)
		}
	}
	if len(chosen)+len(low) == 0 {
		return full[:min(len(full), max(0, p.Spread-len(high)))]
	}
	return chosen[:min(len(chosen), p.Spread-len(low))]
}

// openRange opens one range. A range table is created after its issuer row, so a table without one proves that the issuer
// has lost it.
func (p *placement) openRange(ctx context.Context, c candidate) (*openRange, error) {
	table := tableName(p.collection, c.Number)
	name := idsegment.Name{Collection: p.collection, Range: c.Number}
	fail := func(err error) error {
		return fmt.Errorf("open range %d of %s on %s: %w: %w", c.Number, p.collection, c.node.name, ErrUnavailable, err)
	}
	exists, err := c.node.rows.exists(ctx, table)
	if err != nil {
		return nil, fail(err)
	}
	if exists && !c.registered {
		p.store.alarm("the issuer has lost a range: restore it, or register the range by hand", "collection", p.collection, "range", c.Number)
		return nil, fail(idsegment.ErrRewound)
	}
	if err := p.store.issuer.Register(ctx, name, c.Lo, c.Hi); err != nil {
		return nil, fail(err)
	}
	if err := c.node.rows.prepare(ctx, table); err != nil {
		return nil, fail(err)
	}
	highest, err := c.node.rows.maxID(ctx, table)
	if err != nil {
		return nil, fail(err)
	}
	bounds := idsegment.Bounds{Lo: c.Lo, Hi: c.Hi}
	return &openRange{c.Range, c.node, idsegment.NewSequence(p.store.issuer, name, bounds, highest+1, p.options)}, nil
}

// retry lets the next create look for ranges at once, because the map has changed, and closes ranges on drained nodes.
func (p *placement) retry(ctx context.Context) {
	now := p.store.topology.Load()
	for _, r := range *p.open.Load() {
		if now.drained(r.node) {
			p.retire(ctx, r)
		}
	}
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
