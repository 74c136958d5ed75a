package index

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"keyrange/test/servers"
)

// TestMain checks that closing an index ends its goroutines.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// orders is the collection that the tests use.
const orders = "orders"

// patience bounds what should take milliseconds.
const patience = 30 * time.Second

// testContext ends with the test or when patience does.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// open opens an index, prepares the collection, and closes it with the test.
func open(t *testing.T, uri string, opts Options) Index {
	t.Helper()
	opts.AllowStandalone = true
	x, err := Open(testContext(t), uri, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(x.Close(), x.Close()); err != nil {
			t.Errorf("close twice: %v", err)
		}
	})
	if err := x.Prepare(testContext(t), orders); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestConformance runs one suite on every engine, each test on a fresh database.
func TestConformance(t *testing.T) {
	engines := []servers.Engine{{Name: "sqlite", Fresh: servers.FreshSQLite}, {Name: "mongo", Fresh: servers.FreshMongo}}
	suite := []struct {
		name string
		run  func(t *testing.T, x Index)
	}{
		{"Prepare", testPrepare},
		{"Insert", testInsert},
		{"OddKeys", testOddKeys},
		{"InsertRace", testInsertRace},
		{"InsertBatch", testInsertBatch},
		{"Find", testFind},
		{"Scan", testScan},
		{"Stamp", testStamp},
		{"Replace", testReplace},
		{"ReplaceRace", testReplaceRace},
		{"Remove", testRemove},
		{"Empty", testEmpty},
		{"Collections", testCollections},
		{"Canceled", testCanceled},
		{"Closed", testClosed},
	}
	for _, engine := range engines {
		t.Run(engine.Name, func(t *testing.T) {
			for _, test := range suite {
				t.Run(test.name, func(t *testing.T) { test.run(t, open(t, engine.Fresh(t), Options{})) })
			}
		})
	}
}

// insertOne returns the result of a batch of one.
func insertOne(t *testing.T, x Index, key string, id int64) error {
	t.Helper()
	results := x.Insert(testContext(t), orders, []Entry{{key, id}})
	if len(results) != 1 {
		t.Fatalf("one entry, %d results", len(results))
	}
	return results[0]
}

// mustInsert inserts an entry that the rest of the test needs.
func mustInsert(t *testing.T, x Index, key string, id int64) {
	t.Helper()
	if err := insertOne(t, x, key, id); err != nil {
		t.Fatal(err)
	}
}

// expect compares what the index holds of the keys with want; an ID of 0 means none.
func expect(t *testing.T, x Index, want map[string]int64) {
	t.Helper()
	var keys []string
	for key := range want {
		keys = append(keys, key)
	}
	together, err := x.Find(testContext(t), orders, keys)
	if err != nil {
		t.Fatal(err)
	}
	for key, id := range want {
		alone, err := x.Find(testContext(t), orders, []string{key})
		if err != nil {
			t.Fatal(err)
		}
		for how, found := range map[string]map[string]int64{"together": together, "alone": alone} {
			if got, ok := found[key]; got != id || ok != (id != 0) {
				t.Errorf("find %q %s: %d, want %d", key, how, got, id)
			}
		}
	}
}

