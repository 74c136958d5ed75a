package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"keyrange/idsegment"
	"keyrange/rangeshard"
)

// retryClosed is how long creates are refused at once after a range could not be opened, before the next one tries.
const retryClosed = time.Second

// placement decides where the new records of one collection go. It fills range after range: the lowest one with IDs
// left is open, the others are closed.
type placement struct {
	store      *Store
	collection string
	options    idsegment.Options

	current atomic.Pointer[openRange]
	// opening lets one caller at a time look for the next range; the others wait for what it finds.
	opening sync.Mutex
	// refused is why the last attempt to open a range failed, and until when that answer stands.
	refused      error
	refusedUntil time.Time
}

// openRange is a range that gives IDs to new records.
type openRange struct {
	rangeshard.Range
	ids *idsegment.Sequence
}

func newPlacement(s *Store, collection string, options idsegment.Options) *placement {
	return &placement{store: s, collection: collection, options: options}
}

// next takes an ID for a new record. ErrExhausted and ErrUnavailable mean that nothing was written anywhere.
func (p *placement) next(ctx context.Context) (int64, error) {
	for {
		open := p.current.Load()
		if open == nil {
			var err error
			if open, err = p.advance(ctx, nil); err != nil {
				return 0, err
			}
		}
		id, err := open.ids.Next(ctx)
		switch {
		case err == nil:
			return id, nil
		case errors.Is(err, idsegment.ErrExhausted), errors.Is(err, idsegment.ErrClosed): // closed by who advanced first
			if _, err := p.advance(ctx, open); err != nil {
				return 0, err
			}
		case errors.Is(err, idsegment.ErrRewound):
			// Opening it again compares the issuer with the range table anew, so it recovers once the issuer is mended.
			p.drop(open)
			return 0, fmt.Errorf("take an ID for %s: %w: %w", p.collection, ErrUnavailable, err)
		default:
			return 0, fmt.Errorf("take an ID for %s: %w: %w", p.collection, ErrUnavailable, err)
		}
	}
}

// reuse gives back an ID that was certainly never written anywhere.
func (p *placement) reuse(id int64) {
	if open := p.current.Load(); open != nil && open.Contains(id) {
		open.ids.Reuse(id)
	}
}

// distrust drops all IDs in hand after one of them turned out to be issued twice.
func (p *placement) distrust() {
	if open := p.current.Load(); open != nil {
		open.ids.Drop()
		p.drop(open)
	}
}

// drop closes an open range without handing its IDs back.
func (p *placement) drop(open *openRange) {
	p.opening.Lock()
	defer p.opening.Unlock()
	if p.current.CompareAndSwap(open, nil) {
		p.refuse(fmt.Errorf("%w: the IDs of range %d of %s are in doubt", ErrUnavailable, open.Number, p.collection))
	}
}

// warm opens the first range with IDs left.
func (p *placement) warm(ctx context.Context) error {
	_, err := p.advance(ctx, nil)
	return err
}

// advance opens the lowest range with IDs left, unless another caller has replaced the exhausted one meanwhile.
func (p *placement) advance(ctx context.Context, exhausted *openRange) (*openRange, error) {
	p.opening.Lock()
	defer p.opening.Unlock()
	if open := p.current.Load(); open != exhausted && open != nil {
		return open, nil
	}
	if p.refused != nil && time.Now().Before(p.refusedUntil) {
		return nil, p.refused
	}
	if exhausted != nil {
		p.current.Store(nil)
		if err := exhausted.ids.Close(ctx); err != nil {
			p.store.log.Warn("unused IDs are lost", "collection", p.collection, "range", exhausted.Number, "cause", err.Error())
		}
	}
	open, err := p.open(ctx)
	if err != nil {
		p.refuse(err)
		return nil, err
	}
	p.refused = nil
	p.current.Store(open)
	p.store.log.Info("range opened", "collection", p.collection, "range", open.Number, "first_id", open.Lo, "last_id", open.Hi-1)
	return open, nil
}

func (p *placement) refuse(err error) {
	p.refused, p.refusedUntil = err, time.Now().Add(retryClosed)
}

// open finds the lowest range with IDs left. A range table is created after its issuer row, so a table without one
// proves that the issuer has lost it.
func (p *placement) open(ctx context.Context) (*openRange, error) {
	issued, err := p.store.issuer.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a range of %s: %w: %w", p.collection, ErrUnavailable, err)
	}
	rows := map[int64]idsegment.Issued{}
	for _, seq := range issued {
		if seq.Collection == p.collection {
			rows[seq.Range] = seq
		}
	}
	last := p.store.topology.Load().layout.LastRange()
	for number := int64(1); number <= last; number++ {
		seq, registered := rows[number]
		if registered && seq.Next >= seq.End {
			continue
		}
		return p.openRange(ctx, number, registered)
	}
	return nil, fmt.Errorf("all %d ranges of %s are full: %w: append a node to the config", last, p.collection, ErrExhausted)
}

func (p *placement) openRange(ctx context.Context, number int64, registered bool) (*openRange, error) {
	now := p.store.topology.Load()
	r, n, _ := now.layout.Range(number) // the caller takes numbers from the map
	on, table := now.nodes[n], tableName(p.collection, number)
	name := idsegment.Name{Collection: p.collection, Range: number}
	fail := func(err error) error {
		return fmt.Errorf("open range %d of %s on %s: %w: %w", number, p.collection, on.name, ErrUnavailable, err)
	}
	exists, err := on.rows.exists(ctx, table)
	if err != nil {
		return nil, fail(err)
	}
	if exists && !registered {
		p.store.alarm("the issuer has lost a range: restore it, or register the range by hand", "collection", p.collection, "range", number)
		return nil, fail(idsegment.ErrRewound)
	}
	if err := p.store.issuer.Register(ctx, name, r.Lo, r.Hi); err != nil {
		return nil, fail(err)
	}
	if err := on.rows.prepare(ctx, table); err != nil {
		return nil, fail(err)
	}
	highest, err := on.rows.maxID(ctx, table)
	if err != nil {
		return nil, fail(err)
	}
	bounds := idsegment.Bounds{Lo: r.Lo, Hi: r.Hi}
	return &openRange{r, idsegment.NewSequence(p.store.issuer, name, bounds, highest+1, p.options)}, nil
}

// retry lets the next create look for a range at once, because the map has grown.
func (p *placement) retry() {
	p.opening.Lock()
	defer p.opening.Unlock()
	p.refused = nil
}

// close hands the unused IDs back.
func (p *placement) close(ctx context.Context) error {
	p.opening.Lock()
	defer p.opening.Unlock()
	open := p.current.Swap(nil)
	p.refused, p.refusedUntil = fmt.Errorf("%w: the gateway is stopping", ErrUnavailable), time.Now().Add(defaultDeadline)
	if open == nil {
		return nil
	}
	return open.ids.Close(ctx)
}
