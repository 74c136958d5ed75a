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
	name string
	node *node
	span
}

// ListGroup returns records of a group in the order of their IDs, or backwards: those after an ID, 0 for the first ones, up
// to limit, which is one at least. Fewer are all that there are. Only ranges that hold some of the group are read, or have
// held some. Records that are there all along a walk from page to page are met exactly once; of those that come and go
// meanwhile some may be missed. ErrGroup: the collection has no groups.
func (s *Store) ListGroup(ctx context.Context, collection, group string, after int64, backwards bool, limit int) ([]Record, error) {
	within := span{after + 1, math.MaxInt64}
	if backwards {
		within = span{1, after}
		if after == 0 {
			within.hi = math.MaxInt64
		}
	}
	tables, err := s.groupTables(ctx, collection, group, within)
	if err != nil {
		return nil, err
	}
	if backwards {
		slices.Reverse(tables)
	}
	var found []Record
	for _, t := range tables {
		rows, err := t.node.rows.group(ctx, t.name, group, t.span, backwards, limit-len(found))
		if err != nil {
			return nil, fmt.Errorf("list a group in %s on %s: %w: %w", t.name, t.node.name, ErrUnavailable, err)
		}
		for i := range rows {
			found = append(found, rows[i].record())
		}
		if len(found) == limit {
			break
		}
	}
	return found, nil
}

// CountGroup counts the records of a group, range by range: not all at the same moment.
func (s *Store) CountGroup(ctx context.Context, collection, group string) (int64, error) {
	tables, err := s.groupTables(ctx, collection, group, span{1, math.MaxInt64})
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
// the span that is in its range.
func (s *Store) groupTables(ctx context.Context, collection, group string, within span) ([]groupTable, error) {
	d, err := s.groupDirectory(collection, group)
	if err != nil {
		return nil, err
	}
	now := s.topology.Load()
	from := int64(1)
	if r, _, ok := now.layout.Locate(within.lo); ok {
		from = r.Number
	}
	numbers, err := d.ranges(ctx, group, from)
	if err != nil {
		return nil, err
	}
	var tables []groupTable
	for _, number := range numbers {
		r, n, ok := now.layout.Range(number)
		if !ok {
			return nil, fmt.Errorf("list a group: %w: no node of this gateway's config owns range %d", ErrUnavailable, number)
		}
		part := span{max(within.lo, r.Lo), min(within.hi, r.Hi)}
		if part.lo < part.hi {
			tables = append(tables, groupTable{tableName(collection, number), now.nodes[n], part})
		}
	}
	return tables, nil
}
