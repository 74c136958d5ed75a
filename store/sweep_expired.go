package store

import (
	"context"
	"fmt"
	"slices"

	"keyrange/index"
)

// expiryColumn is what range tables made by earlier versions lack.
const expiryColumn = "expires_at"

// expiring makes sure that all range tables of a node can tell what has expired. No gateway of this version may have been
// started on them. With repair they get the column.
func (a adapter) expiring(ctx context.Context, repair bool) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	if repair {
		return a.adapt(ctx)
	}
	tables, err := a.columns(ctx, "")
	if err != nil {
		return err
	}
	for table, has := range tables {
		if !slices.ContainsFunc(has, func(c tableColumn) bool { return c.name == expiryColumn }) {
			return fmt.Errorf("table %s was made by an earlier version: start a gateway of this version first, or repair", table)
		}
	}
	return nil
}

// bury removes overdue rows of a table and then their entries, and returns how many rows are gone because of it. After an
// error some may be gone without their entries, which dangle and are found as such.
func (s *sweep) bury(ctx context.Context, t sweptTable, overdue []brief) (buried int64, err error) {
	ids := make([]int64, len(overdue))
	for i, r := range overdue {
		ids[i] = r.id
	}
	if buried, err = t.node.rows.expire(ctx, t.name, ids); err != nil {
		return buried, t.failed("remove expired rows", err)
	}
	// A create may have removed some of them, and is about to take the entry over. One that is still there was changed at
	// the last moment.
	var left map[int64]*brief
	if buried < int64(len(ids)) {
		if left, err = s.glance(ctx, t, ids); err != nil {
			return buried, err
		}
	}
	entries := make([]index.Entry, 0, len(overdue))
	for _, r := range overdue {
		if left[r.id] == nil {
			entries = append(entries, index.Entry{Key: r.key, ID: r.id})
		}
	}
	if err := s.index.Remove(ctx, t.collection, entries); err != nil {
		return buried, indexFailed("remove entries of expired rows", err)
	}
	return buried, nil
}
