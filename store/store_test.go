package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func doc(text string) Content { return Content{Document: []byte(fmt.Sprintf(`{"v":%q}`, text))} }

func mustCreate(t *testing.T, s *opened, key, text string) Record {
	t.Helper()
	rec, err := s.Create(t.Context(), testCollection, key, doc(text))
	if err != nil {
		t.Fatalf("create %q: %v", key, err)
	}
	return rec
}

func wantDocument(t *testing.T, s *opened, key string, want []byte) {
	t.Helper()
	rec, err := s.Get(t.Context(), testCollection, key)
	if err != nil || !bytes.Equal(rec.Document, want) || rec.Key != key {
		t.Errorf("get %q: %+v, %v; want %s", key, rec, err, want)
	}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v; want %v", what, err, want)
	}
}

func TestStoreLifeOfARecord(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s, ctx := d.open(t), t.Context()
		_, err := s.Get(ctx, testCollection, "k")
		wantError(t, "get before create", err, ErrNotFound)
		wantError(t, "delete before create", s.Delete(ctx, testCollection, "k", Condition{}), ErrNotFound)

		first := mustCreate(t, s, "k", "one")
		if first.Tag.Version != 1 || first.Tag.ID < 1 {
			t.Errorf("first tag %s", first.Tag)
		}
		wantDocument(t, s, "k", doc("one").Document)
		_, err = s.Create(ctx, testCollection, "k", doc("other"))
		var conflict *ConflictError
		if !errors.As(err, &conflict) || conflict.Existing != first.Tag {
			t.Errorf("second create: %v", err)
		}
		// The same bytes again are a replacement like any other.
		for version := int64(2); version <= 3; version++ {
			rec, created, err := s.Put(ctx, testCollection, "k", doc("two"), Condition{})
			if err != nil || created || rec.Tag != (Tag{first.Tag.ID, version}) {
				t.Errorf("put: %+v, %v, %v", rec, created, err)
			}
		}
		wantDocument(t, s, "k", doc("two").Document)
		if err := s.Delete(ctx, testCollection, "k", Condition{}); err != nil {
			t.Error(err)
		}
		_, err = s.Get(ctx, testCollection, "k")
		wantError(t, "get after delete", err, ErrNotFound)
		rec, created, err := s.Put(ctx, testCollection, "k", doc("three"), Condition{})
		if err != nil || !created || rec.Tag.ID == first.Tag.ID {
			t.Errorf("put after delete: %+v, %v, %v", rec, created, err)
		}
		wantDocument(t, s, "k", doc("three").Document)
		d.checkInvariants(t, s)
	})
}

func TestStoreConditions(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s, ctx := d.open(t), t.Context()
		put := func(cond Condition) (Record, error) {
			rec, _, err := s.Put(ctx, testCollection, "k", doc("new"), cond)
			return rec, err
		}
		for _, cond := range []Condition{{Exists: true}, {Tags: []Tag{{1, 1}}}} {
			_, err := put(cond)
			wantError(t, "put without a record", err, ErrPrecondition)
			wantError(t, "delete without a record", s.Delete(ctx, testCollection, "k", cond), ErrPrecondition)
		}
		tag := mustCreate(t, s, "k", "old").Tag
		for _, other := range []Tag{{tag.ID, tag.Version + 1}, {tag.ID + 1, tag.Version}} {
			_, err := put(Condition{Tags: []Tag{other}})
			wantError(t, "put on another version", err, ErrPrecondition)
			wantError(t, "delete of another version", s.Delete(ctx, testCollection, "k", Condition{Tags: []Tag{other}}), ErrPrecondition)
		}
		wantDocument(t, s, "k", doc("old").Document)
		rec, err := put(Condition{Tags: []Tag{{9, 9}, {tag.ID, 7}, tag}})
		if err != nil || rec.Tag.Version != 2 {
			t.Fatalf("put on one of several versions: %+v, %v", rec, err)
		}
		if _, err := put(Condition{Exists: true}); err != nil {
			t.Error(err)
		}
		wantError(t, "delete of an old version", s.Delete(ctx, testCollection, "k", Condition{Tags: []Tag{rec.Tag}}), ErrPrecondition)
		if err := s.Delete(ctx, testCollection, "k", Condition{Tags: []Tag{{tag.ID, 3}}}); err != nil {
			t.Error(err)
		}
	})
}

