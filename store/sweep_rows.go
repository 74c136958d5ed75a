package store

import (
	"context"
	"errors"

	"keyrange/index"
)

// mendTries bounds how often the entry of a stray row is looked at again because somebody else has changed it.
const mendTries = 4

// rowStep looks at the rows of a range table within a span of IDs, a batch of them, and returns the rest of the span; an
// empty one at the end. With repair, stray rows get their entries back and overdue ones are removed.
func (s *sweep) rowStep(ctx context.Context, t sweptTable, within span) (found swept, rest span, err error) {
	rows, err := t.node.rows.scan(ctx, t.name, within, s.batch)
	if err != nil {
		return found, within, t.failed("scan rows", err)
	}
	fleet, fencesBefore := s.fleet(), s.fencesBefore()
	var records, overdue []brief
	for _, r := range rows {
		if r.state == live {
			found.rows++
		} else {
			found.fences++
		}
		switch {
		case !fleet.owns(t, r.id):
			found.damage = append(found.damage, t.damaged(Misplaced, r, 0))
		case r.overdue:
			overdue = append(overdue, r)
		case r.state == live:
			records = append(records, r)
		case r.updatedAt.Before(fencesBefore):
			found.oldFences = append(found.oldFences, r.id)
		}
	}
	damage, err := s.compare(ctx, t, records)
	found.damage = append(found.damage, damage...)
	if err == nil {
		damage, err = s.compareGroups(ctx, t, records)
		found.damage = append(found.damage, damage...)
	}
	if err != nil {
		return swept{damage: found.damage}, within, err
	}
	if found.expired = int64(len(overdue)); s.repair && found.expired > 0 {
		if found.buried, err = s.bury(ctx, t, overdue); err != nil {
			return swept{damage: found.damage, buried: found.buried}, within, err
		}
	}
	if len(rows) == s.batch {
		rest = span{rows[len(rows)-1].id + 1, within.hi}
	}
	return found, rest, nil
}

// damaged describes what is wrong with a row of the table, whose key's entry points at another ID, or 0 for none.
func (t sweptTable) damaged(kind DamageKind, r brief, entry int64) Damage {
	return Damage{Kind: kind, Collection: t.collection, Key: r.key, ID: r.id, Entry: entry, Table: t.name, Node: t.node.name}
}

// compare looks the entries of live rows up, and finds the rows that they do not point at. After an error it is those that
// it has found, and mended, until then.
func (s *sweep) compare(ctx context.Context, t sweptTable, rows []brief) ([]Damage, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	keys := make([]string, len(rows))
	for i, r := range rows {
		keys[i] = r.key
	}
	entries, err := s.find(ctx, t.collection, keys)
	if err != nil {
		return nil, err
	}
	var suspects []int64
	for _, r := range rows {
		if entries[r.key] != r.id {
			suspects = append(suspects, r.id)
		}
	}
	if len(suspects) == 0 {
		return nil, nil
	}
	// Most of them have been deleted since. A row that is still there was there when its entry was not.
	still, err := s.glance(ctx, t, suspects)
	if err != nil {
		return nil, err
	}
	var strays []brief
	for _, r := range rows {
		if entries[r.key] != r.id && still[r.id].belongsTo(r.key) {
			strays = append(strays, r)
		}
	}
	return s.mendAll(ctx, t, strays, entries)
}

// mendAll finds out what is wrong with stray rows, whose entries were seen, and mends it with repair. Of a lost index every
// row is stray, so the entries are made many at a time.
func (s *sweep) mendAll(ctx context.Context, t sweptTable, strays []brief, entries map[string]int64) (damage []Damage, err error) {
	var missing, others []brief
	seen := map[string]bool{} // of two rows of one key, the second looks again
	for _, r := range strays {
		if entries[r.key] == 0 && !seen[r.key] {
			missing = append(missing, r)
		} else {
			others = append(others, r)
		}
		seen[r.key] = true
	}
	var made []error
	if s.repair && len(missing) > 0 {
		batch := make([]index.Entry, len(missing))
		for i, r := range missing {
			batch[i] = index.Entry{Key: r.key, ID: r.id}
		}
		made = s.index.Insert(ctx, t.collection, batch)
	}
	for i, r := range missing {
		d := t.damaged(Stray, r, 0)
		switch {
		case made == nil:
		case made[i] == nil:
			d.Repaired = true
		case errors.Is(made[i], index.ErrExists):
			others = append(others, r)
			continue
		default:
			err = indexFailed("insert entries", made[i])
			continue
		}
		damage = append(damage, d)
	}
	for _, r := range others {
		if err != nil {
			break
		}
		var d Damage
		var found bool
		if d, found, err = s.mend(ctx, t, r); found {
			damage = append(damage, d)
		}
	}
	return damage, err
}

// mend finds out what is wrong with one stray row and mends it with repair; not found when it is as it should be by now.
func (s *sweep) mend(ctx context.Context, t sweptTable, r brief) (d Damage, found bool, err error) {
	for range mendTries {
		entries, err := s.find(ctx, t.collection, []string{r.key})
		if err != nil {
			return d, false, err
		}
		entry := entries[r.key]
		d = t.damaged(Stray, r, entry)
		done := false
		switch {
		case entry == r.id:
			return d, false, nil
		case entry != 0:
			d, done, err = s.mendElsewhere(ctx, t, r, entry)
		case !s.repair:
			return d, true, nil
		default:
			err = s.index.Insert(ctx, t.collection, []index.Entry{{Key: r.key, ID: r.id}})[0]
			d.Repaired = err == nil
			if done = d.Repaired; errors.Is(err, index.ErrExists) {
				err = nil
			} else if err != nil {
				err = indexFailed("insert entry", err)
			}
		}
		if err != nil || done {
			return d, err == nil, err
		}
	}
	return d, true, nil // whatever it is, requests are at it
}

// mendElsewhere deals with a stray row whose key's entry points at another ID. It is not done when the entry has changed.
func (s *sweep) mendElsewhere(ctx context.Context, t sweptTable, r brief, entry int64) (d Damage, done bool, err error) {
	d = t.damaged(Stray, r, entry)
	spots, err := s.at(ctx, t.collection, []int64{entry})
	if err != nil {
		return d, false, err
	}
	there := spots[entry]
	switch {
	case !there.known:
		return d, true, nil // nobody here can tell what is there
	case there.row.belongsTo(r.key):
		d.Kind = Double
		return d, true, nil
	case !s.repair:
		return d, true, nil
	case there.row == nil:
		shut, err := s.fence(ctx, there.sweptTable, []index.Entry{{Key: r.key, ID: entry}})
		if err != nil || len(shut) == 0 {
			return d, false, err // a row has come, or has just gone: look again
		}
	}
	changed, err := s.index.Replace(ctx, t.collection, r.key, entry, r.id)
	if err != nil {
		return d, false, indexFailed("replace entry", err)
	}
	d.Repaired = changed
	return d, changed, nil
}

// purgeStep deletes fences of a table that were seen to be old, a batch of them at most, and returns how many.
func (s *sweep) purgeStep(ctx context.Context, t sweptTable, ids []int64) (int64, error) {
	n, err := t.node.rows.purge(ctx, t.name, ids, s.fencesBefore())
	if err != nil {
		return n, t.failed("purge fences", err)
	}
	return n, nil
}
