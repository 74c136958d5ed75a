package store

import (
	"context"
	"errors"
	"time"

	"keyrange/index"
	"keyrange/store/sqldb"
)

// entryStep looks at the entries after a key, a batch of them, and returns the key to go on after; "" at the end. Nothing
// is written.
func (s *sweep) entryStep(ctx context.Context, collection, after string) (found swept, next string, err error) {
	entries, err := s.index.Scan(ctx, collection, after, s.batch)
	if err != nil {
		return found, after, indexFailed("scan entries", err)
	}
	if len(entries) == 0 {
		return found, "", nil
	}
	spots, err := s.at(ctx, collection, idsOf(entries))
	if err != nil {
		return found, after, err
	}
	now := s.now()
	for _, e := range entries {
		switch there := spots[e.ID]; {
		case !there.known:
			found.damage = append(found.damage, there.damaged(Beyond, collection, e.Key, e.ID))
		case !there.row.belongsTo(e.Key):
			found.doubtful = append(found.doubtful, doubt{e, collection, now})
		}
	}
	found.entries = int64(len(entries))
	if len(entries) == s.batch {
		next = entries[s.batch-1].Key
	}
	return found, next, nil
}

func idsOf(entries []index.Entry) []int64 {
	ids := make([]int64, len(entries))
	for i, e := range entries {
		ids[i] = e.ID
	}
	return ids
}

// secondStep looks once more at entries of one collection that were seen dangling, a batch of them at most, and finds
// those that still do. With repair they are removed. After an error nothing was found, and some may be gone.
func (s *sweep) secondStep(ctx context.Context, collection string, doubtful []doubt) (found swept, err error) {
	keys := make([]string, len(doubtful))
	for i, d := range doubtful {
		keys[i] = d.Key
	}
	current, err := s.find(ctx, collection, keys)
	if err != nil {
		return found, err
	}
	var still []index.Entry
	for _, d := range doubtful {
		if current[d.Key] == d.ID {
			still = append(still, d.Entry)
		}
	}
	spots, err := s.at(ctx, collection, idsOf(still))
	if err != nil {
		return found, err
	}
	dangling := map[sweptTable][]index.Entry{}
	for _, e := range still {
		if there := spots[e.ID]; there.known && !there.row.belongsTo(e.Key) {
			dangling[there.sweptTable] = append(dangling[there.sweptTable], e)
		}
	}
	for t, entries := range dangling {
		gone, err := s.removeBehindFences(ctx, t, entries, spots)
		if err != nil {
			return swept{}, err
		}
		for _, e := range entries {
			d := spots[e.ID].damaged(Dangling, collection, e.Key, e.ID)
			if d.Repaired = gone[e.ID]; d.Repaired || !s.repair {
				found.damage = append(found.damage, d)
			}
		}
	}
	return found, nil
}

// removeBehindFences removes entries that point at the spots of one table, and says which by ID. Without repair it is none.
func (s *sweep) removeBehindFences(ctx context.Context, t sweptTable, entries []index.Entry, spots map[int64]spot) (gone map[int64]bool, err error) {
	if !s.repair {
		return nil, nil
	}
	var open, shut []index.Entry
	for _, e := range entries {
		if spots[e.ID].row == nil {
			open = append(open, e)
		} else {
			shut = append(shut, e) // a fence, or another key's row: no row of the key can come
		}
	}
	fenced, err := s.fence(ctx, t, open)
	if err != nil {
		return nil, err
	}
	shut = append(shut, fenced...)
	// Fence first, entry last. The other way round, a create could insert its row after the entry is gone.
	if err := s.index.Remove(ctx, t.collection, shut); err != nil {
		return nil, indexFailed("remove entries", err)
	}
	gone = make(map[int64]bool, len(shut))
	for _, e := range shut {
		gone[e.ID] = true
	}
	return gone, nil
}

// fence makes sure that no row of an entry's key will ever live where the entry points, and returns the entries of which
// that is certain: the others point at a live row of their key by now, or at one that has just gone. After an error fences
// may have been made, or may yet.
func (s *sweep) fence(ctx context.Context, t sweptTable, entries []index.Entry) (shut []index.Entry, err error) {
	if len(entries) == 0 {
		return nil, nil
	}
	now := s.now().UTC().Truncate(time.Microsecond)
	fences := make([]row, len(entries))
	for i, e := range entries {
		fences[i] = row{id: e.ID, key: e.Key, version: 1, token: s.identity.token(), createdAt: now, updatedAt: now}.asFence()
	}
	var met []index.Entry
	for i, err := range t.node.rows.insert(ctx, t.name, fences) {
		switch {
		case err == nil:
			shut = append(shut, entries[i])
		case errors.Is(err, sqldb.ErrDuplicate):
			met = append(met, entries[i])
		default:
			return nil, t.failed("fence rows", err)
		}
	}
	if len(met) == 0 {
		return shut, nil
	}
	found, err := s.glance(ctx, t, idsOf(met))
	if err != nil {
		return nil, err
	}
	for _, e := range met {
		if there := found[e.ID]; there != nil && !there.belongsTo(e.Key) {
			shut = append(shut, e)
		}
	}
	return shut, nil
}
