package integration

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"keyrange/test/gateway"
)

// stacks runs a test on each kind of stack, side by side.
func stacks(t *testing.T, run func(t *testing.T, kind string)) {
	t.Helper()
	for _, kind := range gateway.Kinds(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			run(t, kind)
		})
	}
}

// dump is everything that is stored in the servers of a stack, to be compared with a later dump. Embedded databases
// are left out, because their files may not exist yet.
func dump(t *testing.T, s gateway.Stack) string {
	t.Helper()
	var out strings.Builder
	seen := map[string]bool{}
	for _, dsn := range append([]string{s.Issuer}, dsnsOf(s.Nodes)...) {
		if !seen[dsn] {
			dumpSQL(t, &out, dsn)
		}
		seen[dsn] = true
	}
	for _, e := range gateway.Entries(t, s.Index) {
		fmt.Fprintf(&out, "%+v\n", e)
	}
	return out.String()
}

// dsnsOf lists the databases of nodes.
func dsnsOf(nodes []gateway.Node) (dsns []string) {
	for _, n := range nodes {
		dsns = append(dsns, n.DSN)
	}
	return dsns
}

// dumpSQL writes all rows of all tables.
func dumpSQL(t *testing.T, out *strings.Builder, dsn string) {
	t.Helper()
	db := gateway.OpenSQL(t, dsn)
	defer db.Close()
	for _, table := range gateway.Tables(t, db, dsn) {
		fmt.Fprintf(out, "%s %s\n", dsn, table)
		rows, err := db.Query("SELECT * FROM " + table + " ORDER BY 1, 2") // the gateway made the name
		if err != nil {
			t.Fatal(err)
		}
		dumpRows(t, out, rows)
	}
}

// dumpRows writes one line per row.
func dumpRows(t *testing.T, out *strings.Builder, rows *sql.Rows) {
	t.Helper()
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	values, targets := make([]sql.RawBytes, len(names)), make([]any, len(names))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(out, "  %q\n", values)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// ownedIDs checks that each node has no range tables but its own and no rows in them but its own, and returns the ID
// of each live row by key. size is the number of IDs in a range.
func ownedIDs(t *testing.T, s gateway.Stack, collection string) map[string]int64 {
	t.Helper()
	ids := map[string]int64{}
	for i, n := range s.Nodes {
		db := gateway.OpenSQL(t, n.DSN)
		own := fmt.Sprintf("%s_r%05d", collection, i+1)
		lo, hi := int64(i)*s.RangeSize+1, int64(i+1)*s.RangeSize
		for _, table := range gateway.Tables(t, db, n.DSN) {
			if strings.HasPrefix(table, collection+"_r") && table != own {
				t.Errorf("%s has the range table %s, its own is %s", n.Name, table, own)
			}
			if table != own {
				continue
			}
			for key, id := range liveRows(t, db, table) {
				if id < lo || id > hi {
					t.Errorf("%s holds ID %d, it owns %d to %d", n.Name, id, lo, hi)
				}
				if other, twice := ids[key]; twice {
					t.Errorf("key %q lives at %d and at %d", key, other, id)
				}
				ids[key] = id
			}
		}
	}
	return ids
}

// liveRows reads the keys and IDs of a range table.
func liveRows(t *testing.T, db *sql.DB, table string) map[string]int64 {
	t.Helper()
	ids := map[string]int64{}
	rows, err := db.Query("SELECT biz_key, id FROM " + table + " WHERE state = 0") // the gateway made the name
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key []byte
		var id int64
		if err := rows.Scan(&key, &id); err != nil {
			t.Fatal(err)
		}
		if other, twice := ids[string(key)]; twice {
			t.Errorf("key %q lives at %d and at %d", key, other, id)
		}
		ids[string(key)] = id
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}
