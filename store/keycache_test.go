package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"keyrange/index"
)

// countingIndex counts look-ups.
type countingIndex struct {
	index.Index
	finds atomic.Int64
}

func (i *countingIndex) Find(ctx context.Context, collection string, keys []string) (map[string]int64, error) {
	i.finds.Add(1)
	return i.Index.Find(ctx, collection, keys)
}

// TestStoreCacheSavesTheIndex: once a key's ID is known, reads and updates go to its row alone; without a cache they ask
// the index each time.
func TestStoreCacheSavesTheIndex(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		for _, bytes := range []int64{1 << 20, 0} {
			d := d.renew(t)
			d.CacheBytes = bytes
			s := d.open(t)
			counter := &countingIndex{Index: s.index}
			s.index = counter
			mustCreate(t, s, "k", "one")
			for range 3 {
				wantDocument(t, s, "k", doc("one").Document)
				if _, _, err := s.Put(t.Context(), testCollection, "k", doc("one"), Condition{Exists: true}); err != nil {
					t.Error(err)
				}
			}
			want := int64(0)
			if bytes == 0 {
				want = 6
			}
			if got := counter.finds.Load(); got != want {
				t.Errorf("%d look-ups with a cache of %d bytes, want %d", got, bytes, want)
			}
		}
	})
}

// TestStoreStaleCache: what one gateway remembers of a key is wrong once another has deleted or replaced the record, and
// still every answer is right (I4).
func TestStoreStaleCache(t *testing.T) {
	remove := func(t *testing.T, other *opened) {
		t.Helper()
		if err := other.Delete(t.Context(), testCollection, "k", Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	renew := func(t *testing.T, other *opened) {
		t.Helper()
		remove(t, other)
		mustCreate(t, other, "k", "renewed")
	}
	tests := []struct {
		name  string
		other func(t *testing.T, other *opened)
		check func(t *testing.T, s *opened, old Tag)
	}{
		{"Get/Removed", remove, func(t *testing.T, s *opened, _ Tag) {
			_, err := s.Get(t.Context(), testCollection, "k")
			wantError(t, "get", err, ErrNotFound)
		}},
		{"Get/Renewed", renew, func(t *testing.T, s *opened, _ Tag) { wantDocument(t, s, "k", doc("renewed").Document) }},
		{"Put/Removed", remove, func(t *testing.T, s *opened, _ Tag) {
			if _, created, err := s.Put(t.Context(), testCollection, "k", doc("put"), Condition{}); err != nil || !created {
				t.Errorf("put: created %v, %v", created, err)
			}
		}},
		{"Put/Renewed", renew, func(t *testing.T, s *opened, _ Tag) {
			if rec, created, err := s.Put(t.Context(), testCollection, "k", doc("put"), Condition{Exists: true}); err != nil || created || rec.Tag.Version != 2 {
				t.Errorf("put: %+v, %v, %v", rec, created, err)
			}
		}},
		{"PutIfMatch/Renewed", renew, func(t *testing.T, s *opened, old Tag) {
			_, _, err := s.Put(t.Context(), testCollection, "k", doc("put"), Condition{Tags: []Tag{old}})
			wantError(t, "put on the old tag", err, ErrPrecondition)
		}},
		{"PutIfMatch/NewTag", renew, func(t *testing.T, s *opened, old Tag) {
			fresh, _, err := s.find(t.Context(), testCollection, "k")
			if err != nil {
				t.Fatal(err)
			}
			if rec, _, err := s.Put(t.Context(), testCollection, "k", doc("put"), Condition{Tags: []Tag{{fresh, 1}}}); err != nil || rec.Tag != (Tag{fresh, 2}) {
				t.Errorf("put on the new tag: %+v, %v", rec, err)
			}
		}},
		{"Delete/Removed", remove, func(t *testing.T, s *opened, _ Tag) {
			wantError(t, "delete", s.Delete(t.Context(), testCollection, "k", Condition{}), ErrNotFound)
		}},
		{"Delete/Renewed", renew, func(t *testing.T, s *opened, _ Tag) {
			if err := s.Delete(t.Context(), testCollection, "k", Condition{}); err != nil {
				t.Error(err)
			}
			_, err := s.Get(t.Context(), testCollection, "k")
			wantError(t, "get", err, ErrNotFound)
		}},
		{"Create/Removed", remove, func(t *testing.T, s *opened, _ Tag) { mustCreate(t, s, "k", "created") }},
		{"Create/Renewed", renew, func(t *testing.T, s *opened, _ Tag) {
			_, err := s.Create(t.Context(), testCollection, "k", doc("created"))
			wantError(t, "create", err, ErrConflict)
		}},
	}
	engines(t, func(t *testing.T, d deployment) {
		s, other := d.open(t), d.open(t)
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				_ = s.Delete(t.Context(), testCollection, "k", Condition{}) // what the test before has left
				old := mustCreate(t, s, "k", "old").Tag
				wantDocument(t, s, "k", doc("old").Document)
				test.other(t, other)
				test.check(t, s, old)
				d.checkInvariants(t, s)
			})
		}
	})
}

// TestStoreCacheIsBounded: the cache forgets rather than grows.
func TestStoreCacheIsBounded(t *testing.T) {
	const bytes = 100 << 10
	c := newKeyCache(bytes)
	for i := range 10_000 {
		c.put("c", fmt.Sprintf("key-%d", i), int64(i+1))
	}
	c.ids.CleanUp()
	if size := c.ids.WeightedSize(); size > bytes || size < bytes/2 {
		t.Errorf("%d bytes of %d", size, bytes)
	}
	c.put("c", "k", 7)
	c.drop("c", "k", 8)
	if id, ok := c.get("c", "k"); !ok || id != 7 {
		t.Errorf("after another ID was dropped: %d, %v", id, ok)
	}
	c.drop("c", "k", 7)
	if id, ok := c.get("c", "k"); ok {
		t.Errorf("after it was dropped: %d", id)
	}
}