// TestStoreVerbatim: whatever bytes a key and a document consist of, they come back, and no key is taken for another.
func TestStoreVerbatim(t *testing.T) {
	keys := []string{
		"a", "A", "a ", " a", "ä", "a\u0308", "😀", "a/b", "a%2Fb", "$ne", "a.b", "'; --", `"\`, "\t\n", "\x01", strings.Repeat("k", MaxKeyBytes), strings.Repeat("é", MaxKeyBytes/2), "null", "0", "00",
	}
	documents := []string{
		`{"n":18446744073709551615,"m":9007199254740993,"d":1.10}`, `{ "b" : 1 , "a" : [ ] }`, `{"s":"\u0000\ud83d\ude00 'quoted' \\ \" ` + "`" + `"}`, `{"u":"😀 é  "}`, `{}`,
		`{"long":"` + strings.Repeat(`\"`, 50_000) + `"}`,
	}
	engines(t, func(t *testing.T, d deployment) {
		s := d.open(t)
		for i, key := range keys {
			if _, err := s.Create(t.Context(), testCollection, key, Content{Document: []byte(documents[i%len(documents)])}); err != nil {
				t.Errorf("create %q: %v", key, err)
			}
		}
		for i, key := range keys {
			wantDocument(t, s, key, []byte(documents[i%len(documents)]))
		}
		for i, key := range keys {
			want := []byte(documents[(i+1)%len(documents)])
			if _, _, err := s.Put(t.Context(), testCollection, key, Content{Document: want}, Condition{}); err != nil {
				t.Errorf("put %q: %v", key, err)
			}
			wantDocument(t, s, key, want)
		}
		d.checkInvariants(t, s)
	})
}

func TestStoreRefusesBeforeWriting(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s, ctx := d.open(t), t.Context()
		for _, key := range []string{"", "a\x00b", "\xff", strings.Repeat("k", MaxKeyBytes+1), strings.Repeat("k", 4000)} {
			_, err := s.Create(ctx, testCollection, key, doc("x"))
			wantError(t, "create", err, ErrInvalid)
			_, _, err = s.Put(ctx, testCollection, key, doc("x"), Condition{})
			wantError(t, "put", err, ErrInvalid)
			_, err = s.Get(ctx, testCollection, key)
			wantError(t, "get", err, ErrInvalid)
			wantError(t, "delete", s.Delete(ctx, testCollection, key, Condition{}), ErrInvalid)
		}
		_, err := s.Create(ctx, "nowhere", "k", doc("x"))
		wantError(t, "create in an unknown collection", err, ErrInvalid)
		if rows := d.allRows(t); len(rows) > 0 {
			t.Errorf("refused requests left %v", rows)
		}
	})
}

// TestStoreDocumentTooLarge is the case of a value above the packet limit: the smallest node decides, before anything is
// written, and the largest document allowed does go through even when every byte of it is escaped.
func TestStoreDocumentTooLarge(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s := d.open(t)
		if strings.HasPrefix(d.Nodes[0], "sqlite") {
			s.topology.Load().maxDocument = 1 << 20 // SQLite has no limit of its own
		}
		limit := int(s.MaxDocumentBytes())
		largest := []byte(`{"v":"` + strings.Repeat(`\"`, (limit-8)/2) + `"}`)
		// Tens of megabytes take their time on a busy machine.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Create(ctx, testCollection, "large", Content{Document: largest}); err != nil {
			t.Errorf("%d bytes: %v", len(largest), err)
		}
		wantDocument(t, s, "large", largest)
		_, err := s.Create(t.Context(), testCollection, "larger", Content{Document: bytes.Repeat([]byte(" "), limit+1)})
		wantError(t, "a larger one", err, ErrTooLarge)
		if _, ok, _ := s.find(t.Context(), testCollection, "larger"); ok {
			t.Error("a refused document left an entry")
		}
	})
}

// TestStoreRangesFillInOrder is I5 and the case of the last range: IDs go to the node that owns them, range after range,
// and past the last one creates are refused with nothing written.
func TestStoreRangesFillInOrder(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size, d.Ranges = 7, []string{"1,3", "2"}
		s, ctx := d.open(t), t.Context()
		var ids []int64
		for i := range 21 {
			ids = append(ids, mustCreate(t, s, fmt.Sprintf("k%d", i), "x").Tag.ID)
		}
		slices.Sort(ids)
		for i, id := range ids {
			if id != int64(i+1) {
				t.Fatalf("IDs %v, want 1 to 21", ids)
			}
		}
		_, err := s.Create(ctx, testCollection, "one more", doc("x"))
		wantError(t, "create past the last range", err, ErrExhausted)
		if _, ok, _ := s.find(ctx, testCollection, "one more"); ok {
			t.Error("a create past the last range left an entry")
		}
		if _, _, err := s.Put(ctx, testCollection, "k3", doc("y"), Condition{}); err != nil {
			t.Errorf("an update needs no ID: %v", err)
		}
		perNode := map[int]int{}
		for _, r := range d.allRows(t) {
			perNode[r.node]++
		}
		if perNode[0] != 14 || perNode[1] != 7 {
			t.Errorf("rows per node %v", perNode)
		}
		d.checkInvariants(t, s)
		s.shut(t)

		// Growing is appending a range: no row moves and creates go on.
		d.Ranges = []string{"1,3", "2,4"}
		s = d.open(t)
		if rec := mustCreate(t, s, "one more", "x"); rec.Tag.ID != 22 {
			t.Errorf("the first ID of the new range is %d", rec.Tag.ID)
		}
		wantDocument(t, s, "k0", doc("x").Document)
	})
}

