package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// docUntil is doc with an expiry so far from now.
func docUntil(text string, left time.Duration) Content {
	content := doc(text)
	content.ExpiresAt = time.Now().Add(left).UTC().Truncate(time.Microsecond)
	return content
}

// mustExpire makes a record that has been expired for so long.
func mustExpire(t *testing.T, s *opened, key string, ago time.Duration) Record {
	t.Helper()
	rec, err := s.Create(t.Context(), testCollection, key, docUntil("before", -ago))
	if err != nil {
		t.Fatalf("create %q: %v", key, err)
	}
	return rec
}

// TestStoreExpired: to every operation a record that has expired is none, and its ID never lives again (I2).
func TestStoreExpired(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s, ctx := d.open(t), t.Context()
		once := NewOnce("attempt", testCollection, "once", doc("x").Document)
		tests := map[string]func(t *testing.T, old Record){
			"get": func(t *testing.T, old Record) {
				for range 2 { // the second time, nothing is cached
					_, err := s.Get(ctx, testCollection, "get")
					wantError(t, "get", err, ErrNotFound)
				}
			},
			"put": func(t *testing.T, old Record) {
				rec, created, err := s.Put(ctx, testCollection, "put", doc("new"), Condition{})
				if err != nil || !created || rec.Tag.ID == old.Tag.ID || rec.Tag.Version != 1 {
					t.Errorf("put: %+v, created %v, %v", rec, created, err)
				}
				wantDocument(t, s, "put", doc("new").Document)
			},
			"put if": func(t *testing.T, old Record) {
				for _, cond := range []Condition{{Exists: true}, {Tags: []Tag{old.Tag}}} {
					_, _, err := s.Put(ctx, testCollection, "put if", doc("new"), cond)
					wantError(t, "put", err, ErrPrecondition)
				}
			},
			"create": func(t *testing.T, old Record) {
				if rec := mustCreate(t, s, "create", "new"); rec.Tag.ID == old.Tag.ID {
					t.Errorf("it took the place of %+v", old)
				}
				wantDocument(t, s, "create", doc("new").Document)
			},
			"once": func(t *testing.T, old Record) {
				rec, replayed, err := s.CreateOnce(ctx, testCollection, "once", doc("x"), once)
				if err != nil || replayed || rec.Tag.ID == old.Tag.ID {
					t.Errorf("create again: %+v, replayed %v, %v", rec, replayed, err)
				}
			},
			"delete": func(t *testing.T, old Record) {
				wantError(t, "delete", s.Delete(ctx, testCollection, "delete", Condition{}), ErrNotFound)
				wantError(t, "delete if", s.Delete(ctx, testCollection, "delete", Condition{Tags: []Tag{old.Tag}}), ErrPrecondition)
			},
		}
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				content, mark := docUntil("x", -time.Second), Once{}
				if name == "once" {
					mark = once
				}
				old, _, err := s.CreateOnce(ctx, testCollection, name, content, mark)
				if err != nil {
					t.Fatal(err)
				}
				test(t, old)
				d.checkInvariants(t, s)
			})
		}
		if log := s.log.String(); strings.Contains(log, "alarm=true") {
			t.Errorf("an alarm: %s", log)
		}
	})
}

// TestStoreExpires: a record is there until the moment of its expiry and not after, whatever is cached; a write says anew
// when that is.
func TestStoreExpires(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s, ctx := d.open(t), t.Context()
		content := docUntil("x", time.Hour)
		if _, err := s.Create(ctx, testCollection, "k", content); err != nil {
			t.Fatal(err)
		}
		rec, err := s.Get(ctx, testCollection, "k")
		if err != nil || !rec.ExpiresAt.Equal(content.ExpiresAt) {
			t.Errorf("get: %+v, %v; want it until %v", rec, err, content.ExpiresAt)
		}
		rec, created, err := s.Put(ctx, testCollection, "k", doc("y"), Condition{Tags: []Tag{rec.Tag}})
		if err != nil || created || !rec.ExpiresAt.IsZero() {
			t.Errorf("put without an expiry: %+v, %v, %v", rec, created, err)
		}
		if rec, err = s.Get(ctx, testCollection, "k"); err != nil || !rec.ExpiresAt.IsZero() {
			t.Errorf("get: %+v, %v; want it for ever", rec, err)
		}
		content = docUntil("z", time.Second)
		if _, _, err := s.Put(ctx, testCollection, "k", content, Condition{}); err != nil {
			t.Fatal(err)
		}
		for {
			before := time.Now()
			_, err := s.Get(ctx, testCollection, "k")
			after := time.Now()
			switch {
			case err == nil && before.After(content.ExpiresAt.Add(clockSlack)):
				t.Fatalf("it is there %v after its expiry", before.Sub(content.ExpiresAt))
			case err != nil && (!errors.Is(err, ErrNotFound) || after.Before(content.ExpiresAt.Add(-clockSlack))):
				t.Fatalf("%v %v before its expiry", err, content.ExpiresAt.Sub(after))
			case err != nil:
				wantError(t, "delete", s.Delete(ctx, testCollection, "k", Condition{}), ErrNotFound)
				if rec := mustCreate(t, s, "k", "again"); rec.Tag.Version != 1 {
					t.Errorf("created as %s", rec.Tag)
				}
				d.checkInvariants(t, s)
				return
			}
		}
	})
}

