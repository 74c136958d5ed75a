package store

import (
	"context"
	"time"
)

// tracePatience bounds the wait of a Trace for the index, so that there is time left for the node.
const tracePatience = 2 * time.Second

// What a Trace found where an ID leads to.
const (
	// RowLive is a record of the key.
	RowLive = "live"
	// RowExpired is a record of the key that has ceased to exist, and whose row is still there.
	RowExpired = "expired"
	// RowFence proves that no record will ever live at the ID: the entry dangles.
	RowFence = "fence"
	// RowAbsent: there is no row, because a create or a delete is on its way or has died. The entry dangles.
	RowAbsent = "absent"
	// RowForeign is a record of another key: what led to it is out of date.
	RowForeign = "foreign"
)

// Trace is the path from a key to its row, as it was seen at a moment. It never has the document.
type Trace struct {
	// CachedID is the ID that this gateway remembers for the key; 0 for none. It may be out of date.
	CachedID int64
	// EntryID is the ID that the index has for the key; 0 for no entry. EntryErr is why the index did not say.
	EntryID  int64
	EntryErr error
	// ID is the one that was followed: that of the entry, or the remembered one while the index does not answer; 0 for none.
	ID int64
	// Range owns the ID, [Lo, Hi) are its IDs, and Table on Node keeps its rows of the collection. Range is 0 when no node of
	// this config owns the ID.
	Range, Lo, Hi int64
	Node, Table   string
	// Row is one of the above; "" when no row was read. RowErr is why the node did not say.
	Row    string
	RowErr error
	// Version, the times and the size in bytes are those of the row; zero for all but a live or expired one of the key.
	// ExpiresAt is zero for never.
	Version                         int64
	CreatedAt, UpdatedAt, ExpiresAt time.Time
	Bytes                           int64
}

// Trace looks up a key step by step and says what it saw, for people. Other than Get it asks the index even when the ID is
// remembered, it changes nothing that is remembered, and a database that does not answer is part of what it says. ErrInvalid:
// the key breaks a rule, or there is no such collection.
func (s *Store) Trace(ctx context.Context, collection, key string) (t Trace, err error) {
	if err := s.checkRead(collection, key); err != nil {
		return t, err
	}
	t.CachedID = s.cache.peek(collection, key)
	asking, cancel := context.WithTimeout(ctx, tracePatience)
	defer cancel()
	t.EntryID, _, t.EntryErr = s.find(asking, collection, key)
	if t.ID = t.EntryID; t.EntryErr != nil {
		t.ID = t.CachedID
	}
	if t.ID == 0 {
		return t, nil
	}
	now := s.topology.Load()
	r, n, ok := now.layout.Locate(t.ID)
	if !ok {
		return t, nil
	}
	t.Range, t.Lo, t.Hi, t.Node, t.Table = r.Number, r.Lo, r.Hi, now.nodes[n].name, tableName(collection, r.Number)
	found, err := s.readRow(ctx, collection, t.ID)
	if err != nil {
		t.RowErr = err
		return t, nil
	}
	t.see(found, key)
	return t, nil
}

// see notes what a row is to a key.
func (t *Trace) see(r *row, key string) {
	switch {
	case r == nil:
		t.Row = RowAbsent
	case r.state == fence:
		t.Row = RowFence
	case r.key != key:
		t.Row = RowForeign
	default:
		t.Row, t.Version, t.Bytes = RowLive, r.version, int64(r.size())
		if r.expired {
			t.Row = RowExpired
		}
		t.CreatedAt, t.UpdatedAt, t.ExpiresAt = r.createdAt, r.updatedAt, r.ExpiresAt
	}
}

// peek is the remembered ID of a key, 0 for none. It counts as no look-up.
func (c *keyCache) peek(collection, key string) int64 {
	if c.ids == nil {
		return 0
	}
	entry, _ := c.ids.GetEntryQuietly(cacheKey{collection, key})
	return entry.Value
}