// TestStoreRangeSwitchUnderLoad: creates that meet the end of a range, all at once, go on in the next one without an error,
// and use up the ranges to the last ID but for those that were in hand when one was left.
func TestStoreRangeSwitchUnderLoad(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size, d.Ranges = 40, []string{"1,3,5,7,9", "2,4,6,8,10"}
		s := d.open(t)
		var ids sync.Map
		var wg sync.WaitGroup
		for worker := range 32 {
			wg.Go(func() {
				for i := range 10 {
					rec, err := s.Create(t.Context(), testCollection, fmt.Sprintf("k%d-%d", worker, i), doc("x"))
					if err != nil {
						t.Error(err)
						return
					}
					if _, repeated := ids.LoadOrStore(rec.Tag.ID, true); repeated {
						t.Errorf("I1: ID %d twice", rec.Tag.ID)
					}
				}
			})
		}
		wg.Wait()
		d.checkInvariants(t, s)
	})
}

// TestStoreRefusesAShrunkMap is I7.
func TestStoreRefusesAShrunkMap(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size = 5
		s := d.open(t)
		for i := range 6 {
			mustCreate(t, s, fmt.Sprintf("k%d", i), "x")
		}
		s.shut(t)
		shrunk := d
		shrunk.Nodes, shrunk.Ranges = d.Nodes[:1], d.Ranges[:1]
		if _, err := shrunk.try(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "range 2") {
			t.Errorf("opened without range 2: %v", err)
		}
		resized := d
		resized.Size = 6
		if _, err := resized.try(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "range size can never change") {
			t.Errorf("opened with another range size: %v", err)
		}
	})
}

// TestStoreOneWinner: of many creates of one key one wins, and the others learn of its record.
func TestStoreOneWinner(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		a, b := d.open(t), d
		stores := []*opened{a}
		if !strings.HasPrefix(d.Issuer, "sqlite") {
			stores = append(stores, b.open(t)) // two gateways
		}
		for round := range 5 {
			key := fmt.Sprintf("k%d", round)
			var created, conflicts atomic.Int64
			var wg sync.WaitGroup
			for i := range 32 {
				wg.Go(func() {
					_, err := stores[i%len(stores)].Create(t.Context(), testCollection, key, doc(fmt.Sprint(i)))
					switch {
					case err == nil:
						created.Add(1)
					case errors.Is(err, ErrConflict):
						conflicts.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if created.Load() != 1 || conflicts.Load() != 31 {
				t.Errorf("%d created, %d conflicts", created.Load(), conflicts.Load())
			}
		}
		d.checkInvariants(t, a)
	})
}

// TestStorePutRace is the case of many puts of one missing key: one record, no error.
func TestStorePutRace(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s := d.open(t)
		var created atomic.Int64
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				_, fresh, err := s.Put(t.Context(), testCollection, "k", doc(fmt.Sprint(i)), Condition{})
				if err != nil {
					t.Error(err)
				}
				if fresh {
					created.Add(1)
				}
			})
		}
		wg.Wait()
		rec, err := s.Get(t.Context(), testCollection, "k")
		if created.Load() != 1 || err != nil || rec.Tag.Version != 100 {
			t.Errorf("%d created, then %+v, %v", created.Load(), rec, err)
		}
		d.checkInvariants(t, s)
	})
}

// TestStoreDeleteAgainstCreate lets creates and deletes of a few keys fight. Each acknowledged create is one more record
// than before and each acknowledged delete one less, so their difference is what must be left.
func TestStoreDeleteAgainstCreate(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s := d.open(t)
		keys := []string{"a", "b", "c"}
		balance := make([]atomic.Int64, len(keys))
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 20 {
					k := rand.IntN(len(keys))
					var err error
					if rand.IntN(2) == 0 {
						if _, err = s.Create(t.Context(), testCollection, keys[k], doc("x")); err == nil {
							balance[k].Add(1)
						}
					} else if err = s.Delete(t.Context(), testCollection, keys[k], Condition{}); err == nil {
						balance[k].Add(-1)
					}
					if err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrBusy) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for k, key := range keys {
			_, err := s.Get(t.Context(), testCollection, key)
			if left := balance[k].Load(); left == 1 && err != nil || left == 0 && !errors.Is(err, ErrNotFound) || left < 0 || left > 1 {
				t.Errorf("key %s: creates minus deletes is %d, get says %v", key, left, err)
			}
		}
		d.checkInvariants(t, s)
	})
}

