package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"keyrange/store/sqldb"
	"keyrange/store/typed"
)

// JudgeTables says why the range tables of a node can not be used with the columns that collections declare: what they hold
// would be lost or misread. It writes nothing.
func JudgeTables(ctx context.Context, db *sqldb.DB, collections []Collection) error {
	shapes := schema{}
	for _, c := range collections {
		shapes[c.Name] = shapeOf(c)
	}
	return adapter{db, shapes}.check(ctx)
}

// check judges all range tables of a node.
func (a adapter) check(ctx context.Context) error {
	tables, err := a.columns(ctx, "")
	if err != nil {
		return err
	}
	return a.judge(ctx, tables)
}

// judge compares tables with the shapes of their collections. Tables of collections that config does not have are left alone.
func (a adapter) judge(ctx context.Context, tables map[string][]tableColumn) error {
	var errs []error
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		shape := a.shapes.known(table)
		if shape == nil {
			continue
		}
		declared := map[string]typed.Column{}
		if shape.layout != nil {
			for _, c := range shape.layout.Columns() {
				declared[strings.ToLower(c.Name)] = c
			}
		}
		found := 0
		for _, has := range tables[table] {
			wanted, ok := declared[has.name]
			switch {
			case ok:
				found++
				errs = append(errs, a.compare(table, has, wanted))
			case has.stored.Marked:
				errs = append(errs, fmt.Errorf("table %s has the column %s, which config does not declare: its values would no longer be part of the records. "+
					"Declare it again; or, to lose them, run on each node: ALTER TABLE `%s` DROP COLUMN `%s`", table, has.name, table, has.name))
			}
		}
		if len(declared) > 0 && found == 0 {
			errs = append(errs, a.refuseDocuments(ctx, table))
		}
	}
	return errors.Join(errs...)
}

// compare says why a column that exists is not what config declares.
func (a adapter) compare(table string, has tableColumn, wanted typed.Column) error {
	stored := has.stored.Type
	fits := stored.Holds(wanted.Type)
	if a.db.Engine() == sqldb.SQLite {
		fits = stored.StoredAlike(wanted.Type)
	}
	if fits {
		return nil
	}
	advice := "the type of a column can not change: declare another column"
	if a.db.Engine() == sqldb.MySQL && wanted.Type.Holds(stored) {
		advice = fmt.Sprintf("to widen it, run on each node, before any gateway is started with this config: ALTER TABLE `%s` MODIFY COLUMN `%s` %s", table, wanted.Name, wanted.Type.MySQL())
	}
	text := "of no type that members are kept in"
	if stored != (typed.Type{}) {
		text = stored.String()
	}
	return fmt.Errorf("table %s has the column %s as %s (%s), config declares %s: %s", table, has.name, text, cmp.Or(has.stored.Text, "no type"), wanted.Type, advice)
}

// refuseDocuments refuses a table without columns that holds records: their documents are whole, and would be misread.
func (a adapter) refuseDocuments(ctx context.Context, table string) error {
	records := false
	err := a.db.Query(ctx, func(*sql.Rows) error { records = true; return nil }, fmt.Sprintf("SELECT 1 FROM `%s` WHERE state = 0 LIMIT 1", table))
	if err != nil {
		return fmt.Errorf("look for records in table %s: %w", table, err)
	}
	if records {
		return fmt.Errorf("table %s holds records as whole documents, config declares columns: a collection with records can not get its first columns. "+
			"Declare another collection and copy the records", table)
	}
	return nil
}