// clockSlack is for SQLite, whose clock has milliseconds.
const clockSlack = 2 * time.Millisecond

// TestStoreExpiredRace: of many requests that meet an expired record at once, through two gateways, one creates the new one,
// and there is one row (I4).
func TestStoreExpiredRace(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		stores, ctx := []*opened{d.open(t), d.open(t)}, t.Context()
		for round := range 20 {
			key := fmt.Sprintf("k%d", round)
			mustExpire(t, stores[0], key, time.Second)
			var made atomic.Int64
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					s, created, err := stores[i%2], true, error(nil)
					if i%4 < 2 {
						_, created, err = s.Put(ctx, testCollection, key, doc(fmt.Sprint(i)), Condition{})
					} else if _, err = s.Create(ctx, testCollection, key, doc(fmt.Sprint(i))); errors.Is(err, ErrConflict) {
						created, err = false, nil
					}
					if err != nil {
						t.Error(err)
					} else if created {
						made.Add(1)
					}
				})
			}
			wg.Wait()
			if made.Load() != 1 {
				t.Errorf("%s was created %d times", key, made.Load())
			}
		}
		d.checkInvariants(t, stores[0])
	})
}

// TestSweeperExpired: what has been expired for a while is removed, row and entry, and nothing else is.
func TestSweeperExpired(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		o := d.open(t)
		for i := range 20 {
			mustExpire(t, o, fmt.Sprintf("overdue %d", i), time.Hour)
			mustExpire(t, o, fmt.Sprintf("expired %d", i), time.Second)
			mustCreate(t, o, fmt.Sprintf("immortal %d", i), "x")
			if _, err := o.Create(t.Context(), testCollection, fmt.Sprintf("mortal %d", i), docUntil("x", time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if counts, _ := runFsck(t, o, false); counts.Expired != 20 || counts.Buried != 0 || counts.Rows != 80 {
			t.Errorf("a look counts %+v", counts)
		}
		w, clock := newTestSweeper(o)
		counts := w.pass(t, clock)
		if counts.Expired != 20 || counts.Buried != 20 || counts.Strays+counts.Dangling+counts.Doubles != 0 {
			t.Errorf("the sweeper counts %+v", counts)
		}
		entries := allEntries(t, o)
		if rows := d.allRows(t); len(rows) != 60 || len(entries) != 60 {
			t.Errorf("%d rows and %d entries are left", len(rows), len(entries))
		}
		for i := range 20 {
			wantDocument(t, o, fmt.Sprintf("immortal %d", i), doc("x").Document)
			wantDocument(t, o, fmt.Sprintf("mortal %d", i), doc("x").Document)
			mustCreate(t, o, fmt.Sprintf("overdue %d", i), "again")
			mustCreate(t, o, fmt.Sprintf("expired %d", i), "again")
		}
		mustExpire(t, o, "one more", time.Hour)
		if counts, _ := runFsck(t, o, true); counts.Expired != 1 || counts.Buried != 1 || counts.Harmful() != 0 {
			t.Errorf("a repair counts %+v", counts)
		}
		d.checkInvariants(t, o)
	})
}

// TestSweeperExpiredUnderWrites: the sweeper and creates of the same keys remove the same expired rows, and no record is
// lost by it.
func TestSweeperExpiredUnderWrites(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		o := d.open(t)
		const keys = 200
		for i := range keys {
			mustExpire(t, o, fmt.Sprintf("k%d", i), time.Hour)
		}
		w, clock := newTestSweeper(o)
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := worker; i < keys; i += 4 {
					if _, created, err := o.Put(t.Context(), testCollection, fmt.Sprintf("k%d", i), doc("new"), Condition{}); err != nil || !created {
						t.Errorf("put k%d: created %v, %v", i, created, err)
					}
				}
			})
		}
		w.pass(t, clock)
		wg.Wait()
		counts := w.pass(t, clock)
		if counts.Strays+counts.Doubles+counts.Expired != 0 {
			t.Errorf("afterwards the sweeper counts %+v", counts)
		}
		for i := range keys {
			wantDocument(t, o, fmt.Sprintf("k%d", i), doc("new").Document)
		}
		d.checkInvariants(t, o)
	})
}

