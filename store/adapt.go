package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"keyrange/store/sqldb"
	"keyrange/store/typed"
)

// lateColumns are columns of every range table that tables made by earlier versions lack.
var lateColumns = []column{
	{"expires_at", "DATETIME(6) NULL COMMENT 'UTC'", "INTEGER"},
	{"group_key", "VARBINARY(255) NULL", "BLOB"},
}

// rangeTableName tells range tables from other tables of a database.
var rangeTableName = regexp.MustCompile(`^\w+_r\d{5,}$`)

// adapter gives range tables that exist the columns that they lack. Adding one that may be NULL changes no row, so that it
// is done at once whatever the size of the table, and while other gateways use it.
type adapter struct {
	db     *sqldb.DB
	shapes schema
}

// adapt brings all range tables of a node to the shapes of their collections.
func (a adapter) adapt(ctx context.Context) error {
	tables, err := a.columns(ctx, "")
	if err != nil {
		return err
	}
	for table, has := range tables {
		if err := a.complete(ctx, table, has); err != nil {
			return err
		}
		if a.shapes.of(table).grouped() {
			if err := indexGroups(ctx, a.db, table); err != nil {
				return err
			}
		}
	}
	return nil
}

// tableColumn is a column of a range table as it is.
type tableColumn struct {
	name   string // in lower case
	stored typed.Stored
}

// columns lists the columns of each range table, or of one.
func (a adapter) columns(ctx context.Context, only string) (map[string][]tableColumn, error) {
	query, args := "SELECT table_name, column_name, column_type, column_comment FROM information_schema.columns WHERE table_schema = DATABASE()", []any(nil)
	if a.db.Engine() == sqldb.SQLite {
		query = "SELECT m.name AS table_name, c.name, c.type, '' FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"
	}
	if only != "" {
		query, args = query+" AND table_name = ?", []any{only}
	}
	tables := map[string][]tableColumn{}
	err := a.db.Query(ctx, func(r *sql.Rows) error {
		var table, name, typeText, comment string
		if err := r.Scan(&table, &name, &typeText, &comment); err != nil {
			return err
		}
		if !rangeTableName.MatchString(table) {
			return nil
		}
		c := tableColumn{strings.ToLower(name), typed.FromSQLite(typeText)}
		if a.db.Engine() == sqldb.MySQL {
			c.stored = typed.FromMySQL(typeText, comment)
		}
		tables[table] = append(tables[table], c)
		return nil
	}, query, args...)
	if err != nil {
		err = fmt.Errorf("list the columns of range tables: %w", err)
	}
	return tables, err
}

// lacking lists the columns that a table should have and has not.
func (a adapter) lacking(table string, has []tableColumn) (missing []column) {
	for _, c := range slices.Concat(lateColumns, a.shapes.of(table).columns) {
		if !slices.ContainsFunc(has, func(h tableColumn) bool { return h.name == strings.ToLower(c.name) }) {
			missing = append(missing, c)
		}
	}
	return missing
}

// complete adds the columns that a table lacks. Another gateway may be adding them too.
func (a adapter) complete(ctx context.Context, table string, has []tableColumn) error {
	missing := a.lacking(table, has)
	for len(missing) > 0 {
		err := a.add(ctx, table, missing)
		if err == nil {
			return nil
		}
		now, lookErr := a.columns(ctx, table)
		still := a.lacking(table, now[table])
		if lookErr != nil || len(still) >= len(missing) {
			return fmt.Errorf("add column %s to table %s: %w (by hand: %s)", missing[0].name, table, err, strings.Join(a.additions(table, missing), "; "))
		}
		missing = still
	}
	return nil
}

// add adds columns to a table.
func (a adapter) add(ctx context.Context, table string, columns []column) error {
	for _, statement := range a.additions(table, columns) {
		if _, err := a.db.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// additions are the statements that add columns to a table: a single one, where that is possible, because a server can only
// do so a number of times before it has to copy the table.
func (a adapter) additions(table string, columns []column) []string {
	var parts []string
	for _, c := range columns {
		definition := c.mysql
		if a.db.Engine() == sqldb.SQLite {
			definition = c.sqlite
		}
		parts = append(parts, fmt.Sprintf("ADD COLUMN `%s` %s", c.name, definition))
	}
	if a.db.Engine() == sqldb.MySQL {
		parts = []string{strings.Join(parts, ", ")}
	}
	for i := range parts {
		parts[i] = fmt.Sprintf("ALTER TABLE `%s` %s", table, parts[i])
	}
	return parts
}

// judgeNodes looks, without changing anything, whether the range tables of the nodes of a verdict can be brought to the
// shapes of their collections. Where not, that is a fault of the node.
func (s *Store) judgeNodes(ctx context.Context, nodes []*sqldb.DB, v *Verdict) {
	eachAdapter(ctx, nodes, s.shapes, v, func(f *Finding) bool { return f.Err == nil && !f.Away },
		func(ctx context.Context, _ int, a adapter) error { return a.check(ctx) })
}

// adaptNodes brings the range tables of the nodes of a verdict that are ready for use to the shapes of their collections.
// One that cannot be is a fault of its node.
func (s *Store) adaptNodes(ctx context.Context, nodes []*sqldb.DB, v *Verdict) {
	changes := s.judgeGroupings(ctx, nodes, v)
	eachAdapter(ctx, nodes, s.shapes, v, func(f *Finding) bool { return f.usable() }, func(ctx context.Context, i int, a adapter) error {
		if err := a.adapt(ctx); err != nil {
			return err
		}
		for _, c := range changes[i] {
			if err := (groupings{a.db}).note(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachAdapter does one thing to some nodes of a verdict, many at a time. An error is a finding on the node.
func eachAdapter(ctx context.Context, nodes []*sqldb.DB, shapes schema, v *Verdict, which func(*Finding) bool, do func(ctx context.Context, i int, a adapter) error) {
	var group errgroup.Group
	group.SetLimit(verifyAtOnce)
	for i, db := range nodes {
		found := &v.Nodes[i]
		if db == nil || !which(found) {
			continue
		}
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
			defer cancel()
			if err := do(ctx, i, adapter{db, shapes}); err != nil {
				found.Away = errors.Is(err, sqldb.ErrUnavailable) || errors.Is(err, sqldb.ErrUnknown)
				found.Err = fmt.Errorf("node at %s: %w", db.Location(), err)
			}
			return nil
		})
	}
	_ = group.Wait() // each finding has its own error
}
