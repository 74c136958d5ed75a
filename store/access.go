package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"keyrange/store/sqldb"
)

// writeTries bounds how often a put or a delete starts over because the record came or went in between.
const writeTries = 8

// Get reads the record of a key. A record is proved by the row that was just read; ErrNotFound by the entry that was.
func (s *Store) Get(ctx context.Context, collection, key string) (Record, error) {
	if err := s.checkRead(collection, key); err != nil {
		return Record{}, err
	}
	r, err := s.lookUp(ctx, collection, key)
	if err != nil {
		return Record{}, err
	}
	return r.record()
}

func (s *Store) checkRead(collection, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	_, err := s.placement(collection)
	return err
}

// lookUp reads the live row of a key, or ErrNotFound. An entry without one belongs to a create or a delete on its way,
// or to one that died: in each case there was a moment during this call at which the key had no record. A cached ID
// proves nothing of that kind, so a negative that it led to is confirmed by the index.
func (s *Store) lookUp(ctx context.Context, collection, key string) (*row, error) {
	id, cached, err := s.locate(ctx, collection, key)
	if err != nil {
		return nil, err
	}
	r, err := s.readRow(ctx, collection, id)
	switch {
	case err != nil:
		return nil, err
	case r.belongsTo(key):
		s.cache.put(collection, key, id)
		return r, nil
	case cached:
		s.cache.drop(collection, key, id)
		return s.lookUp(ctx, collection, key)
	case r != nil && r.state == live && r.key != key:
		s.alarm("an ID was issued twice: an entry points at the row of another key", "collection", collection, "id", id)
	}
	return nil, ErrNotFound
}

// Put stores a content under a key, whether or not it has a record, and says whether it created it. The condition is
// checked by the statement that writes, and so is that the group is the same: ErrGroupMismatch. Of a replaced record CreatedAt is not known and stays zero. After ErrUnknown the
// document may have been stored; after every other error it was not.
func (s *Store) Put(ctx context.Context, collection, key string, content Content, cond Condition) (rec Record, created bool, err error) {
	p, err := s.checkWrite(collection, key, &content)
	if err != nil {
		return Record{}, false, err
	}
	b, cancel := newBudget(ctx)
	defer cancel()
	defer func() { s.metrics.countUnknown(opPut, err) }()
	for range writeTries {
		rec, err = s.replace(b, collection, key, content, cond)
		if errors.Is(err, ErrNotFound) {
			if cond.demanded() {
				return Record{}, false, fmt.Errorf("%w: there is no record", ErrPrecondition)
			}
			rec, err = s.create(b, p, key, content, Once{})
			created = err == nil
		}
		// Lost to another request: a create came first, or the record changed hands. Look again.
		if !errors.Is(err, errLost) && !errors.Is(err, ErrConflict) {
			return rec, created, err
		}
		if b.Err() != nil {
			break
		}
	}
	return Record{}, false, fmt.Errorf("put: %w: gave up after %d tries", ErrBusy, writeTries)
}

// replace writes a document over a live record in one conditional statement; ErrNotFound when there is none.
func (s *Store) replace(b budget, collection, key string, content Content, cond Condition) (Record, error) {
	t, err := s.target(b, collection, key, cond)
	if err != nil {
		return Record{}, err
	}
	change := t.rowChange
	change.token, change.updatedAt, change.Content = s.identity.token(), s.timestamp(), content
	change.sameGroup = s.directories[collection] != nil
	done, err := s.changeRow(b, collection, change)
	switch {
	case done.ok:
		s.cache.put(collection, key, change.id)
		return replaced(change, done.version), nil
	case err == nil:
		return Record{}, s.missed(b, collection, target{change, t.cached})
	case errors.Is(err, sqldb.ErrUnknown):
		return s.resolveUpdate(b, collection, change, err)
	}
	return Record{}, fmt.Errorf("update row %d: %w: %w", change.id, ErrUnavailable, err)
}

func replaced(change rowChange, version int64) Record {
	content := change.Content
	content.split = nil // as for a row's record
	return Record{Key: change.key, Tag: Tag{change.id, version}, Content: content, UpdatedAt: change.updatedAt}
}

// target is the row that a conditional write is for.
type target struct {
	rowChange
	// cached says that the ID may be stale.
	cached bool
}

