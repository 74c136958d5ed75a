package store

import (
	"context"
	"errors"
	"fmt"
	"math"

	"keyrange/store/sqldb"
)

// Walk asks for one page of a walk through a collection, in the order of the IDs.
type Walk struct {
	// After is the ID behind which the page begins, in the direction of the walk; 0 for where the walk begins. There need
	// be no record at it.
	After int64
	// Group keeps to the records of a group; "" for all.
	Group string
	// Descending walks from the highest ID to the lowest.
	Descending bool
	// Limit is the most records, one at least. MaxBytes bounds their documents together; a larger one is a page of its own.
	Limit    int
	MaxBytes int64
}

// Page is a part of a walk.
type Page struct {
	// Records are in the order of the walk; none only at its end.
	Records []Record
	// More says that the walk goes on behind Next. There may be more although the page has fewer records than asked for.
	More bool
	// Next is the ID of the last record.
	Next int64
}

// List returns a page of the records of a collection. A record that is there from the beginning of a walk to its end is
// met exactly once; one that comes or goes meanwhile may be met or not. What a page costs depends on its records and on
// the number of nodes, not on how far into the collection it is.
//
// A record is a live row (I3, I4) that has not expired, so a list reads the nodes only, and is served without the index too. It has every
// acknowledged record, and may have one whose create is not answered yet, or was answered with ErrUnknown.
//
// A list that needs a node which does not answer is ErrUnavailable, unless it has records before those of that node: then
// they are the page, and the walk goes on there.
func (s *Store) List(ctx context.Context, collection string, walk Walk) (Page, error) {
	if _, err := s.placement(collection); err != nil {
		return Page{}, err
	}
	w := &walker{store: s, now: s.topology.Load(), collection: collection, walk: walk, left: walk.Limit + 1, bytes: walk.MaxBytes}
	run := w.run
	if walk.Group != "" {
		run = w.runGroup
	}
	err := run(ctx)
	if len(w.found) == 0 || err == nil && len(w.found) <= walk.Limit && !w.cut {
		return w.page(len(w.found), false, err)
	}
	// Either there is one more than asked for, or nobody knows.
	return w.page(min(len(w.found), walk.Limit), true, nil)
}

// walker gathers one page.
type walker struct {
	store      *Store
	now        *topology
	collection string
	walk       Walk
	// left is how many rows are still to be found: one more than the page has, which tells whether there are more.
	left  int
	bytes int64
	found []row
	// cut: the next row would be too large for the page.
	cut bool
}

// full reports whether the page has all that it is to have.
func (w *walker) full() bool { return w.left == 0 || w.cut }

// page makes a page of the first rows that were found, and hands on the error of the walk.
func (w *walker) page(n int, more bool, err error) (Page, error) {
	p := Page{More: more, Records: make([]Record, n)}
	for i := range n {
		rec, unreadable := w.found[i].record()
		if unreadable != nil {
			return Page{}, unreadable
		}
		p.Records[i], p.Next = rec, w.found[i].id
	}
	return p, err
}

// rest is the IDs that the walk has yet to look at.
func (w *walker) rest() span {
	switch {
	case w.walk.Descending && w.walk.After > 0:
		return span{1, w.walk.After}
	case w.walk.After == math.MaxInt64:
		return span{} // no ID is above it
	}
	return span{w.walk.After + 1, math.MaxInt64}
}

// run looks into the range in which the page begins, and goes on from there.
func (w *walker) run(ctx context.Context) error {
	rest := w.rest()
	if rest.lo >= rest.hi {
		return nil
	}
	from := rest.lo // the ID that the walk looks at next
	if w.walk.Descending {
		from = rest.hi - 1
	}
	r, n, ok := w.now.layout.Locate(from)
	number := r.Number
	switch {
	case ok:
		// Mostly the page is full after this one statement. A table that does not exist has no records.
		if err := w.look(ctx, w.now.nodes[n], number); err != nil && !errors.Is(err, sqldb.ErrRejected) || w.full() {
			return err
		} else if err != nil {
			number = w.before(number) // if it does exist, it is looked at again
		}
	case w.walk.Descending:
		number = w.now.layout.LastRange() + 1
	default:
		number = w.now.layout.LastRange() // there is no range behind it
	}
	return w.goOn(ctx, number)
}

// before is the range number ahead of one, in the direction of the walk.
func (w *walker) before(number int64) int64 {
	if w.walk.Descending {
		return number + 1
	}
	return number - 1
}

// look adds the rows of a range. Where its table does not exist, the error matches sqldb.ErrRejected.
func (w *walker) look(ctx context.Context, on *node, number int64) (err error) {
	ctx, reading := beginStep(ctx, stepListRows)
	defer func() { reading.end(err) }()
	table := tableName(w.collection, number)
	var found []row
	var cut bool
	err = w.store.tableOn(on, w.collection, number).fitting.fit(ctx)
	if err == nil {
		found, cut, err = on.rows.list(ctx, table, window{w.rest(), w.walk.Group, w.walk.Descending, w.left, w.bytes, len(w.found) == 0})
	}
	if err != nil {
		return fmt.Errorf("list %s on %s: %w: %w", table, on.name, ErrUnavailable, err)
	}
	for i := range found {
		w.bytes -= int64(found[i].size())
	}
	w.found, w.left, w.cut = append(w.found, found...), w.left-len(found), cut
	return nil
}

// goOn looks into the ranges behind one, until the page is full. Ranges without a live row are passed over many at a time,
// and those that were never opened cost nothing.
func (w *walker) goOn(ctx context.Context, behind int64) error {
	ranges, end := w.survey(ctx, behind)
	for len(ranges) > 0 {
		batch := ranges[:min(len(ranges), occupiedTables)]
		ranges = ranges[len(batch):]
		vacant := w.vacant(ctx, batch)
		for _, r := range batch {
			if vacant[r.number] {
				continue
			}
			if err := w.look(ctx, r.node, r.number); err != nil || w.full() {
				return err
			}
		}
	}
	return end
}
