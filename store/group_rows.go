package store

import (
	"context"
	"database/sql"
	"fmt"

	"keyrange/store/sqldb"
)

// groupIndex is the name of the index over (group_key, id, expires_at), which is all that counting needs, of a MySQL range table; SQLite, where names of indexes are those
// of the whole file, has the name of the table before it. Fences have no group, so that they are not found by it.
const groupIndex = "by_group"

// groupIndexSQLite is the quoted name of the index of a SQLite range table.
func groupIndexSQLite(table string) string { return `"` + table + "_" + groupIndex + `"` }

// indexGroups adds the index to a table that lacks it. It needs no lock that would hold up reads or writes for long, and the
// tables of a collection that is given a group are empty.
func indexGroups(ctx context.Context, db *sqldb.DB, table string) error {
	if db.Engine() == sqldb.SQLite {
		_, err := db.Exec(ctx, fmt.Sprintf(`CREATE INDEX IF NOT EXISTS %s ON "%s" (group_key, id, expires_at) WHERE group_key IS NOT NULL`, groupIndexSQLite(table), table))
		if err != nil {
			return fmt.Errorf("index the groups of table %s: %w", table, err)
		}
		return nil
	}
	exists, err := hasGroupIndex(ctx, db, table)
	if err != nil || exists {
		return err
	}
	if _, err = db.Exec(ctx, fmt.Sprintf("ALTER TABLE `%s` ADD INDEX %s (group_key, id, expires_at), ALGORITHM = INPLACE, LOCK = NONE", table, groupIndex)); err == nil {
		return nil
	}
	if exists, lookErr := hasGroupIndex(ctx, db, table); lookErr == nil && exists {
		return nil // another gateway has added it
	}
	return fmt.Errorf("index the groups of table %s: %w", table, err)
}

func hasGroupIndex(ctx context.Context, db *sqldb.DB, table string) (found bool, err error) {
	err = db.Query(ctx, func(*sql.Rows) error { found = true; return nil },
		"SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = ? AND index_name = ? LIMIT 1", table, groupIndex)
	if err != nil {
		return false, fmt.Errorf("inspect the indexes of table %s: %w", table, err)
	}
	return found, nil
}

// grouper finds the rows of a group in a range table of a grouped collection.
type grouper interface {
	// members returns the rows of a group that have not expired, within a span of IDs, in the order of their IDs: the first of them up to limit.
	// Fewer are all that there are.
	members(ctx context.Context, table, group string, within span, limit int) ([]brief, error)
	// count counts the rows of a group that have not expired.
	count(ctx context.Context, table, group string) (int64, error)
}

// byGroup names the table in a query that uses the index.
func (s sqlScanner) byGroup(table string) string {
	if s.db.Engine() == sqldb.SQLite {
		return fmt.Sprintf(`"%s" INDEXED BY %s`, table, groupIndexSQLite(table))
	}
	return fmt.Sprintf("`%s` FORCE INDEX (%s)", table, groupIndex)
}

func (s sqlScanner) members(ctx context.Context, table, group string, within span, limit int) ([]brief, error) {
	return s.briefsOf(ctx, table, s.byGroup(table), "group_key = ? AND id >= ? AND id < ? AND state = 0 AND "+aliveSQL(s.db.Engine())+" ORDER BY id LIMIT ?",
		[]any{[]byte(group), within.lo, within.hi, limit})
}

// count reads only the index: rows of a group are live.
func (s sqlScanner) count(ctx context.Context, table, group string) (n int64, err error) {
	err = s.db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&n) },
		"SELECT COUNT(*) FROM "+s.byGroup(table)+" WHERE group_key = ? AND "+aliveSQL(s.db.Engine()), []byte(group))
	return n, err
}

func (g *guardedRows) members(ctx context.Context, table, group string, within span, limit int) (found []brief, err error) {
	err = g.reads.peek(func() error { found, err = g.rows.members(ctx, table, group, within, limit); return err })
	return found, err
}

func (g *guardedRows) count(ctx context.Context, table, group string) (n int64, err error) {
	err = g.reads.peek(func() error { n, err = g.rows.count(ctx, table, group); return err })
	return n, err
}
