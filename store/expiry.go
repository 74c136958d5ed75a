package store

import (
	"errors"
	"fmt"
	"time"

	"keyrange/store/sqldb"
)

// A record with an expiry ceases to exist at that moment by the clock of the node that keeps its row. It is one clock for
// all gateways and all statements on the row, so that no two of them disagree on whether the record is there, and it is
// read by the statement itself: a write that is held up on its way finds the record expired when it gets there. The clocks
// of gateways only say which moment a client's number of seconds leads to.
//
// An expired row stays where it is, and its entry keeps pointing at it, until a create takes the entry over or the sweeper
// comes along. Both remove the row first, by a statement that demands that it has expired.

// expiryGrace is how long the sweeper leaves expired rows alone, which is far more than what the clocks of a node and of the
// one that takes its place after a failure may differ by.
const expiryGrace = time.Minute

// nodeClock is the SQL for what the node's clock shows when the statement begins, in the form of expires_at.
func nodeClock(engine sqldb.Engine) string {
	if engine == sqldb.SQLite {
		return "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
	}
	return "UTC_TIMESTAMP(6)"
}

// aliveSQL is the condition, without arguments, of rows that have not expired. Every statement that looks for records
// among live rows (state = 0) needs it.
func aliveSQL(engine sqldb.Engine) string {
	return "(expires_at IS NULL OR expires_at > " + nodeClock(engine) + ")"
}

// expiredSQL is the opposite of aliveSQL. It is never NULL.
func expiredSQL(engine sqldb.Engine) string {
	return "(expires_at IS NOT NULL AND expires_at <= " + nodeClock(engine) + ")"
}

// overdueSQL is the condition of rows that expired so long ago that the sweeper removes them. It is never NULL.
func overdueSQL(engine sqldb.Engine) string {
	before := fmt.Sprintf("%s - INTERVAL %d SECOND", nodeClock(engine), expiryGrace/time.Second)
	if engine == sqldb.SQLite {
		before = fmt.Sprintf("%s - %d", nodeClock(engine), expiryGrace.Microseconds())
	}
	return "(expires_at IS NOT NULL AND expires_at <= " + before + ")"
}

// alive reports whether the row is a record that has not expired.
func (r *row) alive() bool { return r != nil && r.state == live && !r.expired }

// outlived reports whether the row was the record of a key, and has expired.
func (r *row) outlived(key string) bool {
	return r != nil && r.state == live && r.expired && r.key == key
}

// bury removes the expired row of the key at an ID, and returns what is there afterwards: nil when no row is and, because
// one was, none will ever be (I2). Only then may the entry that points there be changed. After an error the row may be gone,
// or go yet, which no client can tell from before.
func (c *creation) bury(id int64) (*row, error) {
	s, change := c.store, rowChange{id: id, key: c.key, expired: true}
	done, err := s.changeRow(c.budget, c.ids.collection, change)
	if errors.Is(err, sqldb.ErrUnknown) {
		// It may be sent again: it can only ever remove this one expired row.
		ctx, cancel := c.budget.resolving()
		defer cancel()
		done, err = s.changeRow(ctx, c.ids.collection, change)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("remove expired row %d: %w: %w", id, ErrUnavailable, err)
	case done.ok:
		return nil, nil
	}
	r, err := s.readRow(c.budget, c.ids.collection, id) // another request has removed it, or the clock was set back
	if err == nil && r.outlived(c.key) {
		err = errLost
	}
	return r, err
}
