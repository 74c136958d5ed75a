package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"keyrange/index"
)

// fakeClock is a clock that a test sets.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// newTestSweeper is a sweeper of a store whose steps the test takes itself, without a grace period and in small batches.
func newTestSweeper(o *opened) (*sweeper, *fakeClock) {
	clock := &fakeClock{now: time.Now()}
	w := newSweeper(o.Store, Sweeping{}, []string{testCollection}, nil)
	w.now, w.most, w.life = clock.read, 7, time.Hour
	w.how.Store(&Sweeping{RowsPerSecond: 1000, Interval: time.Hour})
	return w, clock
}

// pass takes steps until a pass has begun and ended, and returns what it has counted.
func (w *sweeper) pass(t *testing.T, clock *fakeClock) SweepCounts {
	t.Helper()
	if !w.mine {
		w.step(t.Context()) // which finds out what was before
	}
	before := w.progress.Last
	for range 100_000 {
		pause := w.step(t.Context())
		if w.waits != "" {
			t.Fatalf("the sweeper waits for %s", w.waits)
		}
		if w.progress.Last != before {
			return w.progress.Last.Counts
		}
		clock.advance(pause)
	}
	t.Fatal("a pass without end")
	return SweepCounts{}
}

// allEntries reads the whole index.
func allEntries(t *testing.T, o *opened) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for after := ""; ; {
		batch, err := o.index.Scan(t.Context(), testCollection, after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batch {
			all[e.Key] = e.ID
			after = e.Key
		}
		if len(batch) < 1000 {
			return all
		}
	}
}

// putEntry makes an entry behind everybody's back.
func putEntry(t *testing.T, o *opened, key string, id int64) {
	t.Helper()
	if err := o.index.Insert(t.Context(), testCollection, []index.Entry{{Key: key, ID: id}})[0]; err != nil {
		t.Fatal(err)
	}
}

// putRow makes a row behind everybody's back, in any range table of any node.
func putRow(t *testing.T, o *opened, node int, number int64, r row) {
	t.Helper()
	on, table := o.topology.Load().nodes[node].rows, tableName(testCollection, number)
	if err := on.prepare(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	if err := on.insert(t.Context(), table, []row{r})[0]; err != nil {
		t.Fatal(err)
	}
}

// damagedStore is a store with each kind of damage. IDs from 900 on are made by hand; node 1 owns 1 to 1000, node 2 owns
// 1001 to 2000 but has no range table for them.
func damagedStore(t *testing.T, d deployment) (o *opened, want SweepCounts) {
	t.Helper()
	o = d.open(t)
	for i := range 30 {
		mustCreate(t, o, fmt.Sprintf("whole %d 😀 ", i), "x")
	}
	live := func(id int64, key string) row { return testRow(id, key, `{"v":"`+key+`"}`) }
	fenceAt := func(id int64, age time.Duration) row {
		f := live(id, "fenced").asFence()
		f.updatedAt = time.Now().Add(-age).UTC()
		return f
	}
	putEntry(t, o, "dangling absent", 900)
	putEntry(t, o, "dangling fence", 901)
	putRow(t, o, 0, 1, fenceAt(901, time.Hour))
	putEntry(t, o, "dangling other", mustCreate(t, o, "whole", "x").Tag.ID)
	putEntry(t, o, "beyond the last range", 99999)
	putEntry(t, o, "beyond the tables", 1500)
	putRow(t, o, 0, 1, live(902, "stray"))
	putRow(t, o, 0, 1, live(903, "stray dangling absent"))
	putEntry(t, o, "stray dangling absent", 904)
	putRow(t, o, 0, 1, live(906, "stray dangling fence"))
	putEntry(t, o, "stray dangling fence", 905)
	putRow(t, o, 0, 1, fenceAt(905, time.Hour))
	putRow(t, o, 0, 1, live(907, "stray beyond"))
	putEntry(t, o, "stray beyond", 88888)
	mustCreate(t, o, "double", "double")
	putRow(t, o, 0, 1, live(908, "double"))
	putRow(t, o, 0, 1, live(909, "two strays"))
	putRow(t, o, 0, 1, live(910, "two strays"))
	putRow(t, o, 0, 1, live(1700, "misplaced"))
	putRow(t, o, 1, 1, live(911, "misplaced too"))
	putRow(t, o, 0, 1, fenceAt(912, 25*time.Hour))
	putRow(t, o, 0, 1, fenceAt(913, 20*time.Hour))
	return o, SweepCounts{
		Entries: 30 + 3 + 1 + 2 + 2 + 1 + 1 + 2, Rows: 32 + 4 + 1 + 2 + 2, Fences: 4 + 1,
		Dangling: 3, Removed: 3, Strays: 5, Reindexed: 4, Doubles: 2, Misplaced: 2, Beyond: 3, Purged: 1,
	}
}

// checkMended looks at a damaged store after a pass that mends.
func checkMended(t *testing.T, o *opened) {
	t.Helper()
	for _, key := range []string{"stray", "stray dangling absent", "stray dangling fence", "double", "two strays"} {
		wantDocument(t, o, key, doc(key).Document)
	}
	for i := range 30 {
		wantDocument(t, o, fmt.Sprintf("whole %d 😀 ", i), doc("x").Document)
	}
	entries := allEntries(t, o)
	for _, key := range []string{"dangling absent", "dangling fence", "dangling other"} {
		if id, ok := entries[key]; ok {
			t.Errorf("%s still has an entry at %d", key, id)
		}
		mustCreate(t, o, key, key)
	}
	for key, id := range map[string]int64{"beyond the last range": 99999, "beyond the tables": 1500, "stray beyond": 88888} {
		if entries[key] != id {
			t.Errorf("%s leads to %d, want %d", key, entries[key], id)
		}
	}
	for _, id := range []int64{900, 904} {
		if r, err := o.readRow(t.Context(), testCollection, id); err != nil || r == nil || r.state != fence {
			t.Errorf("row %d: %+v, %v; want a fence", id, r, err)
		}
	}
}

// TestSweeperMends: each kind of damage is mended or told of, again in the next pass if it is still there, and no key is
// ever logged.
func TestSweeperMends(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		o, want := damagedStore(t, d)
		w, clock := newTestSweeper(o)
		first := w.pass(t, clock)
		first.Fences, want.Fences = 0, 0 // those that it makes itself may be met or not
		if first != want {
			t.Errorf("the first pass: %+v, want %+v", first, want)
		}
		checkMended(t, o)
		if left, err := o.readRow(t.Context(), testCollection, 912); left != nil || err != nil {
			t.Errorf("a fence older than a day is left: %v, %v", left, err)
		}
		clock.advance(time.Hour)
		second := w.pass(t, clock)
		if second.Dangling+second.Reindexed+second.Purged != 0 || second.Strays != 1 || second.Doubles != 2 || second.Misplaced != 2 || second.Beyond != 3 {
			t.Errorf("the second pass: %+v", second)
		}
		log := o.log.String()
		for _, word := range []string{"stray beyond", "double ", "dangling other", "two strays", "whole"} {
			if strings.Contains(log, word) {
				t.Errorf("the log has the key %q", word)
			}
		}
		for _, want := range []string{"a key has two records", "had no entry", "not where its ID belongs", "a sweep has found damage", "alarm=true"} {
			if !strings.Contains(log, want) {
				t.Errorf("the log does not say %q", want)
			}
		}
	})
}

