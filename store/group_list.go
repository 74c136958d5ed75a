package store

import (
	"context"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"
)

// countAtOnce bounds the range tables that are counted at a time.
const countAtOnce = 8

// groupTable is a range that may hold records of a group.
type groupTable struct {
	number int64
	name   string
	node   *node
	span
}

// runGroup goes through the ranges that hold records of the group, or have held some, until the page is full.
func (w *walker) runGroup(ctx context.Context) error {
	rest := w.rest()
	if rest.lo >= rest.hi {
		return nil
	}
	tables, end := w.store.groupTables(ctx, w.now, w.collection, w.walk.Group, rest)
	if w.walk.Descending {
		if end != nil {
			return end // what comes first is not known
		}
		slices.Reverse(tables)
	}
	for _, t := range tables {
		if err := w.look(ctx, t.node, t.number); err != nil || w.full() {
			return err
		}
	}
	return end
}

// CountGroup counts the records of a group, range by range: not all at the same moment.
func (s *Store) CountGroup(ctx context.Context, collection, group string) (int64, error) {
	tables, err := s.groupTables(ctx, s.topology.Load(), collection, group, span{1, math.MaxInt64})
	if err != nil {
		return 0, err
	}
	counts := make([]int64, len(tables))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(countAtOnce)
	for i, t := range tables {
		work.Go(func() (err error) {
			if counts[i], err = t.node.rows.count(ctx, t.name, group); err != nil {
				return fmt.Errorf("count a group in %s on %s: %w: %w", t.name, t.node.name, ErrUnavailable, err)
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, n := range counts {
		sum += n
	}
	return sum, nil
}

// groupDirectory checks a request for a group and returns the directory of the collection.
func (s *Store) groupDirectory(collection, group string) (*directory, error) {
	if _, err := s.placement(collection); err != nil {
		return nil, err
	}
	d := s.directories[collection]
	if d == nil {
		return nil, fmt.Errorf("%w: the collection %s has no groups", ErrGroup, collection)
	}
	return d, CheckGroup(group)
}

// groupTables lists the range tables that may hold records of a group, in the order of their IDs, each with the part of
// the span that is in its range. After an error there are more, behind those.
func (s *Store) groupTables(ctx context.Context, now *topology, collection, group string, within span) (tables []groupTable, err error) {
	d, err := s.groupDirectory(collection, group)
	if err != nil {
		return nil, err
	}
	from := int64(1)
	if r, _, ok := now.layout.Locate(within.lo); ok {
		from = r.Number
	}
	numbers, err := d.ranges(ctx, group, from)
	if err != nil {
		return nil, err
	}
	for _, number := range numbers {
		r, n, ok := now.layout.Range(number)
		if !ok {
			return tables, fmt.Errorf("list a group: %w: no node of this gateway's config owns range %d", ErrUnavailable, number)
		}
		part := span{max(within.lo, r.Lo), min(within.hi, r.Hi)}
		if part.lo < part.hi {
			tables = append(tables, groupTable{number, tableName(collection, number), now.nodes[n], part})
		}
	}
	return tables, nil
}
