package access

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Limits bound the requests of one client to one gateway; zero is no bound.
type Limits struct {
	// RequestsPerSecond is the rate in the long run, Burst how many may come at once.
	RequestsPerSecond float64
	Burst             int
	// Concurrent is how many may be under way at once.
	Concurrent int
}

// retryConcurrent is when to try again after too many requests at once; nobody knows when one of them ends.
const retryConcurrent = time.Second

// LimitedError is the ErrLimited of a client with too many requests.
type LimitedError struct {
	// RetryAfter is how long to wait before the request may pass.
	RetryAfter time.Duration
	text       string
}

// Error says which limit it was.
func (e *LimitedError) Error() string { return ErrLimited.Error() + ": " + e.text }

// Unwrap makes it an ErrLimited.
func (e *LimitedError) Unwrap() error { return ErrLimited }

// meter counts the requests of one client. It outlives the Client: a changed file of keys keeps what was counted.
type meter struct {
	// limits are the Limits in force.
	limits atomic.Pointer[Limits]
	// limiter is that of Limits.RequestsPerSecond; nil without.
	limiter  atomic.Pointer[rate.Limiter]
	underWay atomic.Int64
}

// newMeter makes a meter that has counted nothing.
func newMeter(limits Limits) *meter {
	m := &meter{}
	m.set(limits)
	return m
}

// set changes the limits of the requests to come. One call at a time.
func (m *meter) set(limits Limits) {
	was := m.limits.Swap(&limits)
	switch {
	case limits.RequestsPerSecond == 0:
		m.limiter.Store(nil)
	case was == nil || was.RequestsPerSecond != limits.RequestsPerSecond || was.Burst != limits.Burst:
		m.limiter.Store(rate.NewLimiter(rate.Limit(limits.RequestsPerSecond), limits.Burst))
	}
}

// Enter counts a request of the client, or refuses it with a *LimitedError. leave must be called when the request is over;
// it is nil after a refusal.
func (c *Client) Enter() (leave func(), err error) {
	m := c.meter
	if m == nil {
		return func() {}, nil
	}
	now := m.underWay.Add(1)
	leave = func() { m.underWay.Add(-1) }
	if most := m.limits.Load().Concurrent; most > 0 && now > int64(most) {
		leave()
		return nil, &LimitedError{retryConcurrent, fmt.Sprintf("the client %s has %d requests under way, the most that it may", c.Name, most)}
	}
	limiter := m.limiter.Load()
	if limiter == nil {
		return leave, nil
	}
	reservation := limiter.Reserve()
	if wait := reservation.Delay(); wait > 0 {
		reservation.Cancel()
		leave()
		return nil, &LimitedError{wait, fmt.Sprintf("the client %s may send %v requests a second", c.Name, float64(limiter.Limit()))}
	}
	return leave, nil
}