// fleetOf is the fleet of an open store, as a command would open it.
func fleetOf(o *opened) Fleet {
	o.changing.Lock()
	defer o.changing.Unlock()
	f := o.fleet()
	f.cluster = ""
	return f
}

// runFsck runs it without a grace period and returns what it has told, by kind.
func runFsck(t *testing.T, o *opened, repair bool) (SweepCounts, map[DamageKind]int) {
	t.Helper()
	kinds, last := map[DamageKind]int{}, int64(0)
	counts, err := fleetOf(o).Fsck(t.Context(), Fsck{
		Index: o.gate.Index, Collections: []string{testCollection}, Repair: repair, Now: time.Now,
		Found: func(d Damage) { kinds[d.Kind]++ },
		Progress: func(done, of int64, _ SweepCounts) {
			if done > of || done < last && last < of {
				t.Errorf("progress %d of %d after %d", done, of, last)
			}
			last = done
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts, kinds
}

// TestFsck: without repair it tells of everything and writes nothing; with repair it mends what the sweeper does, and what
// is left is what needs a person.
func TestFsck(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		o, want := damagedStore(t, d)
		rows, entries := d.allRows(t), allEntries(t, o)
		counts, kinds := runFsck(t, o, false)
		wantKinds := map[DamageKind]int{Dangling: 5, Stray: 6, Double: 1, Misplaced: 2, Beyond: 3}
		if !maps.Equal(kinds, wantKinds) {
			t.Errorf("told of %v, want %v", kinds, wantKinds)
		}
		if counts.Entries != int64(len(entries)) || counts.Rows+counts.Fences != int64(len(rows)) || counts.Harmful() != 12 || counts.Reindexed+counts.Removed != 0 {
			t.Errorf("a look: %+v", counts)
		}
		if after := d.allRows(t); !slices.Equal(after, rows) {
			t.Errorf("a look has changed rows: %v, want %v", after, rows)
		}
		if after := allEntries(t, o); !maps.Equal(after, entries) {
			t.Errorf("a look has changed entries: %v, want %v", after, entries)
		}
		want.Purged, want.Fences = 0, 4
		if counts, _ = runFsck(t, o, true); counts != want {
			t.Errorf("a repair: %+v, want %+v", counts, want)
		}
		checkMended(t, o)
		if counts, _ = runFsck(t, o, true); counts.Harmful() != 8 || counts.Dangling != 0 || counts.Strays != 1 {
			t.Errorf("once more: %+v", counts)
		}
	})
}

// TestFsckRebuildsIndex: an index that was lost is made again from the rows, I3 and I4.
func TestFsckRebuildsIndex(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		const perRange = 1234
		d.Size, d.Ranges = perRange, []string{"1,3", "2"}
		o := d.open(t)
		for number := int64(1); number <= 3; number++ {
			on, table := o.topology.Load().nodes[(number-1)%2].rows, tableName(testCollection, number)
			if err := on.prepare(t.Context(), table); err != nil {
				t.Fatal(err)
			}
			batch := make([]row, perRange)
			for i := range batch {
				id := (number-1)*perRange + int64(i) + 1
				batch[i] = testRow(id, fmt.Sprintf("key %d 😀", id), `{}`)
			}
			if err := errors.Join(on.insert(t.Context(), table, batch)...); err != nil {
				t.Fatal(err)
			}
		}
		if counts, _ := runFsck(t, o, false); counts.Strays != 3*perRange || counts.Harmful() != 3*perRange || counts.Entries != 0 {
			t.Errorf("a look: %+v", counts)
		}
		if counts, _ := runFsck(t, o, true); counts.Reindexed != 3*perRange || counts.Harmful() != 0 || counts.Entries != 3*perRange {
			t.Errorf("a repair: %+v", counts)
		}
		entries := allEntries(t, o)
		for id := int64(1); id <= 3*perRange; id++ {
			if got := entries[fmt.Sprintf("key %d 😀", id)]; got != id {
				t.Fatalf("row %d has the entry %d", id, got)
			}
		}
		if counts, _ := runFsck(t, o, false); counts.Strays+counts.Dangling != 0 {
			t.Errorf("afterwards: %+v", counts)
		}
	})
}

