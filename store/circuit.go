package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"
)

const (
	// breakerFailures is how many calls in a row must fail before a database counts as down for their kind.
	breakerFailures = 3
	// probePatience bounds one probe. It is above what a database that is slow but up takes.
	probePatience = time.Second
)

// Kinds of calls, as the log and the metrics name them.
const (
	forReads  = "reads"
	forWrites = "writes"
)

// circuitKind is what the circuits of one kind of database have in common.
type circuitKind struct {
	// pause is how long a database that is down is left alone before it is tried again.
	pause time.Duration
	// unavailable is what a refusal matches: the call was not sent.
	unavailable error
	// failed reports whether an error, or nil, means that the database is down.
	failed func(err error) bool
}

// circuit is a circuit breaker in front of one kind of calls to a database. While it is open they are refused at once, as
// unavailable and not sent, and only probes go through: no request is staked on a database that is down. Calls are refused
// as well as long as the database is barred.
type circuit struct {
	circuitKind
	barred  func() error
	breaker *gobreaker.CircuitBreaker[any]
}

func newCircuit(kind circuitKind, name string, barred func() error, onChange func(open bool)) *circuit {
	return &circuit{kind, barred, gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Name: name, Timeout: kind.pause,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		IsSuccessful: func(err error) bool { return !kind.failed(err) },
		// A client that goes away says nothing about the database.
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if from == gobreaker.StateClosed || to == gobreaker.StateClosed {
				onChange(to != gobreaker.StateClosed)
			}
		},
	})}
}

// open reports whether calls are being refused.
func (c *circuit) open() bool { return c.breaker.State() != gobreaker.StateClosed }

// refusal is the answer of a database that may not be used yet, or is down; nil when it is neither.
func (c *circuit) refusal() error {
	if why := c.barred(); why != nil {
		return fmt.Errorf("%w: %s is not used: %s", c.unavailable, c.breaker.Name(), why.Error())
	}
	if c.open() {
		return c.down()
	}
	return nil
}

func (c *circuit) down() error {
	return fmt.Errorf("%w: %s is down", c.unavailable, c.breaker.Name())
}

// run sends one call, or refuses it.
func (c *circuit) run(send func() error) error {
	if err := c.refusal(); err != nil {
		return err
	}
	return c.try(send)
}

// try sends one call even while the circuit is open, but only one at a time and not before the pause is over. Its outcome
// closes the circuit, or begins another pause.
func (c *circuit) try(send func() error) error {
	_, err := c.breaker.Execute(func() (any, error) { return nil, send() })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return c.down()
	}
	return err
}

// peek sends a call that the database may be slow to answer, though it is up. So the answer says nothing about the
// database, and it is not tried on one that is down.
func (c *circuit) peek(send func() error) error {
	if err := c.refusal(); err != nil {
		return err
	}
	return send()
}

// probe looks at the database until it is up again or ctx ends, so that it needs no request to find out.
func (c *circuit) probe(ctx context.Context, look func(ctx context.Context) error) {
	ticker := time.NewTicker(c.pause / 4)
	defer ticker.Stop()
	for c.open() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		_ = c.try(func() error { // the circuit draws the conclusion
			ctx, cancel := context.WithTimeout(ctx, probePatience)
			defer cancel()
			return look(ctx)
		})
	}
}
