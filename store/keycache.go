package store

import (
	"strings"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"
)

// keyCache remembers which ID a key has, which saves the index look-up of a read or an update. What it says is never
// believed: a row proves it or the index is asked, so a stale entry costs a round trip and no wrong answer.
type keyCache struct {
	ids *otter.Cache[cacheKey, int64] // nil when nothing is remembered
}

type cacheKey struct{ collection, key string }

// cacheOverhead is what a cached key takes besides its bytes (measured on a million keys of 24 bytes: 114).
const cacheOverhead = 120

// newKeyCache makes a cache of at most maxBytes; 0 makes one that remembers nothing.
func newKeyCache(maxBytes int64) *keyCache {
	if maxBytes <= 0 {
		return &keyCache{}
	}
	return &keyCache{otter.Must(&otter.Options[cacheKey, int64]{
		MaximumWeight: uint64(maxBytes),
		Weigher:       func(k cacheKey, _ int64) uint32 { return uint32(len(k.key) + cacheOverhead) },
		StatsRecorder: stats.NewCounter(),
	})}
}

func (c *keyCache) get(collection, key string) (int64, bool) {
	if c.ids == nil {
		return 0, false
	}
	return c.ids.GetIfPresent(cacheKey{collection, key})
}

// put remembers what a row has just proved.
func (c *keyCache) put(collection, key string, id int64) {
	if c.ids == nil {
		return
	}
	k := cacheKey{collection, key}
	if old, ok := c.ids.GetEntryQuietly(k); ok && old.Value == id {
		return
	}
	k.key = strings.Clone(key) // the key may be a piece of a whole request
	c.ids.Set(k, id)
}

// counts returns how many look-ups the cache answered and how many it did not.
func (c *keyCache) counts() (hits, misses uint64) {
	if c.ids == nil {
		return 0, 0
	}
	s := c.ids.Stats()
	return s.Hits, s.Misses
}

// bytes estimates the memory that the cache takes.
func (c *keyCache) bytes() uint64 {
	if c.ids == nil {
		return 0
	}
	return c.ids.WeightedSize()
}

// drop forgets the ID of a key, unless another one has been proved meanwhile.
func (c *keyCache) drop(collection, key string, id int64) {
	if c.ids == nil {
		return
	}
	c.ids.ComputeIfPresent(cacheKey{collection, key}, func(old int64) (int64, otter.ComputeOp) {
		if old == id {
			return 0, otter.InvalidateOp
		}
		return old, otter.CancelOp
	})
}
