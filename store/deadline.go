package store

import (
	"context"
	"time"
)

const (
	// defaultDeadline bounds an operation whose caller set no deadline.
	defaultDeadline = 10 * time.Second
	// resolveShare is the part of a write's time, one quarter, that is kept for finding out what an unanswered
	// statement did.
	resolveShare = 4
)

// budget splits the time of one write (I8). Steps run under its context; when one of them ends without an answer, the
// rest of the time belongs to resolving it.
type budget struct {
	context.Context
	end time.Time
}

// newBudget makes the budget of a write. A client that goes away does not stop it half way: that would only turn a known
// outcome into an unknown one. The deadline still holds.
func newBudget(ctx context.Context) (budget, context.CancelFunc) {
	now := time.Now()
	end, ok := ctx.Deadline()
	if !ok {
		end = now.Add(defaultDeadline)
	}
	steps, cancel := context.WithDeadline(context.WithoutCancel(ctx), end.Add(-end.Sub(now)/resolveShare))
	return budget{steps, end}, cancel
}

// resolving is the context for resolving an unknown outcome and for cleaning up.
func (b budget) resolving() (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithoutCancel(b.Context), b.end)
}
