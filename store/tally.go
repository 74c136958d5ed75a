package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"keyrange/store/sqldb"
)

const (
	// tallyWindows windows of windowIDs IDs each are what an estimate looks at: 4096 IDs, whatever the size of the range.
	tallyWindows = 16
	windowIDs    = 256
	// tallyChunkIDs is how many IDs one statement of a whole count looks at, which bounds the time that it takes.
	tallyChunkIDs = 100_000
)

// span is a block of IDs, [lo, hi).
type span struct{ lo, hi int64 }

// counter counts the rows of a node's range tables.
type counter interface {
	// tally counts the live rows in windows of IDs that do not overlap, one at least, and the bytes of their keys and
	// documents, members in columns included. A table that does not exist has none.
	tally(ctx context.Context, table string, windows []span) (live, bytes int64, err error)
}

// sqlCounter counts in one statement, in words that all engines understand.
//
// Safety: as for mysqlRows.
type sqlCounter struct{ db *sqldb.DB }

func (c sqlCounter) tally(ctx context.Context, table string, windows []span) (live, bytes int64, err error) {
	query := "SELECT COUNT(*), COALESCE(SUM(OCTET_LENGTH(biz_key) + OCTET_LENGTH(document)%s), 0) FROM `%s` WHERE state = 0 AND (id >= ? AND id < ?%s)"
	args := make([]any, 0, 2*len(windows))
	for _, w := range windows {
		args = append(args, w.lo, w.hi)
	}
	members, err := c.columnLengths(ctx, table)
	if err != nil {
		return 0, 0, err
	}
	err = c.db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&live, &bytes) },
		fmt.Sprintf(query, members, table, strings.Repeat(" OR id >= ? AND id < ?", len(windows)-1)), args...)
	return live, bytes, unlessMissing(ctx, c.db, table, err)
}

// members adds up the lengths of the columns of a table that keep members.
func (c sqlCounter) columnLengths(ctx context.Context, table string) (sum string, err error) {
	tables, err := adapter{c.db, nil}.columns(ctx, table)
	for _, has := range tables[table] {
		if has.stored.Marked {
			sum += fmt.Sprintf(" + COALESCE(OCTET_LENGTH(`%s`), 0)", has.name)
		}
	}
	return sum, err
}

// unlessMissing forgives a refusal of a statement whose table does not exist.
func unlessMissing(ctx context.Context, db *sqldb.DB, table string, err error) error {
	if !errors.Is(err, sqldb.ErrRejected) {
		return err
	}
	if exists, lookErr := db.TableExists(ctx, table); lookErr != nil || exists {
		return err
	}
	return nil
}

// tally is what is known of the live rows of a range.
type tally struct {
	live, bytes int64
	// exact says that each was counted.
	exact bool
}

// count counts the live rows among the issued IDs of a range table, of which there is one at least. A whole count tells
// done how many more IDs it has looked at, as it goes on; otherwise it looks into some windows only.
func count(ctx context.Context, on counter, table string, issued span, whole bool, done func(ids int64)) (tally, error) {
	if !whole {
		ids := issued.hi - issued.lo
		live, bytes, err := on.tally(ctx, table, windowsOf(issued))
		seen := min(ids, tallyWindows*windowIDs)
		scale := float64(ids) / float64(seen)
		return tally{int64(float64(live) * scale), int64(float64(bytes) * scale), seen == ids}, err
	}
	sum := tally{exact: true}
	for lo := issued.lo; lo < issued.hi; lo += tallyChunkIDs {
		chunk := span{lo, min(lo+tallyChunkIDs, issued.hi)}
		live, bytes, err := on.tally(ctx, table, []span{chunk})
		if err != nil {
			return tally{}, err
		}
		sum.live += live
		sum.bytes += bytes
		done(chunk.hi - chunk.lo)
	}
	return sum, nil
}

// windowsOf spreads windows evenly over a span that is not empty, or covers it when it is not larger than they are.
func windowsOf(all span) []span {
	part := (all.hi - all.lo) / tallyWindows
	if all.hi-all.lo <= tallyWindows*windowIDs {
		return []span{all}
	}
	windows := make([]span, tallyWindows)
	for i := range windows {
		lo := all.lo + int64(i)*part + (part-windowIDs)/2 // in the middle of its part
		windows[i] = span{lo, lo + windowIDs}
	}
	return windows
}
