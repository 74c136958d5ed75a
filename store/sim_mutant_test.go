package store

import (
	"context"
	"errors"
	"fmt"

	"keyrange/index"
	"keyrange/store/sqldb"
)

// insertWithoutFences is mutantNoFence: fences are not written, and nobody notices.
func (n *simRows) insertWithoutFences(ctx context.Context, batch []row) []error {
	errs := make([]error, len(batch))
	var records []row
	var at []int
	for i, r := range batch {
		if r.state == live {
			records, at = append(records, r), append(at, i)
		}
	}
	if len(records) > 0 {
		for k, err := range n.insertAll(ctx, records) {
			errs[at[k]] = err
		}
	}
	return errs
}

// insertAgainAndAgain is mutantBlindResend: as long as a record's insert has no answer, it is sent again.
func (n *simRows) insertAgainAndAgain(ctx context.Context, batch []row) []error {
	errs := n.insertAll(ctx, batch)
	for i := range batch {
		for batch[i].state == live && errors.Is(errs[i], sqldb.ErrUnknown) && ctx.Err() == nil && !n.isDead() {
			errs[i] = n.insertAll(ctx, batch[i:i+1])[0]
		}
	}
	return errs
}

func (n *simRows) isDead() bool {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	return n.gateway.dead
}

// deleteIndexFirst is mutantIndexFirst: a failure in between leaves a live row that nobody finds.
func deleteIndexFirst(ctx context.Context, s *Store, key string) error {
	id, _, err := s.locate(ctx, simCollection, key)
	if err != nil {
		return err
	}
	if err := s.index.Remove(ctx, simCollection, []index.Entry{{Key: key, ID: id}}); err != nil {
		return fmt.Errorf("%w: %s", ErrUnknown, err.Error())
	}
	done, err := s.changeRow(ctx, simCollection, rowChange{id: id, key: key})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s", ErrUnknown, err.Error())
	case !done.ok:
		return ErrNotFound
	}
	return nil
}

// deleteClaimed is mutantClaimed: an unanswered delete that is sent again claims success when it finds nothing. Whoever is
// alone with a key never notices, because it was the first statement that deleted the row. It is wrong when that one never
// took effect and the row went, or became another version, by another client's doing.
func deleteClaimed(ctx context.Context, s *Store, key string, cond Condition) error {
	b, cancel := newBudget(ctx)
	defer cancel()
	t, err := s.target(b, simCollection, key, cond)
	if err != nil {
		return s.Delete(ctx, simCollection, key, cond)
	}
	done, err := s.changeRow(b, simCollection, t.rowChange)
	switch {
	case errors.Is(err, sqldb.ErrUnknown):
		again, cancel := b.resolving()
		defer cancel()
		if _, err := s.changeRow(again, simCollection, t.rowChange); err != nil {
			return fmt.Errorf("%w: %s", ErrUnknown, err.Error())
		}
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case !done.ok:
		return s.Delete(ctx, simCollection, key, cond)
	}
	return nil
}

// getUnconfirmed is mutantUnconfirmed: what a cached ID does not lead to is not there.
func getUnconfirmed(ctx context.Context, s *Store, key string) (Record, error) {
	id, _, err := s.locate(ctx, simCollection, key)
	if err != nil {
		return Record{}, err
	}
	r, err := s.readRow(ctx, simCollection, id)
	switch {
	case err != nil:
		return Record{}, err
	case !r.belongsTo(key):
		s.cache.drop(simCollection, key, id)
		return Record{}, ErrNotFound
	}
	s.cache.put(simCollection, key, id)
	return r.record()
}