// TestFsckEarlierTables: a look at range tables that an earlier version made says what to do, and a repair does it.
func TestFsckEarlierTables(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		o := d.open(t)
		mustCreate(t, o, "k", "x")
		table := tableName(testCollection, 1)
		if _, err := fleetOf(o).Nodes[0].Exec(t.Context(), "ALTER TABLE "+table+" DROP COLUMN expires_at"); err != nil {
			t.Fatal(err)
		}
		about := Fsck{
			Index: o.gate.Index, Collections: []string{testCollection}, Now: time.Now,
			Found: func(Damage) {}, Progress: func(_, _ int64, _ SweepCounts) {},
		}
		if _, err := fleetOf(o).Fsck(t.Context(), about); err == nil || !strings.Contains(err.Error(), table+" was made by an earlier version") {
			t.Errorf("a look: %v", err)
		}
		about.Repair = true
		if counts, err := fleetOf(o).Fsck(t.Context(), about); err != nil || counts.Rows != 1 {
			t.Errorf("a repair: %+v, %v", counts, err)
		}
		wantDocument(t, o, "k", doc("x").Document)
	})
}

// TestRowsExpire: only overdue records go, and only those that were named; a fence never does.
func TestRowsExpire(t *testing.T) {
	rowSuite(t, func(t *testing.T, r rows) {
		past, soon := time.Now().Add(-time.Hour), time.Now().Add(-time.Second)
		for id, expires := range map[int64]time.Time{1: past, 2: past, 3: soon, 4: time.Now().Add(time.Hour), 5: {}, 6: past} {
			added := testRow(id, fmt.Sprint(id), "{}")
			added.ExpiresAt = expires
			if id == 6 {
				added.state = fence
			}
			if err := r.insert(t.Context(), "t", []row{added})[0]; err != nil {
				t.Fatal(err)
			}
		}
		if n, err := r.expire(t.Context(), "t", []int64{1, 3, 4, 5, 6, 9}); n != 1 || err != nil {
			t.Errorf("removed %d, %v", n, err)
		}
		left, err := r.scan(t.Context(), "t", span{0, 100}, 100)
		text := ""
		for _, b := range left {
			text += fmt.Sprintf("%d %v, ", b.id, b.overdue)
		}
		if text != "2 true, 3 false, 4 false, 5 false, 6 false, " || err != nil {
			t.Errorf("left: %s%v", text, err)
		}
		// What a conditional write finds: 3 has expired, 4 has not.
		for _, c := range []struct {
			id      int64
			expired bool
			want    bool
		}{{3, false, false}, {4, true, false}, {5, true, false}, {6, true, false}, {3, true, true}, {4, false, true}, {5, false, true}} {
			got := r.change(t.Context(), "t", []rowChange{{id: c.id, key: fmt.Sprint(c.id), expired: c.expired}})[0]
			if got.err != nil || got.value.ok != c.want {
				t.Errorf("delete %d, expired %v: %+v, want %v", c.id, c.expired, got, c.want)
			}
		}
	})
}

// TestListExpired: a list passes over what has expired, in both directions, also in a range that has nothing else.
func TestListExpired(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size, d.Ranges = 5, []string{"1,3,5", "2,4,6"}
		o := d.open(t)
		want := 0
		for i := range 25 {
			if i%3 == 0 && i/5 != 2 {
				mustCreate(t, o, fmt.Sprintf("k%d", i), "x")
				want++
			} else {
				mustExpire(t, o, fmt.Sprintf("k%d", i), time.Second)
			}
		}
		for _, descending := range []bool{false, true} {
			found, walk := 0, Walk{Descending: descending, Limit: 2, MaxBytes: 1 << 20}
			for more := true; more; {
				page, err := o.List(t.Context(), testCollection, walk)
				if err != nil {
					t.Fatal(err)
				}
				found += len(page.Records)
				walk.After, more = page.Next, page.More
			}
			if found != want {
				t.Errorf("descending %v: %d records, want %d", descending, found, want)
			}
		}
	})
}
