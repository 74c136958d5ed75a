package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"

	"keyrange/idsegment"
	"keyrange/store/sqldb"
)

const (
	// breakerFailures is how many statements in a row must fail before a node counts as down for their kind.
	breakerFailures = 3
	// breakerPause is how long a node that is down is left alone before one statement tries it again.
	breakerPause = time.Second
)

// Kinds of statements, as the log names them.
const (
	forReads  = "reads"
	forWrites = "writes"
)

// circuit is a circuit breaker in front of one kind of a node's statements. While it is open they are refused at once, as
// unavailable and not sent. So they are as long as the node is barred.
type circuit struct {
	barred  func() error
	breaker *gobreaker.CircuitBreaker[any]
}

func newCircuit(name string, barred func() error, onChange func(open bool)) *circuit {
	return &circuit{barred, gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Name: name, Timeout: breakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		IsSuccessful: func(err error) bool {
			return !errors.Is(err, sqldb.ErrUnavailable) && !errors.Is(err, sqldb.ErrUnknown)
		},
		// A client that goes away says nothing about the node.
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if from == gobreaker.StateClosed || to == gobreaker.StateClosed {
				onChange(to != gobreaker.StateClosed)
			}
		},
	})}
}

// open reports whether statements are being refused, or only a single one is let through to try the node again.
func (c *circuit) open() bool { return c.breaker.State() != gobreaker.StateClosed }

// refusal is the answer of a node that may not be used yet.
func (c *circuit) refusal() error {
	if why := c.barred(); why != nil {
		return fmt.Errorf("%w: %s is not used: %s", sqldb.ErrUnavailable, c.breaker.Name(), why.Error())
	}
	return nil
}

// run sends one statement, or refuses it.
func (c *circuit) run(send func() error) error {
	if err := c.refusal(); err != nil {
		return err
	}
	_, err := c.breaker.Execute(func() (any, error) { return nil, send() })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return fmt.Errorf("%w: %s is down", sqldb.ErrUnavailable, c.breaker.Name())
	}
	return err
}

// peek runs a statement of which the node may be slow to answer, though it is up. So the answer says nothing about the
// node, and it is not tried on one that is down.
func (c *circuit) peek(send func() error) error {
	if err := c.refusal(); err != nil {
		return err
	}
	if c.open() {
		return fmt.Errorf("%w: %s is down", sqldb.ErrUnavailable, c.breaker.Name())
	}
	return send()
}

// guardedRows is a node's range tables behind circuit breakers: one for reads, and one for writes, because a node that
// takes no writes (read-only after a failover, its disk full) still answers reads.
type guardedRows struct {
	rows
	reads, writes *circuit
}

// guard tells of changes with the kind of statements that they are about.
func guard(name string, r rows, barred func() error, onChange func(kind string, down bool)) *guardedRows {
	of := func(kind string) *circuit {
		return newCircuit(name, barred, func(open bool) { onChange(kind, open) })
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
