package index

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// walk scans a collection from end to end in batches.
func walk(t *testing.T, x Index, collection string, limit int) (all []Entry) {
	t.Helper()
	for after := ""; ; {
		batch, err := x.Scan(testContext(t), collection, after, limit)
		if err != nil || len(batch) > limit {
			t.Fatalf("after %q: %d entries, %v", after, len(batch), err)
		}
		all = append(all, batch...)
		if len(batch) < limit {
			return all
		}
		after = batch[limit-1].Key
	}
}

// testScan: a walk meets every entry once, in the byte order of the keys, whatever they are made of.
func testScan(t *testing.T, x Index) {
	if all := walk(t, x, orders, 10); len(all) != 0 {
		t.Errorf("an empty collection has %v", all)
	}
	keys := []string{
		"key", "Key", "KEY", "key ", "key  ", " key", "key\t", "ke", "k", "key0", "key-", "key_",
		"\u00e9", "e\u0301", "\u212b", "\u00c5", "ß", "ss", "ı", "i", "😀", "😀\u200d", "\ufeffkey", "\U0010ffff", "\ue000", "\uffff",
		"$x", "$in", "a.b", "a", "a ", "a\x01", "{\"$ne\":\"\"}", "0", "00", "10", "9", "null", "~", "\x01", "\x7f",
		strings.Repeat("x", 511), strings.Repeat("x", 512), strings.Repeat("😀", 128),
	}
	var want []Entry
	for i, key := range keys {
		want = append(want, Entry{key, int64(i+1) << 32})
	}
	if err := errors.Join(x.Insert(testContext(t), orders, want)...); err != nil {
		t.Fatal(err)
	}
	if err := x.Prepare(testContext(t), "others"); err != nil {
		t.Fatal(err)
	}
	if err := x.Insert(testContext(t), "others", []Entry{{"b", 1}})[0]; err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(want, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	for _, limit := range []int{1, 7, len(keys), 1000} {
		if got := walk(t, x, orders, limit); !slices.Equal(got, want) {
			t.Errorf("in batches of %d:\n%v\nwant\n%v", limit, got, want)
		}
	}
	// A key need not exist to go on after it.
	if got, err := x.Scan(testContext(t), orders, "key  \x00", 1); err != nil || len(got) != 1 || got[0].Key != "key-" {
		t.Errorf("after an absent key: %v, %v", got, err)
	}
	if got, err := x.Scan(testContext(t), "others", "", 1000); err != nil || !slices.Equal(got, []Entry{{"b", 1}}) {
		t.Errorf("another collection: %v, %v", got, err)
	}
	more := make([]Entry, 1000)
	for i := range more {
		more[i] = Entry{fmt.Sprintf("zz-%04d", i), int64(i + 1)}
	}
	if err := errors.Join(x.Insert(testContext(t), orders, more)...); err != nil {
		t.Fatal(err)
	}
	if got, err := x.Scan(testContext(t), orders, "zz", 1000); err != nil || !slices.Equal(got, more) {
		t.Errorf("a full batch: %d entries, %v", len(got), err)
	}
}
