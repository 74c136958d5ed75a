package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"keyrange/store/sqldb"
)

// brief is what a sweep needs to know of a row: all but its document.
type brief struct {
	id    int64
	key   string
	state rowState
	// group is that of a row of a grouped collection.
	group string
	// updatedAt is when a fence was made, by the clock of the gateway that made it.
	updatedAt time.Time
	// overdue: it has expired, expiryGrace or longer ago. Until then it passes for a row like any other.
	overdue bool
}

// belongsTo reports whether the row, which may be nil for none, is the record of a key.
func (b *brief) belongsTo(key string) bool { return b != nil && b.state == live && b.key == key }

// scanner looks through a node's range tables without reading documents.
type scanner interface {
	// tables lists the names of all tables of the database.
	tables(ctx context.Context) ([]string, error)
	// top is the highest ID in a range table; 0 when it is empty.
	top(ctx context.Context, table string) (int64, error)
	// scan returns the rows of a range table within a span of IDs, fences included, in the order of their IDs: the first of
	// them up to limit, which is one at least. Fewer are all that there are.
	scan(ctx context.Context, table string, within span, limit int) ([]brief, error)
	// glance returns those of the rows that exist, in no particular order, fences included. It takes one ID at least.
	glance(ctx context.Context, table string, ids []int64) ([]brief, error)
	// purge deletes those of the rows, one at least, that are fences and were made before a moment, and returns how many.
	purge(ctx context.Context, table string, ids []int64, before time.Time) (int64, error)
	// expire deletes those of the rows, one at least, that are overdue, and returns how many.
	expire(ctx context.Context, table string, ids []int64) (int64, error)
}

// sqlScanner scans in words that all engines understand.
//
// Safety: as for mysqlRows.
type sqlScanner struct {
	db     *sqldb.DB
	shapes schema
}

func (s sqlScanner) tables(ctx context.Context) (names []string, err error) {
	query := "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
	if s.db.Engine() == sqldb.SQLite {
		query = "SELECT name FROM sqlite_master WHERE type = 'table'"
	}
	err = s.db.Query(ctx, func(r *sql.Rows) error {
		var name string
		if err := r.Scan(&name); err != nil {
			return err
		}
		names = append(names, name)
		return nil
	}, query)
	return names, err
}

func (s sqlScanner) top(ctx context.Context, table string) (id int64, err error) {
	err = s.db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&id) }, fmt.Sprintf("SELECT COALESCE(MAX(id), 0) FROM `%s`", table))
	return id, err
}

func (s sqlScanner) scan(ctx context.Context, table string, within span, limit int) ([]brief, error) {
	return s.briefs(ctx, table, "id >= ? AND id < ? ORDER BY id LIMIT ?", []any{within.lo, within.hi, limit})
}

func (s sqlScanner) glance(ctx context.Context, table string, ids []int64) ([]brief, error) {
	list, args := idList(ids)
	return s.briefs(ctx, table, "id IN ("+list+")", args)
}

// groupColumn is the column of groups, of tables that have any. Others may lack it.
func (s sqlScanner) groupColumn(table string) string {
	if s.shapes.of(table).grouped() {
		return "group_key"
	}
	return "NULL"
}

// idList is the inside of an IN clause, with its arguments.
func idList(ids []int64) (string, []any) {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	return "?" + strings.Repeat(",?", len(ids)-1), args
}

func (s sqlScanner) briefs(ctx context.Context, table, where string, args []any) ([]brief, error) {
	return s.briefsOf(ctx, table, "`"+table+"`", where, args)
}

// briefsOf reads from a table as from says it.
func (s sqlScanner) briefsOf(ctx context.Context, table, from, where string, args []any) (found []brief, err error) {
	query := fmt.Sprintf("SELECT id, biz_key, state, updated_at, state = 0 AND %s, %s FROM %s WHERE %s",
		overdueSQL(s.db.Engine()), s.groupColumn(table), from, where)
	err = s.db.Query(ctx, func(r *sql.Rows) error {
		var b brief
		var key, group sql.RawBytes
		var micros int64
		at := any(&b.updatedAt)
		if s.db.Engine() == sqldb.SQLite {
			at = &micros
		}
		if err := r.Scan(&b.id, &key, &b.state, at, &b.overdue, &group); err != nil {
			return err
		}
		if at == any(&micros) {
			b.updatedAt = time.UnixMicro(micros).UTC()
		}
		b.key, b.group = string(key), string(group)
		found = append(found, b)
		return nil
	}, query, args...)
	return found, err
}

func (s sqlScanner) purge(ctx context.Context, table string, ids []int64, before time.Time) (int64, error) {
	list, args := idList(ids)
	moment := any(before.UTC())
	if s.db.Engine() == sqldb.SQLite {
		moment = before.UnixMicro()
	}
	result, err := s.db.Exec(ctx, fmt.Sprintf("DELETE FROM `%s` WHERE id IN (%s) AND state = 1 AND updated_at < ?", table, list), append(args, moment)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (s sqlScanner) expire(ctx context.Context, table string, ids []int64) (int64, error) {
	list, args := idList(ids)
	result, err := s.db.Exec(ctx, fmt.Sprintf("DELETE FROM `%s` WHERE id IN (%s) AND state = 0 AND %s", table, list, overdueSQL(s.db.Engine())), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// A node may be slow to answer a sweep, though it is up, so that what becomes of it says nothing about the node.

func (g *guardedRows) tables(ctx context.Context) (names []string, err error) {
	err = g.reads.peek(func() error { names, err = g.rows.tables(ctx); return err })
	return names, err
}

func (g *guardedRows) top(ctx context.Context, table string) (id int64, err error) {
	err = g.reads.peek(func() error { id, err = g.rows.top(ctx, table); return err })
	return id, err
}

func (g *guardedRows) scan(ctx context.Context, table string, within span, limit int) (found []brief, err error) {
	err = g.reads.peek(func() error { found, err = g.rows.scan(ctx, table, within, limit); return err })
	return found, err
}

func (g *guardedRows) glance(ctx context.Context, table string, ids []int64) (found []brief, err error) {
	err = g.reads.peek(func() error { found, err = g.rows.glance(ctx, table, ids); return err })
	return found, err
}

func (g *guardedRows) purge(ctx context.Context, table string, ids []int64, before time.Time) (n int64, err error) {
	err = g.writes.peek(func() error { n, err = g.rows.purge(ctx, table, ids, before); return err })
	return n, err
}

func (g *guardedRows) expire(ctx context.Context, table string, ids []int64) (n int64, err error) {
	err = g.writes.peek(func() error { n, err = g.rows.expire(ctx, table, ids); return err })
	return n, err
}