// testPrepare: several gateways may prepare one collection at once, and nothing in it changes.
func testPrepare(t *testing.T, x Index) {
	mustInsert(t, x, "a", 1)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := errors.Join(x.Prepare(testContext(t), orders), x.Prepare(testContext(t), "others")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	expect(t, x, map[string]int64{"a": 1})
	if err := x.Ping(testContext(t)); err != nil {
		t.Error(err)
	}
	if about := x.Describe(); !strings.Contains(about, "://") {
		t.Errorf("described as %q, without a location", about)
	}
}

// testInsert: an entry stays as it was first inserted, also against itself.
func testInsert(t *testing.T, x Index) {
	mustInsert(t, x, "a", 1<<53+1)
	if err := insertOne(t, x, "a", 2); !errors.Is(err, ErrExists) {
		t.Errorf("again: %v, want ErrExists", err)
	}
	if err := insertOne(t, x, "a", 1<<53+1); !errors.Is(err, ErrExists) {
		t.Errorf("the same entry again: %v, want ErrExists", err)
	}
	expect(t, x, map[string]int64{"a": 1<<53 + 1, "b": 0})
}

// testOddKeys: keys that some database somewhere takes for the same, or for something else than a string.
func testOddKeys(t *testing.T, x Index) {
	keys := []string{
		"key", "Key", "KEY", "key ", " key", "key\t", "ke", "k", "key0",
		"\u00e9", "e\u0301", "\u212b", "\u00c5", "ß", "ss", "ı", "i", "😀", "😀\u200d", "\ufeffkey", "\U0010ffff",
		"$x", "$in", "a.b", "a", "{\"$ne\":\"\"}", "0", "00", "0x0", "1e1", "null", "true", "%", "_", "'", "\"", "\\", "\x01", "\x7f", "a\x00", "a\x00b", "a\x00\x00", "\x00",
		strings.Repeat("x", 511), strings.Repeat("x", 512), strings.Repeat("\u20ac", 170), strings.Repeat("😀", 128),
	}
	want := map[string]int64{}
	for i, key := range keys {
		mustInsert(t, x, key, int64(i+1))
		want[key] = int64(i + 1)
	}
	if len(want) != len(keys) {
		t.Fatal("the test repeats a key")
	}
	expect(t, x, want)
	for key, id := range want {
		if ok, err := x.Replace(testContext(t), orders, key, id, id+1000); !ok || err != nil {
			t.Errorf("replace %q: %v, %v", key, ok, err)
		}
		want[key] += 1000
	}
	expect(t, x, want)
	for key, id := range want {
		if err := x.Remove(testContext(t), orders, []Entry{{key, id}}); err != nil {
			t.Errorf("remove %q: %v", key, err)
		}
		want[key] = 0
	}
	expect(t, x, want)
}

// testInsertBatch: entries of a batch succeed and fail one by one, and of equal keys the first wins.
func testInsertBatch(t *testing.T, x Index) {
	const size = 1000
	mustInsert(t, x, "key-7", 5000)
	entries := make([]Entry, size)
	want := map[string]int64{"key-7": 5000}
	for i := range entries {
		key := fmt.Sprintf("key-%d", i%900) // the last hundred repeat the first
		entries[i] = Entry{key, int64(i + 1)}
		if _, taken := want[key]; !taken {
			want[key] = int64(i + 1)
		}
	}
	results := x.Insert(testContext(t), orders, entries)
	if len(results) != size {
		t.Fatalf("%d results of %d entries", len(results), size)
	}
	for i, err := range results {
		if wins := want[entries[i].Key] == entries[i].ID; wins != (err == nil) || !wins && !errors.Is(err, ErrExists) {
			t.Errorf("entry %d (%s): %v", i, entries[i].Key, err)
		}
	}
	var keys []string
	for key := range want {
		keys = append(keys, key)
	}
	found, err := x.Find(testContext(t), orders, keys)
	if err != nil || len(found) != len(want) {
		t.Fatalf("found %d of %d, %v", len(found), len(want), err)
	}
	for key, id := range want {
		if found[key] != id {
			t.Errorf("%s leads to %d, want %d", key, found[key], id)
		}
	}
}

// testFind: more keys than a server's usual first batch, with absent and repeated ones.
func testFind(t *testing.T, x Index) {
	const size = 300
	var entries []Entry
	keys := []string{"absent", "key-1", "key-1"}
	for i := range size {
		entries = append(entries, Entry{fmt.Sprintf("key-%d", i), int64(i + 1)})
		keys = append(keys, entries[i].Key)
	}
	if err := errors.Join(x.Insert(testContext(t), orders, entries)...); err != nil {
		t.Fatal(err)
	}
	found, err := x.Find(testContext(t), orders, keys)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != size {
		t.Errorf("found %d entries, want %d", len(found), size)
	}
	for _, e := range entries {
		if found[e.Key] != e.ID {
			t.Errorf("%s leads to %d, want %d", e.Key, found[e.Key], e.ID)
		}
	}
}

// testReplace: a compare-and-set, never an upsert.
func testReplace(t *testing.T, x Index) {
	mustInsert(t, x, "a", 1)
	mustInsert(t, x, "b", 9)
	for _, step := range []struct {
		key      string
		old, new int64
		want     bool
	}{
		{"a", 2, 3, false},      // another ID
		{"a", 1, 2, true},       // the entry
		{"a", 1, 2, false},      // not any more
		{"a", 2, 2, true},       // no change is a success
		{"absent", 1, 2, false}, // never an upsert
	} {
		if ok, err := x.Replace(testContext(t), orders, step.key, step.old, step.new); ok != step.want || err != nil {
			t.Errorf("%+v: %v, %v", step, ok, err)
		}
	}
	expect(t, x, map[string]int64{"a": 2, "b": 9, "absent": 0})
}

// testRemove: an entry goes only when its ID is the one given.
func testRemove(t *testing.T, x Index) {
	for i, key := range []string{"a", "b", "c", "d"} {
		mustInsert(t, x, key, int64(i+1))
	}
	// b and c are given with each other's ID.
	err := x.Remove(testContext(t), orders, []Entry{{"a", 1}, {"b", 3}, {"c", 2}, {"absent", 1}, {"a", 1}})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, x, map[string]int64{"a": 0, "b": 2, "c": 3, "d": 4})
	if err := x.Remove(testContext(t), orders, []Entry{{"d", 4}}); err != nil {
		t.Fatal(err)
	}
	expect(t, x, map[string]int64{"d": 0})
	mustInsert(t, x, "d", 5)
	expect(t, x, map[string]int64{"d": 5})
}