// TestStoreHealsDanglingEntry: an entry whose create died before its row is taken over, behind a fence.
func TestStoreHealsDanglingEntry(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s, ctx := d.open(t), t.Context()
		dead := &creation{store: s.Store, ids: s.placements[testCollection], key: "k", content: doc("dead")}
		var cancel func()
		dead.budget, cancel = newBudget(ctx)
		defer cancel()
		id, err := dead.ids.next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := dead.reserve(id); err != nil {
			t.Fatal(err)
		}
		_, err = s.Get(ctx, testCollection, "k")
		wantError(t, "get of a dangling entry", err, ErrNotFound)
		wantError(t, "delete of a dangling entry", s.Delete(ctx, testCollection, "k", Condition{}), ErrNotFound)
		rec := mustCreate(t, s, "k", "alive")
		if rec.Tag.ID == id {
			t.Error("the ID of the dead create was used again")
		}
		// The create that was thought dead goes on after all: the fence stops it.
		if _, err := dead.insert(id); !errors.Is(err, errLost) {
			t.Errorf("the late row: %v", err)
		}
		wantDocument(t, s, "k", doc("alive").Document)
		d.checkInvariants(t, s)
	})
}

// TestStoreIDIssuedTwice: an issuer that lost its memory hands out an ID that has a row. The row of the other key is left
// alone, the operator is alarmed, and no reader gets another key's row (I1, I4).
func TestStoreIDIssuedTwice(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s, ctx := d.open(t), t.Context()
		first := mustCreate(t, s, "first", "1")
		s.placements[testCollection].reuse(first.Tag.ID) // as if it had been issued again
		second, err := s.Create(ctx, testCollection, "second", doc("2"))
		if err == nil && second.Tag.ID == first.Tag.ID {
			t.Error("two keys share an ID")
		}
		if !strings.Contains(s.log.String(), "issued twice") {
			t.Error("nobody was alarmed")
		}
		wantDocument(t, s, "first", doc("1").Document)
		d.checkInvariants(t, s)
	})
}

// TestStoreIssuerRewound: a restored issuer that is behind the range table gives no IDs, and neither does an empty one.
func TestStoreIssuerRewound(t *testing.T) {
	for name, damage := range map[string]string{
		"Rewound": "UPDATE id_segment SET next_id = 1",
		"Emptied": "DELETE FROM id_segment",
	} {
		t.Run(name, func(t *testing.T) {
			engines(t, func(t *testing.T, d deployment) {
				s := d.open(t)
				mustCreate(t, s, "k", "x")
				s.shut(t)
				s = d.open(t)
				if _, err := s.issuerDB(t, d).Exec(t.Context(), damage); err != nil {
					t.Fatal(err)
				}
				_, err := s.Create(t.Context(), testCollection, "new", doc("x"))
				wantError(t, "create", err, ErrUnavailable)
				if !strings.Contains(s.log.String(), "level=ERROR") {
					t.Errorf("nobody was alarmed:\n%s", s.log)
				}
				wantDocument(t, s, "k", doc("x").Document)
				if _, _, err := s.Put(t.Context(), testCollection, "k", doc("y"), Condition{}); err != nil {
					t.Error(err)
				}
				d.checkInvariants(t, s)
			})
		})
	}
}

// TestStoreTailIsReturned: a graceful restart loses no IDs.
func TestStoreTailIsReturned(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		for want := int64(1); want <= 5; want++ {
			s := d.open(t)
			if rec := mustCreate(t, s, fmt.Sprintf("k%d", want), "x"); rec.Tag.ID != want {
				t.Errorf("ID %d, want %d", rec.Tag.ID, want)
			}
			s.shut(t)
		}
	})
}

func TestStoreRefusesForeignRangeTable(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		if strings.HasPrefix(d.Nodes[0], "sqlite") {
			return // an INTEGER PRIMARY KEY of SQLite holds 64 bits whatever it is called
		}
		s := d.open(t)
		for _, id := range []string{"INT NOT NULL PRIMARY KEY", "BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT", "BIGINT UNSIGNED NOT NULL PRIMARY KEY"} {
			on := s.topology.Load().nodes[0].db
			for _, statement := range []string{"DROP TABLE IF EXISTS other_r00001", "CREATE TABLE other_r00001 (id " + id + ")"} {
				if _, err := on.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.topology.Load().nodes[0].rows.prepare(t.Context(), "other_r00001"); err == nil || !strings.Contains(err.Error(), "want a plain BIGINT") {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

func TestTableName(t *testing.T) {
	if name := tableName("orders", 1); name != "orders_r00001" {
		t.Error(name)
	}
	const mysqlNameLimit = 64 // characters
	if name := tableName(strings.Repeat("c", 32), 9_999_999); len(name) > mysqlNameLimit {
		t.Errorf("%s has %d characters", name, len(name))
	}
}
