package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"keyrange/index"
	"keyrange/store/sqldb"
)

// simIndex is one gateway's way to the index. Methods that the simulation does not use are those of a nil Index.
type simIndex struct {
	index.Index
	world   *simWorld
	gateway *simGateway
}

// call makes a call of this gateway.
func (x *simIndex) call(ctx context.Context, items int, write bool, format string, args ...any) *simCall {
	return &simCall{ctx: ctx, gateway: x.gateway, items: items, write: write, label: x.gateway.name + " index " + fmt.Sprintf(format, args...)}
}

// Insert implements index.Index: an unordered bulk insert, of which any part may take effect.
func (x *simIndex) Insert(ctx context.Context, collection string, entries []index.Entry) []error {
	insert := x.world.db.insertEntry
	if collection == directoryOf(simCollection) {
		insert = x.world.db.insertPlace
		if x.world.mutant == mutantUnlisted {
			return repeat(nil, len(entries))
		}
	}
	if ctx.Err() != nil {
		return repeat(fmt.Errorf("%w: %w", index.ErrUnavailable, ctx.Err()), len(entries))
	}
	errs := repeat(index.ErrUnknown, len(entries))
	c := x.call(ctx, len(entries), true, "insert %v", entries)
	c.settle = func(f simFate) {
		// Servers may answer for the duplicates although the others have no certain outcome, as with a write concern error;
		// and drivers that send once more find what came through the first time.
		answered := f == fateLost && x.world.rng.IntN(2) == 0
		again := answered && x.world.rng.IntN(2) == 0
		for i, e := range entries {
			own := x.world.itemFate(f, len(entries))
			errs[i] = c.outcome(index.ErrUnknown)
			switch own {
			case fateDone, fateLost:
				inserted := insert(e)
				if own == fateDone && inserted {
					errs[i] = nil
				} else if !inserted && (own == fateDone || answered) || again && own == fateLost {
					errs[i] = c.outcome(index.ErrExists)
				}
			case fateRefused:
				errs[i] = c.outcome(index.ErrUnavailable)
			case fateLate:
				x.world.later(c.label+fmt.Sprintf(" (%v)", e), func() { insert(e) })
			}
		}
	}
	x.world.park(c)
	return errs
}

// Find implements index.Index.
func (x *simIndex) Find(ctx context.Context, _ string, keys []string) (map[string]int64, error) {
	found, err := map[string]int64{}, fmt.Errorf("%w: dead", index.ErrUnavailable)
	c := x.call(ctx, len(keys), false, "find %v", keys)
	c.settle = func(f simFate) {
		if err = nil; f != fateDone {
			err = c.outcome(index.ErrUnavailable)
			return
		}
		for _, key := range keys {
			if id, ok := x.world.db.entries[key]; ok {
				found[key] = id
			}
		}
		x.world.tracef("  found %v", found)
	}
	x.world.park(c)
	return found, err
}

// Replace implements index.Index.
func (x *simIndex) Replace(ctx context.Context, _, key string, old, new int64) (bool, error) {
	if ctx.Err() != nil {
		return false, fmt.Errorf("%w: %w", index.ErrUnavailable, ctx.Err())
	}
	swapped, err := false, fmt.Errorf("%w: dead", index.ErrUnknown)
	c := x.call(ctx, 1, true, "replace {%s %d} with %d", key, old, new)
	c.settle = func(f simFate) {
		err = c.outcome(index.ErrUnknown)
		switch f {
		case fateDone:
			swapped, err = x.world.db.replaceEntry(key, old, new), nil
		case fateRefused:
			err = c.outcome(index.ErrUnavailable)
		case fateLost:
			x.world.db.replaceEntry(key, old, new)
		case fateLate:
			x.world.later(c.label, func() { x.world.db.replaceEntry(key, old, new) })
		}
	}
	x.world.park(c)
	return swapped, err
}