// target locates the row for a write under a condition; ErrNotFound when the key has no entry, ErrPrecondition when the
// condition asks for another record.
func (s *Store) target(ctx context.Context, collection, key string, cond Condition) (target, error) {
	id, cached, err := s.locate(ctx, collection, key)
	if err != nil {
		return target{}, err
	}
	versions, ok := cond.versions(id)
	if !ok && cached {
		s.cache.drop(collection, key, id)
		return s.target(ctx, collection, key, cond)
	}
	if !ok {
		return target{}, fmt.Errorf("%w: the record is another one", ErrPrecondition)
	}
	return target{rowChange{id: id, key: key, versions: versions}, cached}, nil
}

// missed says why a conditional statement found nothing to change: ErrNotFound, ErrPrecondition, or errLost when looking
// again may tell more, because the ID was cached or the record came into being in between.
func (s *Store) missed(ctx context.Context, collection string, t target) error {
	r, err := s.readRow(ctx, collection, t.id)
	switch {
	case err != nil:
		return err
	case !r.belongsTo(t.key) && t.cached:
		s.cache.drop(collection, t.key, t.id)
		return errLost
	case !r.belongsTo(t.key):
		return ErrNotFound
	case t.sameGroup && r.Group != t.Group && (len(t.versions) == 0 || slices.Contains(t.versions, r.version)):
		return ErrGroupMismatch
	case len(t.versions) > 0:
		return fmt.Errorf("%w: the record is at %s", ErrPrecondition, r.tag())
	}
	return errLost
}

// resolveUpdate looks for the token of an unanswered update in the row.
func (s *Store) resolveUpdate(b budget, collection string, change rowChange, cause error) (Record, error) {
	ctx, cancel := b.resolving()
	defer cancel()
	if r, err := s.readRow(ctx, collection, change.id); err == nil && r != nil && r.token == change.token {
		return replaced(change, r.version), nil
	}
	// Not there, or overwritten, or still on its way: nobody can tell.
	return Record{}, fmt.Errorf("update row %d: %w: %w", change.id, ErrUnknown, cause)
}

// Delete removes the record of a key: its row first, then its entry. Once the row is gone the record is, so an entry that
// cannot be removed only dangles. After ErrUnknown the record may be gone; after every other error it was left alone.
func (s *Store) Delete(ctx context.Context, collection, key string, cond Condition) (err error) {
	if err := s.checkRead(collection, key); err != nil {
		return err
	}
	b, cancel := newBudget(ctx)
	defer cancel()
	defer func() { s.metrics.countUnknown(opDelete, err) }()
	for range writeTries {
		err := s.remove(b, collection, key, cond)
		if errors.Is(err, ErrNotFound) && cond.demanded() {
			return fmt.Errorf("%w: there is no record", ErrPrecondition)
		}
		if !errors.Is(err, errLost) {
			return err
		}
		if b.Err() != nil {
			break
		}
	}
	return fmt.Errorf("delete: %w: gave up after %d tries", ErrBusy, writeTries)
}

func (s *Store) remove(b budget, collection, key string, cond Condition) error {
	t, err := s.target(b, collection, key, cond)
	if err != nil {
		return err
	}
	done, err := s.changeRow(b, collection, t.rowChange)
	if errors.Is(err, sqldb.ErrUnknown) {
		done, err = s.resolveRemove(b, collection, t.rowChange, err)
	}
	switch {
	case errors.Is(err, ErrUnknown):
		return err
	case err != nil:
		return fmt.Errorf("delete row %d: %w: %w", t.id, ErrUnavailable, err)
	case !done.ok:
		return s.missed(b, collection, t)
	}
	s.cache.drop(collection, key, t.id)
	ctx, cancel := b.resolving()
	defer cancel()
	s.removeEntry(ctx, collection, key, t.id)
	return nil
}

// resolveRemove sends an unanswered delete once more. That is safe: a row that is gone never lives again (I2). When
// nothing is left to delete, it was this request or another one, and nobody can tell which.
func (s *Store) resolveRemove(b budget, collection string, change rowChange, cause error) (changed, error) {
	ctx, cancel := b.resolving()
	defer cancel()
	if done, err := s.changeRow(ctx, collection, change); err == nil && done.ok {
		return done, nil
	}
	return changed{}, fmt.Errorf("delete row %d: %w: %w", change.id, ErrUnknown, cause)
}