// testEmpty: an empty batch succeeds.
func testEmpty(t *testing.T, x Index) {
	if results := x.Insert(testContext(t), orders, nil); len(results) != 0 {
		t.Errorf("insert nothing: %v", results)
	}
	if found, err := x.Find(testContext(t), orders, nil); len(found) != 0 || err != nil {
		t.Errorf("find nothing: %v, %v", found, err)
	}
	if err := x.Remove(testContext(t), orders, nil); err != nil {
		t.Errorf("remove nothing: %v", err)
	}
}

// testCollections: the same key in two collections is two keys.
func testCollections(t *testing.T, x Index) {
	mustInsert(t, x, "a", 1)
	if err := x.Prepare(testContext(t), "orders_2"); err != nil {
		t.Fatal(err)
	}
	if err := x.Insert(testContext(t), "orders_2", []Entry{{"a", 2}})[0]; err != nil {
		t.Fatal(err)
	}
	if err := x.Remove(testContext(t), "orders_2", []Entry{{"a", 2}}); err != nil {
		t.Fatal(err)
	}
	expect(t, x, map[string]int64{"a": 1})
}

// testCanceled: a request whose client has gone is not sent, and says why.
func testCanceled(t *testing.T, x Index) {
	mustInsert(t, x, "a", 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, replace := x.Replace(ctx, orders, "a", 1, 2)
	_, find := x.Find(ctx, orders, []string{"a"})
	_, scan := x.Scan(ctx, orders, "", 1)
	for op, err := range map[string]error{
		"insert": x.Insert(ctx, orders, []Entry{{"b", 1}})[0], "replace": replace, "find": find, "scan": scan,
		"remove": x.Remove(ctx, orders, []Entry{{"a", 1}}), "ping": x.Ping(ctx),
	} {
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want ErrUnavailable because of context.Canceled", op, err)
		}
	}
	expect(t, x, map[string]int64{"a": 1, "b": 0})
}

// testClosed: a closed index refuses, and does nothing else.
func testClosed(t *testing.T, x Index) {
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if err := insertOne(t, x, "a", 1); !errors.Is(err, ErrUnavailable) {
		t.Errorf("insert: %v, want ErrUnavailable", err)
	}
}

// testStamp: of several that stamp an index at once the first wins, and all are told which that was; entries are left alone.
func testStamp(t *testing.T, x Index) {
	if stamp, err := x.Stamp(testContext(t)); stamp != "" || err != nil {
		t.Fatalf("a fresh index: %q, %v", stamp, err)
	}
	stamps := make([]string, 16)
	var wg sync.WaitGroup
	for i := range stamps {
		wg.Go(func() {
			var err error
			if stamps[i], err = x.SetStamp(testContext(t), fmt.Sprintf("cluster-%d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	stored, err := x.Stamp(testContext(t))
	if err != nil || stored == "" {
		t.Errorf("stamped: %q, %v", stored, err)
	}
	for _, stamp := range stamps {
		if stamp != stored {
			t.Errorf("told %q, stored is %q", stamp, stored)
		}
	}
	if found, err := x.Scan(testContext(t), orders, "", 10); len(found) != 0 || err != nil {
		t.Errorf("entries: %v, %v", found, err)
	}
}
