package store

import (
	"context"
	"fmt"

	"keyrange/index"
	"keyrange/store/sqldb"
)

// Limits of the lanes, measured (docs/benchmarks): beyond them a batch gains little more and delays those behind it.
const (
	maxInserts = 256
	maxReads   = 128
	maxChanges = 64
)

// table is a range table with its lanes: all requests that touch it at the same time share its statements.
type table struct {
	name    string
	inserts lane[row, struct{}]
	reads   lane[int64, *row]
	changes lane[rowChange, changed]
	fitting *fitting
}

func newTable(s *Store, on *node, name string) *table {
	t := &table{name: name, fitting: newFitting(on, s.shapes, name)}
	// Looked up on each call, not kept, so that tests can put faults in between.
	rows := func() rows { return on.rows }
	t.inserts = lane[row, struct{}]{
		seen: s.metrics.lanes[laneRowInsert],
		run: func(ctx context.Context, batch []row) []answer[struct{}] {
			if err := t.fitting.fit(ctx); err != nil {
				return failed[struct{}](len(batch), err)
			}
			return answersOf(rows().insert(ctx, name, batch))
		},
		limit: maxInserts, weight: func(r row) int { return r.size() }, parallel: 1,
		unsent: sqldb.ErrUnavailable, unknown: sqldb.ErrUnknown,
	}
	t.reads = lane[int64, *row]{
		seen: s.metrics.lanes[laneRowRead],
		run: func(ctx context.Context, ids []int64) []answer[*row] {
			if err := t.fitting.fit(ctx); err != nil {
				return failed[*row](len(ids), err)
			}
			return readBatch(ctx, rows(), name, ids)
		},
		limit: maxReads, parallel: 2,
		unsent: sqldb.ErrUnavailable, unknown: sqldb.ErrUnavailable, // a read changes nothing
	}
	t.changes = lane[rowChange, changed]{
		seen: s.metrics.lanes[laneRowChange],
		run: func(ctx context.Context, batch []rowChange) []answer[changed] {
			if err := t.fitting.fit(ctx); err != nil {
				return failed[changed](len(batch), err)
			}
			return rows().change(ctx, name, batch)
		},
		limit: maxChanges, weight: func(c rowChange) int { return c.size() }, parallel: 1,
		unsent: sqldb.ErrUnavailable, unknown: sqldb.ErrUnknown,
	}
	return t
}

// readBatch answers each ID with its row, or nil. Callers that asked for the same ID share the row.
func readBatch(ctx context.Context, on rows, table string, ids []int64) []answer[*row] {
	found, err := on.read(ctx, table, ids)
	if err != nil {
		return failed[*row](len(ids), err)
	}
	byID := make(map[int64]*row, len(found))
	for i := range found {
		byID[found[i].id] = &found[i]
	}
	answers := make([]answer[*row], len(ids))
	for i, id := range ids {
		answers[i].value = byID[id]
	}
	return answers
}

// entries is the index of one collection with its lanes.
type entries struct {
	inserts  lane[index.Entry, struct{}]
	finds    lane[string, int64]
	removals lane[index.Entry, struct{}]
}

func newEntries(s *Store, collection string) *entries {
	e := &entries{}
	e.inserts = lane[index.Entry, struct{}]{
		seen: s.metrics.lanes[laneEntryInsert],
		run: func(ctx context.Context, batch []index.Entry) []answer[struct{}] {
			return answersOf(s.index.Insert(ctx, collection, batch))
		},
		limit: maxInserts, parallel: 1, unsent: index.ErrUnavailable, unknown: index.ErrUnknown,
	}
	e.finds = lane[string, int64]{
		seen: s.metrics.lanes[laneEntryFind],
		run: func(ctx context.Context, keys []string) []answer[int64] {
			return findBatch(ctx, s.index, collection, keys)
		},
		limit: maxReads, parallel: 1, unsent: index.ErrUnavailable, unknown: index.ErrUnavailable,
	}
	e.removals = lane[index.Entry, struct{}]{
		seen: s.metrics.lanes[laneEntryRemove],
		run: func(ctx context.Context, batch []index.Entry) []answer[struct{}] {
			return answersOf(repeat(s.index.Remove(ctx, collection, batch), len(batch)))
		},
		limit: maxInserts, parallel: 1, unsent: index.ErrUnavailable, unknown: index.ErrUnknown,
	}
	return e
}

// findBatch answers each key with the ID of its entry, or 0, which is no ID.
func findBatch(ctx context.Context, ix index.Index, collection string, keys []string) []answer[int64] {
	ids, err := ix.Find(ctx, collection, keys)
	if err != nil {
		return failed[int64](len(keys), err)
	}
	answers := make([]answer[int64], len(keys))
	for i, key := range keys {
		answers[i].value = ids[key]
	}
	return answers
}

// tableOf returns the range table that owns an ID.
func (s *Store) tableOf(collection string, id int64) (*table, error) {
	now := s.topology.Load()
	r, n, ok := now.layout.Locate(id)
	if !ok {
		// Another gateway knows more nodes: a rollout of a larger config is under way, or has passed this one by.
		s.log.Warn("an entry points beyond the last node of this gateway's config", "collection", collection, "id", id)
		return nil, fmt.Errorf("locate row %d: %w: no node owns its range", id, ErrUnavailable)
	}
	return s.tableOn(now.nodes[n], collection, r.Number), nil
}

// tableOn returns the range table of a range that a node owns.
func (s *Store) tableOn(on *node, collection string, number int64) *table {
	key := tableKey{collection, number, on}
	if t, ok := s.tables.Load(key); ok {
		return t.(*table)
	}
	t, _ := s.tables.LoadOrStore(key, newTable(s, on, tableName(collection, number)))
	return t.(*table)
}

// tableKey finds an open range table.
type tableKey struct {
	collection string
	number     int64
	node       *node
}
