package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"keyrange/store/sqldb"
	"keyrange/test/servers"
)

// TestRowsExtras: what rows have besides a document comes back as it was stored, of a plain collection and of one with columns.
func TestRowsExtras(t *testing.T) {
	shapes := schema{"more": newShape("", column{"colour", "VARCHAR(20) NULL", "TEXT"}, column{"size", "BIGINT NULL", "INTEGER"})}
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			db, err := sqldb.Open(t.Context(), engine.Fresh(t), sqldb.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			r := rowsOf(db, shapes)
			for _, table := range []string{"plain_r00001", "more_r00001"} {
				if err := r.prepare(t.Context(), table); err != nil {
					t.Fatal(err)
				}
				full, bare := testRow(1, "full", "{}"), testRow(2, "bare", "{}")
				full.Group, full.ExpiresAt = "g", time.Date(2026, 3, 1, 12, 0, 0, 7000, time.UTC)
				if table == "more_r00001" {
					full.cells, bare.cells = []any{"red", int64(7)}, []any{nil, nil}
				}
				for i, err := range r.insert(t.Context(), table, []row{full, bare, testRow(3, "fenced", "{}").asFence()}) {
					if err != nil {
						t.Fatalf("%s: row %d: %v", table, i, err)
					}
				}
				found := byID(t, r, table)
				if got := found[1]; got.Group != "g" || !got.ExpiresAt.Equal(full.ExpiresAt) || !sameCells(got.cells, full.cells) {
					t.Errorf("%s: read %+v, want %+v", table, got, full)
				}
				if got := found[2]; got.Group != "" || !got.ExpiresAt.IsZero() || !sameCells(got.cells, bare.cells) {
					t.Errorf("%s: read %+v, want %+v", table, got, bare)
				}
				change := rowChange{id: 2, key: "bare", updatedAt: full.updatedAt, Content: Content{Document: []byte("{}"), ExpiresAt: full.ExpiresAt}, cells: full.cells}
				if got := r.change(t.Context(), table, []rowChange{change})[0]; got.err != nil || !got.value.ok {
					t.Errorf("%s: change: %+v", table, got)
				}
				if got := byID(t, r, table)[2]; !got.ExpiresAt.Equal(full.ExpiresAt) || !sameCells(got.cells, full.cells) {
					t.Errorf("%s: after the change %+v", table, got)
				}
			}
		})
	}
}

// byID reads the rows 1 to 3 of a table.
func byID(t *testing.T, r rows, table string) map[int64]row {
	t.Helper()
	all, err := r.read(t.Context(), table, []int64{1, 2, 3})
	if err != nil || len(all) != 3 {
		t.Fatalf("%s: read %d rows, %v", table, len(all), err)
	}
	found := map[int64]row{}
	for _, f := range all {
		found[f.id] = f
	}
	return found
}

// sameCells compares what was read with what was written, whatever Go type the driver reads it as.
func sameCells(got, want []any) bool {
	text := func(cells []any) string {
		var out []string
		for _, c := range cells {
			if b, ok := c.([]byte); ok {
				c = string(b)
			}
			out = append(out, fmt.Sprint(c))
		}
		return strings.Join(out, "|")
	}
	return text(got) == text(want)
}

// TestAdapt: range tables of an earlier version, or of fewer columns, get what they lack, keep their rows, and nothing else
// in the database is touched. Doing it again, and in two gateways at once, changes nothing.
func TestAdapt(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			ctx := t.Context()
			db, err := sqldb.Open(ctx, engine.Fresh(t), sqldb.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			earlier := rowsOf(db, nil)
			if err := earlier.prepare(ctx, "more_r00001"); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(earlier.insert(ctx, "more_r00001", []row{testRow(1, "k", `{"a":1}`)})...); err != nil {
				t.Fatal(err)
			}
			for _, statement := range []string{
				"ALTER TABLE more_r00001 DROP COLUMN expires_at", "ALTER TABLE more_r00001 DROP COLUMN group_key",
				"CREATE TABLE others (id INT)", "CREATE TABLE more_reports (id INT)",
			} {
				if _, err := db.Exec(ctx, statement); err != nil {
					t.Fatal(err)
				}
			}
			shapes := schema{"more": newShape("", column{"Colour", "VARCHAR(20) NULL", "TEXT"})}
			failed := make(chan error)
			for range 2 {
				go func() { failed <- adapter{db, shapes}.adapt(ctx) }()
			}
			if err := errors.Join(<-failed, <-failed, adapter{db, shapes}.adapt(ctx)); err != nil {
				t.Fatal(err)
			}
			r := rowsOf(db, shapes)
			if got, err := r.read(ctx, "more_r00001", []int64{1}); err != nil || len(got) != 1 || string(got[0].Document) != `{"a":1}` || got[0].cells[0] != nil {
				t.Errorf("the old row is %+v, %v", got, err)
			}
			coloured := testRow(2, "l", "{}")
			coloured.cells = []any{"red"}
			if err := errors.Join(r.insert(ctx, "more_r00001", []row{coloured})...); err != nil {
				t.Error(err)
			}
			for _, other := range []string{"others", "more_reports"} {
				columns, err := adapter{db, shapes}.columns(ctx, "")
				if _, listed := columns[other]; listed || err != nil {
					t.Errorf("%s is taken for a range table: %v", other, err)
				}
			}
		})
	}
}