// pausingRows holds the first insert of the row of "k" back until it is released.
type pausingRows struct {
	rows
	once             *sync.Once
	reached, release chan struct{}
}

func (p pausingRows) insert(ctx context.Context, table string, batch []row) []error {
	if batch[0].state == live && batch[0].key == "k" {
		p.once.Do(func() {
			close(p.reached)
			<-p.release
		})
	}
	return p.rows.insert(ctx, table, batch)
}

// TestSweepMeetsCreate: a create that is between its entry and its row loses them to a sweep without patience, and starts
// over. The record exists once.
func TestSweepMeetsCreate(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		o := d.open(t)
		held := pausingRows{o.topology.Load().nodes[0].rows, &sync.Once{}, make(chan struct{}), make(chan struct{})}
		o.topology.Load().nodes[0].rows = held
		mustCreate(t, o, "first", "x")
		done := make(chan error, 1)
		go func() {
			_, err := o.Create(context.Background(), testCollection, "k", doc("k"))
			done <- err
		}()
		<-held.reached
		lost := allEntries(t, o)["k"]
		w, clock := newTestSweeper(o)
		if counts := w.pass(t, clock); counts.Removed != 1 || counts.Strays+counts.Doubles != 0 {
			t.Errorf("the sweep: %+v", counts)
		}
		if _, ok := allEntries(t, o)["k"]; ok {
			t.Error("the entry is still there")
		}
		close(held.release)
		if err := <-done; err != nil {
			t.Errorf("the create: %v", err)
		}
		wantDocument(t, o, "k", doc("k").Document)
		if now := allEntries(t, o)["k"]; now == lost {
			t.Errorf("the record lives behind the fence at %d", now)
		}
		d.checkInvariants(t, o)
	})
}

// TestSweepUnderLoad: two sweeps without patience run beside creates, updates and deletes of the same few keys. No request
// fails for it, no sweep raises a false alarm, and in the end everything fits (I1 to I4).
func TestSweepUnderLoad(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size = 100_000
		o, other := d.open(t), d.open(t)
		var load, sweeps sync.WaitGroup
		stop := make(chan struct{})
		for worker := range 6 {
			load.Go(func() {
				s := []*opened{o, other}[worker%2]
				for i := range 150 {
					key := fmt.Sprintf("k%d", (i*7+worker)%10)
					var err error
					switch i % 3 {
					case 0:
						_, err = s.Create(context.Background(), testCollection, key, doc(key))
					case 1:
						_, _, err = s.Put(context.Background(), testCollection, key, doc(key), Condition{})
					default:
						err = s.Delete(context.Background(), testCollection, key, Condition{})
					}
					if err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrBusy) {
						t.Errorf("%s: %v", key, err)
					}
				}
			})
		}
		for _, s := range []*opened{o, other} {
			w, clock := newTestSweeper(s)
			sweeps.Go(func() {
				for {
					w.begin(nil) // both at once, turn or not
					w.noted = clock.read()
					counts := w.pass(t, clock)
					if counts.Strays+counts.Doubles+counts.Misplaced+counts.Beyond != 0 {
						t.Errorf("a false alarm: %+v", counts)
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		load.Wait()
		close(stop)
		sweeps.Wait()
		d.checkInvariants(t, o)
		if counts, _ := runFsck(t, o, true); counts.Harmful() != 0 {
			t.Errorf("in the end: %+v", counts)
		}
		rows, entries := 0, len(allEntries(t, o))
		for _, r := range d.allRows(t) {
			if r.state == live {
				rows++
			}
		}
		if rows != entries {
			t.Errorf("%d entries of %d records", entries, rows)
		}
	})
}