// Remove implements index.Index: a bulk of deletions, of which any part may take effect.
func (x *simIndex) Remove(ctx context.Context, _ string, entries []index.Entry) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", index.ErrUnavailable, ctx.Err())
	}
	err := fmt.Errorf("%w: dead", index.ErrUnknown)
	c := x.call(ctx, len(entries), true, "remove %v", entries)
	c.settle = func(f simFate) {
		switch f {
		case fateDone:
			err = nil
		case fateRefused:
			err = c.outcome(index.ErrUnavailable)
		default:
			err = c.outcome(index.ErrUnknown)
		}
		for _, e := range entries {
			switch x.world.itemFate(f, len(entries)) {
			case fateDone, fateLost:
				x.world.db.removeEntry(e)
			case fateLate:
				x.world.later(c.label+fmt.Sprintf(" (%v)", e), func() { x.world.db.removeEntry(e) })
			case fateRefused:
				if f == fateDone {
					err = c.outcome(index.ErrUnknown) // one of them failed
				}
			}
		}
	}
	x.world.park(c)
	return err
}

// simRows is one gateway's way to one node, behind its circuit breaker. Methods that the simulation does not use are those
// of a nil rows.
type simRows struct {
	rows
	world   *simWorld
	gateway *simGateway
	node    string
}

// call makes a call of this gateway.
func (n *simRows) call(ctx context.Context, items int, write bool, format string, args ...any) *simCall {
	return &simCall{ctx: ctx, gateway: n.gateway, items: items, write: write, label: n.gateway.name + " " + n.node + " " + fmt.Sprintf(format, args...)}
}

// insert implements rows as one of the two dialects does it.
func (n *simRows) insert(ctx context.Context, _ string, batch []row) []error {
	switch n.world.mutant {
	case mutantNoFence:
		return n.insertWithoutFences(ctx, batch)
	case mutantBlindResend:
		return n.insertAgainAndAgain(ctx, batch)
	}
	return n.insertAll(ctx, batch)
}

// insertAll sends a batch in one statement. Where that is atomic, and one row was a duplicate, the rows then go one by one.
func (n *simRows) insertAll(ctx context.Context, batch []row) []error {
	errs := n.statement(ctx, batch)
	if n.world.atomic && len(batch) > 1 && errors.Is(errs[0], sqldb.ErrDuplicate) {
		for i := range batch {
			errs[i] = n.statement(ctx, batch[i:i+1])[0]
		}
	}
	return errs
}

// statement sends one INSERT, which is committed as a whole or not at all, whenever it lands.
func (n *simRows) statement(ctx context.Context, batch []row) []error {
	if ctx.Err() != nil {
		return repeat(fmt.Errorf("%w: %w", sqldb.ErrUnavailable, ctx.Err()), len(batch))
	}
	batch = slices.Clone(batch) // it may land when the caller is long gone
	errs := repeat(sqldb.ErrUnknown, len(batch))
	var names []string
	for _, r := range batch {
		names = append(names, describeRow(r))
	}
	c := n.call(ctx, len(batch), true, "insert %s", strings.Join(names, " "))
	c.settle = func(f simFate) {
		db, atomic := n.world.db, n.world.atomic
		err := c.outcome(sqldb.ErrUnknown)
		switch f {
		case fateDone:
			for i, duplicate := range db.insertRows(batch, atomic) {
				if errs[i] = nil; duplicate {
					errs[i] = c.outcome(sqldb.ErrDuplicate)
				}
			}
			return
		case fateRefused:
			err = c.outcome(sqldb.ErrUnavailable)
		case fateLost:
			db.insertRows(batch, atomic)
		case fateLate:
			n.world.later(c.label, func() { db.insertRows(batch, atomic) })
		}
		for i := range errs {
			errs[i] = err
		}
	}
	n.world.park(c)
	return errs
}

func (n *simRows) read(ctx context.Context, _ string, ids []int64) ([]row, error) {
	var found []row
	err := fmt.Errorf("%w: dead", sqldb.ErrUnavailable)
	c := n.call(ctx, len(ids), false, "read %v", ids)
	c.settle = func(f simFate) {
		if err = nil; f != fateDone {
			err = c.outcome(sqldb.ErrUnavailable)
			return
		}
		for _, id := range ids {
			if r, ok := n.world.db.read(id); ok {
				r.expired = r.expired && n.world.mutant != mutantStale
				found = append(found, r)
				n.world.tracef("  found %s", describeRow(r))
			}
		}
	}
	n.world.park(c)
	return found, err
}

