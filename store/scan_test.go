package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"keyrange/store/sqldb"
)

// TestRowsScan: a walk meets every row once, in the order of the IDs, fences included; a glance finds those that exist.
func TestRowsScan(t *testing.T) {
	rowSuite(t, func(t *testing.T, r rows) {
		ctx := t.Context()
		if top, err := r.top(ctx, "t"); top != 0 || err != nil {
			t.Errorf("an empty table ends at %d, %v", top, err)
		}
		var want []brief
		for _, id := range []int64{1, 2, 5, 9, 10, 1 << 62} {
			added := testRow(id, fmt.Sprintf("k %d \xff ", id), `{}`)
			if id%5 == 0 {
				added = added.asFence()
			}
			switch id {
			case 2:
				added.ExpiresAt = time.Now().Add(-time.Second)
			case 9:
				added.ExpiresAt = time.Now().Add(-time.Hour)
			}
			if err := r.insert(ctx, "t", []row{added})[0]; err != nil {
				t.Fatal(err)
			}
			want = append(want, brief{id: id, key: added.key, state: added.state, updatedAt: added.updatedAt, overdue: id == 9})
		}
		for _, limit := range []int{1, 2, 6, 100} {
			var got []brief
			for from := int64(math.MinInt64); ; {
				batch, err := r.scan(ctx, "t", span{from, math.MaxInt64}, limit)
				if err != nil || len(batch) > limit {
					t.Fatalf("%d rows, %v", len(batch), err)
				}
				got = append(got, batch...)
				if len(batch) < limit {
					break
				}
				from = batch[limit-1].id + 1
			}
			if !slices.Equal(got, want) {
				t.Errorf("in batches of %d: %v, want %v", limit, got, want)
			}
		}
		if got, err := r.scan(ctx, "t", span{2, 9}, 100); err != nil || !slices.Equal(got, want[1:3]) {
			t.Errorf("within a span: %v, %v", got, err)
		}
		got, err := r.glance(ctx, "t", []int64{9, 3, 5})
		slices.SortFunc(got, func(a, b brief) int { return int(a.id - b.id) })
		if err != nil || !slices.Equal(got, want[2:4]) {
			t.Errorf("at a glance: %v, %v", got, err)
		}
		if top, err := r.top(ctx, "t"); top != 1<<62 || err != nil {
			t.Errorf("the table ends at %d, %v", top, err)
		}
		if names, err := r.tables(ctx); err != nil || !slices.Contains(names, "t") {
			t.Errorf("tables %v, %v", names, err)
		}
		_, scan := r.scan(ctx, "nowhere", span{0, 1}, 1)
		_, glance := r.glance(ctx, "nowhere", []int64{1})
		for _, err := range []error{scan, glance} {
			if !errors.Is(err, sqldb.ErrRejected) {
				t.Errorf("a table that does not exist: %v", err)
			}
		}
	})
}

// TestRowsPurge: only fences go, and only old ones, and only those that were named.
func TestRowsPurge(t *testing.T) {
	rowSuite(t, func(t *testing.T, r rows) {
		ctx := t.Context()
		made := testRow(1, "", "").updatedAt
		for id := range int64(4) {
			added := testRow(id+1, "k", "{}").asFence()
			if id == 1 {
				added = testRow(id+1, "k", "{}")
			}
			if id == 2 {
				added.updatedAt = made.Add(time.Microsecond)
			}
			if err := r.insert(ctx, "t", []row{added})[0]; err != nil {
				t.Fatal(err)
			}
		}
		if n, err := r.purge(ctx, "t", []int64{1, 2, 3, 9}, made); n != 0 || err != nil {
			t.Errorf("too early: %d, %v", n, err)
		}
		if n, err := r.purge(ctx, "t", []int64{1, 2, 3, 9}, made.Add(time.Microsecond)); n != 1 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
		left, err := r.scan(ctx, "t", span{0, 100}, 100)
		ids := fmt.Sprint(len(left), " rows:")
		for _, b := range left {
			ids += fmt.Sprint(" ", b.id)
		}
		if ids != "3 rows: 2 3 4" || err != nil {
			t.Errorf("left %s, %v", ids, err)
		}
	})
}
