package store

import (
	"context"
	"errors"

	"keyrange/index"
	"keyrange/store/sqldb"
)

// compareGroups looks for live rows in groups whose range the directory does not list, one of each group. The directory
// lists a range before it has a row of the group, for ever, so that whatever was not found is damage. With repair it is
// listed. After an error it is what was found, and mended, until then.
func (s *sweep) compareGroups(ctx context.Context, t sweptTable, rows []brief) (damage []Damage, err error) {
	var entries []index.Entry
	var keys []string
	first := map[string]brief{} // by the key of the entry
	for _, r := range rows {
		if r.group == "" {
			continue
		}
		e := groupPlace{t.collection, r.group, t.number}.entry()
		if _, seen := first[e.Key]; !seen {
			first[e.Key] = r
			entries, keys = append(entries, e), append(keys, e.Key)
		}
	}
	if len(entries) == 0 {
		return nil, nil
	}
	listed, err := s.find(ctx, directoryOf(t.collection), keys)
	if err != nil {
		return nil, err
	}
	var missing []index.Entry
	for _, e := range entries {
		if listed[e.Key] == 0 {
			missing = append(missing, e)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	var made []error
	if s.repair {
		made = s.index.Insert(ctx, directoryOf(t.collection), missing)
	}
	for i, e := range missing {
		d := t.damaged(Unlisted, first[e.Key], 0)
		switch {
		case made == nil:
		case made[i] == nil:
			d.Repaired = true
		case errors.Is(made[i], index.ErrExists):
			continue // somebody else mends too
		default:
			err = indexFailed("list ranges of groups", made[i])
			continue
		}
		damage = append(damage, d)
	}
	return damage, err
}

// shapes are the shapes of the collections as far as a look at the stores needs them.
func (f Fsck) shapes() schema {
	shapes := schema{}
	for _, collection := range f.Collections {
		shapes[collection] = newShape(f.Groups[collection])
	}
	return shapes
}

// compareGrouping refuses a node whose rows are grouped in another way than config says: the directory could not be made
// again from them. A node that has none of a collection says nothing.
func (f Fsck) compareGrouping(ctx context.Context, db *sqldb.DB) error {
	_, err := groupings{db}.judge(ctx, f.shapes())
	return err
}