// change implements rows: one transaction.
func (n *simRows) change(ctx context.Context, _ string, batch []rowChange) []answer[changed] {
	if ctx.Err() != nil {
		return failed[changed](len(batch), fmt.Errorf("%w: %w", sqldb.ErrUnavailable, ctx.Err()))
	}
	batch = slices.Clone(batch)
	answers := failed[changed](len(batch), fmt.Errorf("%w: dead", sqldb.ErrUnknown))
	var names []string
	for i := range batch {
		names = append(names, describeChange(&batch[i]))
	}
	c := n.call(ctx, len(batch), true, "%s", strings.Join(names, ", "))
	run := func(tell bool) {
		for i := range batch {
			done := n.world.db.change(&batch[i])
			if done.ok && batch[i].expired {
				n.world.stats.expired++
			}
			if tell {
				answers[i] = answer[changed]{value: done}
				n.world.tracef("  %s: %v", names[i], done)
			}
		}
	}
	c.settle = func(f simFate) {
		copy(answers, failed[changed](len(batch), c.outcome(sqldb.ErrUnknown)))
		switch f {
		case fateDone:
			run(true)
		case fateRefused:
			copy(answers, failed[changed](len(batch), c.outcome(sqldb.ErrUnavailable)))
		case fateLost:
			run(false)
		case fateLate:
			n.world.later(c.label, func() { run(false) })
		}
	}
	n.world.park(c)
	return answers
}

// describeChange names a conditional write in labels and traces.
func describeChange(c *rowChange) string {
	what := "update to " + string(c.Document)
	if c.removes() {
		what = "delete"
	}
	if c.expired {
		what += " expired"
	}
	if len(c.versions) > 0 {
		return fmt.Sprintf("%s {%s %d} at %v", what, c.key, c.id, c.versions)
	}
	return fmt.Sprintf("%s {%s %d}", what, c.key, c.id)
}

// queuedRows is a node as the store sees it: what several goroutines ask of it at the same moment passes the circuit
// breaker behind it one by one.
type queuedRows struct {
	rows
	world   *simWorld
	gateway *simGateway
}

func (q *queuedRows) insert(ctx context.Context, table string, batch []row) []error {
	q.world.turnstile(ctx, q.gateway, fmt.Sprintf("%s to insert %d %s", q.gateway.name, batch[0].id, table))
	return q.rows.insert(ctx, table, batch)
}

func (q *queuedRows) read(ctx context.Context, table string, ids []int64) ([]row, error) {
	q.world.turnstile(ctx, q.gateway, fmt.Sprintf("%s to read %d %s", q.gateway.name, ids[0], table))
	return q.rows.read(ctx, table, ids)
}

func (q *queuedRows) change(ctx context.Context, table string, batch []rowChange) []answer[changed] {
	q.world.turnstile(ctx, q.gateway, fmt.Sprintf("%s to change %d %s", q.gateway.name, batch[0].id, table))
	return q.rows.change(ctx, table, batch)
}

// queuedIndex is the index as the store sees it, as queuedRows is a node.
type queuedIndex struct {
	*gatedIndex
	world   *simWorld
	gateway *simGateway
}

func (q *queuedIndex) Insert(ctx context.Context, collection string, entries []index.Entry) []error {
	q.world.turnstile(ctx, q.gateway, fmt.Sprintf("%s to insert entry %v", q.gateway.name, entries[0]))
	return q.gatedIndex.Insert(ctx, collection, entries)
}

func (q *queuedIndex) Find(ctx context.Context, collection string, keys []string) (map[string]int64, error) {
	q.world.turnstile(ctx, q.gateway, fmt.Sprintf("%s to find entry %s", q.gateway.name, keys[0]))
	return q.gatedIndex.Find(ctx, collection, keys)
}

func (q *queuedIndex) Replace(ctx context.Context, collection, key string, old, new int64) (bool, error) {
	q.world.turnstile(ctx, q.gateway, fmt.Sprintf("%s to replace entry %s %d", q.gateway.name, key, new))
	return q.gatedIndex.Replace(ctx, collection, key, old, new)
}

func (q *queuedIndex) Remove(ctx context.Context, collection string, entries []index.Entry) error {
	q.world.turnstile(ctx, q.gateway, fmt.Sprintf("%s to remove entry %v", q.gateway.name, entries[0]))
	return q.gatedIndex.Remove(ctx, collection, entries)
}
