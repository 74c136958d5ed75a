package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/maypok86/otter/v2"

	"keyrange/index"
)

// MaxGroupBytes is the length of the longest group, the same on every engine.
const MaxGroupBytes = 255

// CheckGroup applies the rules for groups: those for keys, with at most MaxGroupBytes bytes. The error matches ErrGroup.
func CheckGroup(group string) error { return checkText("group", group, MaxGroupBytes, ErrGroup) }

// directoryOf names the index collection that says which ranges hold, or may hold, records of a group of a collection. It
// has an entry for each such pair, made before the first row of the pair is inserted and never removed, so that a range
// that is not listed has none. The name is none that a collection of records can have.
func directoryOf(collection string) string { return collection + ".groups" }

// groupPlace is a pair of a group and a range.
type groupPlace struct {
	collection, group string
	number            int64
}

// entry is the directory's entry of the pair. Groups hold no NUL, so that the entries of a group are together, in the
// order of their ranges, and no other's are among them.
func (p groupPlace) entry() index.Entry {
	return index.Entry{Key: p.group + "\x00" + fmt.Sprintf("%019d", p.number), ID: p.number}
}

// directoryPage is how many entries one look at the directory takes; most groups are in very few ranges.
const directoryPage, directoryFirst = 1000, 4

// directory keeps the groups of one collection.
type directory struct {
	store      *Store
	collection string
	inserts    lane[index.Entry, struct{}]
}

func newDirectory(s *Store, collection string) *directory {
	d := &directory{store: s, collection: collection}
	d.inserts = lane[index.Entry, struct{}]{
		seen: s.metrics.lanes[laneGroupInsert],
		run: func(ctx context.Context, batch []index.Entry) []answer[struct{}] {
			return answersOf(s.index.Insert(ctx, directoryOf(collection), batch))
		},
		limit: maxInserts, parallel: 1, unsent: index.ErrUnavailable, unknown: index.ErrUnknown,
	}
	return d
}

// knows reports whether the range of an ID is known to be listed for a group.
func (d *directory) knows(group string, id int64) bool {
	r, _, ok := d.store.topology.Load().layout.Locate(id)
	return ok && d.store.places.has(groupPlace{d.collection, group, r.Number})
}

// enter makes sure that the range of an ID is listed for a group. Without a nil no row of the group may be inserted there;
// an entry that lands all the same does no harm.
func (d *directory) enter(ctx context.Context, group string, id int64) error {
	r, _, ok := d.store.topology.Load().layout.Locate(id)
	if !ok {
		return fmt.Errorf("list the range of row %d: %w: no node owns it", id, ErrUnavailable)
	}
	place := groupPlace{d.collection, group, r.Number}
	// Whoever clears what is remembered, because the index was lost, clears nothing of what is learnt from the new one.
	era := d.store.places.era()
	if _, err := d.inserts.ask(ctx, place.entry()); err != nil && !errors.Is(err, index.ErrExists) {
		return fmt.Errorf("list range %d for a group: %w: %w", r.Number, ErrUnavailable, err)
	}
	d.store.places.add(place, era)
	return nil
}

// ranges lists the numbers of ranges that may hold records of a group, from a number on, in order.
func (d *directory) ranges(ctx context.Context, group string, from int64) (numbers []int64, err error) {
	ctx, looking := beginStep(ctx, stepGroupRanges)
	defer func() { looking.end(err) }()
	after := groupPlace{group: group, number: from - 1}.entry().Key
	for limit := directoryFirst; ; limit = directoryPage {
		page, err := d.store.index.Scan(ctx, directoryOf(d.collection), after, limit)
		if err != nil {
			return nil, fmt.Errorf("look for the ranges of a group: %w: %w", ErrUnavailable, err)
		}
		for _, e := range page {
			if !strings.HasPrefix(e.Key, group+"\x00") {
				return numbers, nil
			}
			numbers, after = append(numbers, e.ID), e.Key
		}
		if len(page) < limit {
			return numbers, nil
		}
	}
}

// placeCache remembers pairs that the directory is known to have, which saves creates an insert. Entries never go, so that
// it cannot be wrong as long as the index is the same.
type placeCache struct {
	known *otter.Cache[groupPlace, uint64] // to the era in which it was learnt; nil when nothing is remembered
	// now is the current era. One ends when the index was lost: what was learnt before says nothing any more.
	now atomic.Uint64
}

// placeShare is the part of the cache, an eighth, that is kept for the places of groups where there are any.
const placeShare = 8

// shareCache divides the memory of the caches between keys and places of groups.
func shareCache(bytes int64, collections []Collection) (keys, places int64) {
	if slices.ContainsFunc(collections, func(c Collection) bool { return c.Group != "" }) {
		places = bytes / placeShare
	}
	return bytes - places, places
}

// placeOverhead is what a remembered pair takes besides the bytes of its group.
const placeOverhead = 160

// newPlaceCache makes a cache of at most maxBytes; 0 makes one that remembers nothing.
func newPlaceCache(maxBytes int64) *placeCache {
	c := &placeCache{}
	if maxBytes > 0 {
		c.known = otter.Must(&otter.Options[groupPlace, uint64]{
			MaximumWeight: uint64(maxBytes),
			Weigher:       func(p groupPlace, _ uint64) uint32 { return uint32(len(p.group) + placeOverhead) },
		})
	}
	return c
}

func (c *placeCache) has(p groupPlace) bool {
	if c.known == nil {
		return false
	}
	era, ok := c.known.GetIfPresent(p)
	return ok && era == c.era()
}

func (c *placeCache) add(p groupPlace, era uint64) {
	if c.known != nil {
		p.group = strings.Clone(p.group) // it may be a piece of a whole request
		c.known.Set(p, era)
	}
}

func (c *placeCache) era() uint64 { return c.now.Load() }

// forget forgets everything, also what is being learnt.
func (c *placeCache) forget() { c.now.Add(1) }
