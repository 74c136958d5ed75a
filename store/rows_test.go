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
			db, err := sqldb.Open(t.Context(), engine.Fresh(t), sqldb.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			r := rowsOf(db)
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
	return row{id: id, key: key, version: 1, token: token{byte(id), 1}, createdAt: now, updatedAt: now.Add(time.Microsecond), document: []byte(document)}
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
		if id, err := r.maxID(t.Context(), "t"); id != 1<<62 || err != nil {
			t.Errorf("highest ID %d, %v", id, err)
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
			m.packetBytes = 1 << 20
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
