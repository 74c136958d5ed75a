package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"keyrange/store/sqldb"
)

// window is what a look at a range table is to return.
type window struct {
	span
	// group keeps to the rows of a group; "" for all. The table must be one of a collection with groups.
	group      string
	descending bool
	// limit is the most rows, one at least.
	limit int
	// bytes bounds their documents together. With some, the first row is returned whatever its size is.
	bytes int64
	some  bool
}

// lister walks through a node's range tables.
type lister interface {
	// list returns the live rows in a window of a range table, in the order of their IDs. When they are fewer than the
	// limit they are all that there are, unless they were cut because the next one is too large for the window.
	list(ctx context.Context, table string, w window) (found []row, cut bool, err error)
	// occupied says of each of the tables, which exist and of which there are occupiedTables at most, whether it has a live
	// row.
	occupied(ctx context.Context, tables []string) ([]bool, error)
}

// occupiedTables is the most tables that one statement looks into.
const occupiedTables = 32

// errCut ends the reading of rows.
var errCut = errors.New("the window is full")

// listRows lists the live rows that have not expired, through each, which reads whole rows.
func listRows(ctx context.Context, engine sqldb.Engine, w window, each func(ctx context.Context, where string, args []any, take func(row) error) error) (found []row, cut bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	order, bytes := "ASC", int64(0)
	if w.descending {
		order = "DESC"
	}
	where, args := "WHERE id >= ? AND id < ?", []any{w.lo, w.hi}
	if w.group != "" {
		where, args = "WHERE group_key = ? AND id >= ? AND id < ?", append([]any{[]byte(w.group)}, args...)
	}
	err = each(ctx, where+" AND state = 0 AND "+aliveSQL(engine)+" ORDER BY id "+order+" LIMIT ?", append(args, w.limit), func(r row) error {
		if bytes += int64(r.size()); bytes > w.bytes && (len(found) > 0 || !w.some) {
			// Without this, what the server has yet to send would be read to its end. It costs the connection.
			cancel()
			cut = true
			return errCut
		}
		found = append(found, r)
		return nil
	})
	if cut {
		return found, true, nil
	}
	return found, false, err
}

// The index of groups is named, lest a small LIMIT makes MySQL walk the whole table in the order of its IDs.
func (m *mysqlRows) list(ctx context.Context, table string, w window) ([]row, bool, error) {
	return listRows(ctx, sqldb.MySQL, w, func(ctx context.Context, where string, args []any, take func(row) error) error {
		if w.group != "" {
			where = "FORCE INDEX (" + groupIndex + ") " + where
		}
		return m.each(ctx, table, where, args, take)
	})
}

func (s *sqliteRows) list(ctx context.Context, table string, w window) ([]row, bool, error) {
	return listRows(ctx, sqldb.SQLite, w, func(ctx context.Context, where string, args []any, take func(row) error) error {
		if w.group != "" {
			where = "INDEXED BY " + groupIndexSQLite(table) + " " + where
		}
		return s.each(ctx, table, where, args, take)
	})
}

func (s sqlScanner) occupied(ctx context.Context, tables []string) ([]bool, error) {
	parts := make([]string, len(tables))
	has, columns := make([]bool, len(tables)), make([]any, len(tables))
	for i, table := range tables {
		parts[i] = fmt.Sprintf("EXISTS (SELECT 1 FROM `%s` WHERE state = 0)", table)
		columns[i] = &has[i]
	}
	err := s.db.Query(ctx, func(r *sql.Rows) error { return r.Scan(columns...) }, "SELECT "+strings.Join(parts, ", "))
	return has, err
}

func (g *guardedRows) list(ctx context.Context, table string, w window) (found []row, cut bool, err error) {
	err = g.reads.run(func() error { found, cut, err = g.rows.list(ctx, table, w); return err })
	return found, cut, err
}

func (g *guardedRows) occupied(ctx context.Context, tables []string) (has []bool, err error) {
	err = g.reads.run(func() error { has, err = g.rows.occupied(ctx, tables); return err })
	return has, err
}
