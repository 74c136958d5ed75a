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

// rowSuite runs a test on the range tables of each engine.
func rowSuite(t *testing.T, run func(t *testing.T, r rows)) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			t.Parallel()
			db, err := sqldb.Open(t.Context(), engine.Fresh(t), sqldb.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			r := rowsOf(db, nil)
			for range 2 { // preparing twice changes nothing
				if err := r.prepare(t.Context(), "t"); err != nil {
					t.Fatal(err)
				}
			}
			run(t, r)
		})
	}
}

func testRow(id int64, key, document string) row {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	return row{id: id, key: key, version: 1, token: token{byte(id), 1}, createdAt: now, updatedAt: now.Add(time.Microsecond), Content: Content{Document: []byte(document)}}
}

func TestRowsRoundTrip(t *testing.T) {
	rowSuite(t, func(t *testing.T, r rows) {
		want := testRow(1<<62, "k", `{"a":1}`)
		if err := r.insert(t.Context(), "t", []row{want})[0]; err != nil {
			t.Fatal(err)
		}
		got, err := r.read(t.Context(), "t", []int64{5, 1 << 62})
		if err != nil || len(got) != 1 || fmt.Sprint(got[0]) != fmt.Sprint(want) {
			t.Errorf("read %v, %v; want %v", got, err, want)
		}
	})
}

// TestRowsBatchFailsAlone: of a batch, in whatever order, the rows that are there already are refused and the others added.
func TestRowsBatchFailsAlone(t *testing.T) {
	rowSuite(t, func(t *testing.T, r rows) {
		taken := []row{testRow(3, "other", "{}"), testRow(5, "fenced", "{}").asFence()}
		for _, err := range r.insert(t.Context(), "t", taken) {
			if err != nil {
				t.Fatal(err)
			}
		}
		var batch []row
		for _, id := range []int64{9, 5, 1, 3, 7} {
			batch = append(batch, testRow(id, fmt.Sprintf("k%d", id), `{}`))
		}
		for i, err := range r.insert(t.Context(), "t", batch) {
			if occupied := batch[i].id == 3 || batch[i].id == 5; occupied != errors.Is(err, sqldb.ErrDuplicate) || !occupied && err != nil {
				t.Errorf("row %d: %v", batch[i].id, err)
			}
		}
		found, err := r.read(t.Context(), "t", []int64{1, 3, 5, 7, 9})
		keys := map[int64]string{}
		for _, f := range found {
			keys[f.id] = f.key
		}
		if want := "map[1:k1 3:other 5:fenced 7:k7 9:k9]"; err != nil || fmt.Sprint(keys) != want {
			t.Errorf("found %v, %v; want %s", keys, err, want)
		}
	})
}

// TestRowsBatchAboveThePacketLimit: rows that do not fit one statement together go in several.
func TestRowsBatchAboveThePacketLimit(t *testing.T) {
	rowSuite(t, func(t *testing.T, r rows) {
		if m, ok := r.(*mysqlRows); ok {
			m.packetBytes = func() int64 { return 1 << 20 }
		}
		var batch []row
		for id := int64(1); id <= 10; id++ {
			batch = append(batch, testRow(id, "k", `{"v":"`+strings.Repeat(`\"`, 100_000)+`"}`))
		}
		for i, err := range r.insert(t.Context(), "t", batch) {
			if err != nil {
				t.Errorf("row %d: %v", i, err)
			}
		}
	})
}

// TestRowsChangeBatch: of a batch, each change is judged by its own condition, in order, and answers with its version.
func TestRowsChangeBatch(t *testing.T) {
	rowSuite(t, func(t *testing.T, r rows) {
		for _, err := range r.insert(t.Context(), "t", []row{testRow(1, "a", "{}"), testRow(2, "b", "{}"), testRow(3, "c", "{}").asFence()}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		now := time.Now().UTC().Truncate(time.Microsecond)
		update := func(id int64, key string, versions ...int64) rowChange {
			return rowChange{id: id, key: key, versions: versions, token: token{9}, updatedAt: now, Content: Content{Document: []byte(fmt.Sprintf(`{"by":%d}`, len(versions)))}}
		}
		remove := func(id int64, key string, versions ...int64) rowChange {
			return rowChange{id: id, key: key, versions: versions}
		}
		steps := []struct {
			change rowChange
			want   changed
		}{
			{update(1, "a"), changed{true, 2}},
			{update(1, "a", 1), changed{}},
			{update(1, "a", 7, 2), changed{true, 3}},
			{update(2, "a"), changed{}}, // another key's row
			{update(3, "c"), changed{}}, // a fence
			{update(4, "d"), changed{}}, // no row
			{remove(2, "b", 9), changed{}},
			{remove(2, "b", 1), changed{ok: true}},
			{remove(2, "b"), changed{}},
			{remove(3, "c"), changed{}},
			{update(1, "a"), changed{true, 4}},
		}
		var batch []rowChange
		for _, s := range steps {
			batch = append(batch, s.change)
		}
		for i, got := range r.change(t.Context(), "t", batch) {
			if want := steps[i].want; got.err != nil || got.value.ok != want.ok || got.value.ok && want.version > 0 && got.value.version != want.version {
				t.Errorf("step %d: %+v, want %+v", i, got, want)
			}
		}
		found, err := r.read(t.Context(), "t", []int64{1, 2, 3})
		if err != nil || len(found) != 2 {
			t.Fatalf("found %v, %v", found, err)
		}
		for _, f := range found {
			if f.id == 1 && (string(f.Document) != `{"by":0}` || f.version != 4 || f.token != (token{9}) || !f.updatedAt.Equal(now)) {
				t.Errorf("row 1 is %+v", f)
			}
		}
	})
}

// TestRowsBadItemFailsAlone: a row and a change that the server rejects do not take their batch with them.
func TestRowsBadItemFailsAlone(t *testing.T) {
	rowSuite(t, func(t *testing.T, r rows) {
		if _, ok := r.(*mysqlRows); !ok {
			return // SQLite stores any bytes as text
		}
		bad := testRow(2, "b", "\xff")
		for i, err := range r.insert(t.Context(), "t", []row{testRow(1, "a", "{}"), bad, testRow(3, "c", "{}")}) {
			if (i == 1) != errors.Is(err, sqldb.ErrRejected) || i != 1 && err != nil {
				t.Errorf("insert %d: %v", i, err)
			}
		}
		changes := []rowChange{{id: 1, key: "a", Content: Content{Document: []byte("{}")}}, {id: 1, key: "a", Content: Content{Document: []byte("\xff")}}, {id: 3, key: "c", Content: Content{Document: []byte("{}")}}}
		for i := range changes {
			changes[i].updatedAt = time.Now().UTC()
		}
		for i, got := range r.change(t.Context(), "t", changes) {
			if (i == 1) != errors.Is(got.err, sqldb.ErrRejected) || i != 1 && !got.value.ok {
				t.Errorf("change %d: %+v", i, got)
			}
		}
	})
}
