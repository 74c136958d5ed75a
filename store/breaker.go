package store

import (
	"context"
	"errors"
	"time"

	"keyrange/idsegment"
	"keyrange/store/sqldb"
)

// breakerPause is how long a node that is down is left alone before a probe tries it again.
const breakerPause = time.Second

// nodeCircuits take every statement that was not sent or got no answer for a sign that the node is down.
var nodeCircuits = circuitKind{breakerPause, sqldb.ErrUnavailable, func(err error) bool {
	return errors.Is(err, sqldb.ErrUnavailable) || errors.Is(err, sqldb.ErrUnknown)
}}

// guardedRows is a node's range tables behind circuit breakers: one for reads, and one for writes, because a node that
// takes no writes (read-only after a failover, its disk full) still answers reads.
type guardedRows struct {
	rows
	reads, writes *circuit
}

// guard tells of changes with the kind of statements that they are about.
func guard(name string, r rows, barred func() error, onChange func(kind string, down bool)) *guardedRows {
	of := func(kind string) *circuit {
		return newCircuit(nodeCircuits, name, barred, func(open bool) { onChange(kind, open) })
	}
	return &guardedRows{r, of(forReads), of(forWrites)}
}

func (g *guardedRows) prepare(ctx context.Context, table string) error {
	return g.writes.run(func() error { return g.rows.prepare(ctx, table) })
}

func (g *guardedRows) enter(ctx context.Context, table string, issuer int, segment idsegment.Segment, now time.Time) (fresh bool, err error) {
	err = g.writes.run(func() error { fresh, err = g.rows.enter(ctx, table, issuer, segment, now); return err })
	return fresh, err
}

func (g *guardedRows) shorten(ctx context.Context, table string, issuer int, tail idsegment.Segment) error {
	return g.writes.run(func() error { return g.rows.shorten(ctx, table, issuer, tail) })
}

func (g *guardedRows) entered(ctx context.Context, table string, issuer int) (end int64, err error) {
	err = g.reads.run(func() error { end, err = g.rows.entered(ctx, table, issuer); return err })
	return end, err
}

func (g *guardedRows) usage(ctx context.Context, since time.Time) (used map[string]usage, err error) {
	err = g.reads.peek(func() error { used, err = g.rows.usage(ctx, since); return err })
	return used, err
}

func (g *guardedRows) tally(ctx context.Context, table string, windows []span) (live, bytes int64, err error) {
	err = g.reads.peek(func() error { live, bytes, err = g.rows.tally(ctx, table, windows); return err })
	return live, bytes, err
}

func (g *guardedRows) read(ctx context.Context, table string, ids []int64) (found []row, err error) {
	err = g.reads.run(func() error { found, err = g.rows.read(ctx, table, ids); return err })
	return found, err
}

func (g *guardedRows) insert(ctx context.Context, table string, batch []row) []error {
	var errs []error
	if err := g.writes.run(func() error { errs = g.rows.insert(ctx, table, batch); return errs[0] }); errs == nil {
		return repeat(err, len(batch))
	}
	return errs
}

func (g *guardedRows) change(ctx context.Context, table string, batch []rowChange) []answer[changed] {
	var answers []answer[changed]
	if err := g.writes.run(func() error { answers = g.rows.change(ctx, table, batch); return answers[0].err }); answers == nil {
		return failed[changed](len(batch), err)
	}
	return answers
}
