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
	tables, err := a.columns(ctx)
	if err != nil {
		return fmt.Errorf("list the columns of range tables: %w", err)
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

// columns lists the names of the columns of each range table.
func (a adapter) columns(ctx context.Context) (map[string][]string, error) {
	query := "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = DATABASE()"
	if a.db.Engine() == sqldb.SQLite {
		query = "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"
	}
	tables := map[string][]string{}
	err := a.db.Query(ctx, func(r *sql.Rows) error {
		var table, name string
		if err := r.Scan(&table, &name); err != nil {
			return err
		}
		if rangeTableName.MatchString(table) {
			tables[table] = append(tables[table], strings.ToLower(name))
		}
		return nil
	}, query)
	return tables, err
}

// complete adds the columns that a table lacks. Another gateway may be adding them too.
func (a adapter) complete(ctx context.Context, table string, has []string) error {
	for _, c := range slices.Concat(lateColumns, a.shapes.of(table).columns) {
		if slices.Contains(has, strings.ToLower(c.name)) {
			continue
		}
		definition := c.mysql
		if a.db.Engine() == sqldb.SQLite {
			definition = c.sqlite
		}
		_, err := a.db.Exec(ctx, fmt.Sprintf("ALTER TABLE `%s` ADD COLUMN `%s` %s", table, c.name, definition))
		if err == nil {
			continue
		}
		if now, lookErr := a.columns(ctx); lookErr != nil || !slices.Contains(now[table], strings.ToLower(c.name)) {
			return fmt.Errorf("add column %s to table %s: %w", c.name, table, err)
		}
	}
	return nil
}

// adaptNodes brings the range tables of the nodes of a verdict that are ready for use to the shapes of their collections.
// One that cannot be is a fault of its node.
func (s *Store) adaptNodes(ctx context.Context, nodes []*sqldb.DB, v *Verdict) {
	changes := s.judgeGroupings(ctx, nodes, v)
	everyNodeUsable(ctx, nodes, v, func(ctx context.Context, i int, db *sqldb.DB) error {
		if err := (adapter{db, s.shapes}).adapt(ctx); err != nil {
			return err
		}
		for _, c := range changes[i] {
			if err := (groupings{db}).note(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// everyNodeUsable does something with each node of a verdict that is ready for use. An error is a finding on the node.
func everyNodeUsable(ctx context.Context, nodes []*sqldb.DB, v *Verdict, do func(ctx context.Context, i int, db *sqldb.DB) error) {
	var group errgroup.Group
	group.SetLimit(verifyAtOnce)
	for i, db := range nodes {
		found := &v.Nodes[i]
		if db == nil || !found.usable() {
			continue
		}
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
			defer cancel()
			if err := do(ctx, i, db); err != nil {
				found.Away = errors.Is(err, sqldb.ErrUnavailable) || errors.Is(err, sqldb.ErrUnknown)
				found.Err = fmt.Errorf("node at %s: %w", db.Location(), err)
			}
			return nil
		})
	}
	_ = group.Wait() // each finding has its own error
}
