package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"keyrange/index"
	"keyrange/store/sqldb"
)

const (
	// createTries bounds how often a create starts over because another request won a step.
	createTries = 8
	// takeOverGrace is how long a create waits for the row of an entry that another create may be about to insert.
	// Politeness only: the fence is what makes taking the entry over safe.
	takeOverGrace = 200 * time.Millisecond
	takeOverPoll  = 10 * time.Millisecond
)

// errLost means that another request won a step; the create starts over.
var errLost = errors.New("another request won")

// Create stores a content under a key that has no record yet and returns the new record. A *ConflictError carries the
// tag of the record that is there. After ErrUnknown the record may exist; after every other error it does not.
func (s *Store) Create(ctx context.Context, collection, key string, content Content) (Record, error) {
	rec, _, err := s.CreateOnce(ctx, collection, key, content, Once{})
	return rec, err
}

// CreateOnce is Create for a request that its client may repeat: when the record is there because an earlier repetition
// created it, that is no conflict, and it is returned as it was created. Once the record has been changed, it is one.
// ErrReused: the earlier request had another document.
func (s *Store) CreateOnce(ctx context.Context, collection, key string, content Content, once Once) (rec Record, replayed bool, err error) {
	p, err := s.checkWrite(collection, key, &content)
	if err != nil {
		return Record{}, false, err
	}
	b, cancel := newBudget(ctx)
	defer cancel()
	rec, err = s.create(b, p, key, content, once)
	s.metrics.countUnknown(opCreate, err)
	var earlier *replayedError
	if errors.As(err, &earlier) {
		return earlier.record, true, nil
	}
	return rec, false, err
}

// replayedError ends a create because an earlier repetition of it created the record.
type replayedError struct{ record Record }

func (e *replayedError) Error() string { return "created before, by the same request" }

// checkWrite refuses what can be refused before anything is written (I6). In a collection with columns it makes the
// document what it will be when it is read.
func (s *Store) checkWrite(collection, key string, content *Content) (*placement, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.split(collection, key, content); err != nil {
		return nil, err
	}
	if limit := s.MaxDocumentBytes(); int64(len(content.Document)) > limit {
		return nil, fmt.Errorf("%w: it has %d bytes, the smallest node takes %d", ErrTooLarge, len(content.Document), limit)
	}
	if content.Group != "" {
		if _, err := s.groupDirectory(collection, content.Group); err != nil {
			return nil, err
		}
	}
	return s.placement(collection)
}

// creation is one create on its way.
type creation struct {
	store   *Store
	budget  budget
	ids     *placement
	key     string
	content Content
	once    Once
	// elsewhere says that the last row was certainly not inserted because its node is away, so that another one may do.
	elsewhere bool
}

func (s *Store) create(b budget, p *placement, key string, content Content, once Once) (Record, error) {
	c := &creation{store: s, budget: b, ids: p, key: key, content: content, once: once}
	var err error
	for range createTries {
		var rec Record
		if rec, err = c.try(); err == nil {
			return rec, nil
		}
		if again := errors.Is(err, errLost) || c.elsewhere && p.how.Load().Spread > 1; !again {
			return Record{}, err
		}
		if b.Err() != nil {
			break
		}
	}
	if c.elsewhere {
		return Record{}, err
	}
	return Record{}, fmt.Errorf("create: %w: gave up after %d tries", ErrBusy, createTries)
}

// try goes through the protocol once, with an ID of its own.
func (c *creation) try() (Record, error) {
	c.elsewhere = false
	ctx, taking := beginStep(c.budget, stepTakeID)
	id, err := c.ids.nextFor(ctx, c.content.Group)
	taking.end(err)
	if err != nil {
		return Record{}, err
	}
	if err := c.prepare(id); err != nil {
		return Record{}, err
	}
	rec, err := c.insert(id)
	if err == nil {
		c.store.cache.put(c.ids.collection, c.key, id)
	}
	return rec, err
}

// prepare does all that must be certain before the row may be inserted: that the entry {key, id} exists, and that the
// directory lists the range for the group.
func (c *creation) prepare(id int64) error {
	d := c.store.directories[c.ids.collection]
	if c.content.Group == "" || d == nil || d.knows(c.content.Group, id) {
		return c.reserve(id)
	}
	listed := make(chan error, 1)
	go func() { listed <- d.enter(c.budget, c.content.Group, id) }()
	err := c.reserve(id)
	listErr := <-listed
	if err != nil || listErr == nil {
		return err
	}
	// No row follows. The entry may stay behind, so that the ID is burned.
	ctx, cancel := c.budget.resolving()
	defer cancel()
	c.store.removeEntry(ctx, c.ids.collection, c.key, id)
	return listErr
}

// reserve makes the entry {key, id}: by inserting it, or by taking over an entry whose row will never live.
func (c *creation) reserve(id int64) error {
	s := c.store
	_, err := s.entries[c.ids.collection].inserts.ask(c.budget, index.Entry{Key: c.key, ID: id})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, index.ErrExists):
	case errors.Is(err, index.ErrUnavailable):
		c.ids.reuse(id)
		return fmt.Errorf("insert entry: %w: %w", ErrUnavailable, err)
	default:
		// No row follows, so an entry that still lands only dangles. The ID is burned.
		return fmt.Errorf("insert entry: %w: %w", ErrUnavailable, err)
	}
	holder, ok, err := s.find(c.budget, c.ids.collection, c.key)
	switch {
	case err != nil:
		return err // who holds the entry is not known, it may be this create: the ID is burned
	case !ok:
		c.ids.reuse(id)
		return errLost // it was removed in between
	case holder == id:
		return nil // the driver sent the insert twice, and the first had come through
	}
	part := *c
	ctx, taking := beginStep(c.budget, stepTakeOver)
	part.budget.Context = ctx
	err = part.takeOver(holder, id)
	taking.end(err)
	return err
}

// takeOver decides what the entry {key, holder} is worth. A live row wins, unless it has expired, and then it is removed.
// Otherwise a fence makes sure that no row will ever live at holder. Only then the entry is changed to {key, id}.
func (c *creation) takeOver(holder, id int64) error {
	s := c.store
	r, err := c.awaitRow(holder)
	if err == nil && r == nil {
		r, err = c.fence(holder)
	}
	if err == nil && r.outlived(c.key) {
		r, err = c.bury(holder)
	}
	if err != nil {
		c.ids.reuse(id)
		return err
	}
	switch {
	case r.belongsTo(c.key):
		c.ids.reuse(id)
		return c.conflict(r)
	case r != nil && r.state == live:
		s.alarm("an ID was issued twice: an entry points at the row of another key", "collection", c.ids.collection, "id", holder)
	}
	swapped, err := s.index.Replace(c.budget, c.ids.collection, c.key, holder, id)
	switch {
	case swapped:
		s.metrics.takeOvers.Inc()
		return nil
	case err == nil || errors.Is(err, index.ErrUnavailable):
		c.ids.reuse(id)
		if err == nil {
			return errLost
		}
		return fmt.Errorf("take over entry: %w: %w", ErrUnavailable, err)
	}
	// It may have been changed. If it was, go on; if it still may be, it will only dangle.
	ctx, cancel := c.budget.resolving()
	defer cancel()
	if now, ok, findErr := s.find(ctx, c.ids.collection, c.key); findErr == nil && ok && now == id {
		return nil
	}
	return fmt.Errorf("take over entry: %w: %w", ErrUnavailable, err)
}

// awaitRow reads the row at an ID and gives the create that may be about to insert it a little time.
func (c *creation) awaitRow(id int64) (*row, error) {
	deadline := time.Now().Add(takeOverGrace)
	for {
		r, err := c.store.readRow(c.budget, c.ids.collection, id)
		if err != nil || r != nil || time.Now().After(deadline) {
			return r, err
		}
		select {
		case <-time.After(takeOverPoll):
		case <-c.budget.Done():
			return nil, fmt.Errorf("wait for row %d: %w: %w", id, ErrUnavailable, c.budget.Err())
		}
	}
}

// fence makes sure that the row at an ID is decided and returns it. A fence that lands late does no harm: it can only
// take the place of a row that nobody was told of.
func (c *creation) fence(id int64) (*row, error) {
	f := c.newFence(id)
	err := c.store.insertRow(c.budget, c.ids.collection, f)
	switch {
	case err == nil:
		c.store.metrics.fences.WithLabelValues(fenceTakeOver).Inc()
		return &f, nil
	case errors.Is(err, sqldb.ErrDuplicate):
		r, err := c.store.readRow(c.budget, c.ids.collection, id)
		if err == nil && r == nil {
			err = errLost // it lived and was deleted in between
		}
		return r, err
	}
	return nil, fmt.Errorf("fence row %d: %w: %w", id, ErrUnavailable, err)
}

// newRow is the row that makes the record. A create that may be repeated leaves its mark there, which is enough to
// recognise its own row: whichever repetition wrote it.
func (c *creation) newRow(id int64) row {
	now, token := c.store.timestamp(), c.once.mark
	if c.once.isZero() {
		token = c.store.identity.token()
	}
	return row{id: id, key: c.key, state: live, version: 1, token: token, createdAt: now, updatedAt: now, Content: c.content}
}

// newFence is a fence with a token of its own, so that nobody takes it for a row.
func (c *creation) newFence(id int64) row {
	f := c.newRow(id).asFence()
	f.token = c.store.identity.token()
	return f
}

// conflict says what the live record of the key, which stands in the way, is to this create.
func (c *creation) conflict(r *row) error {
	if err := c.once.judge(r); err != nil {
		return err
	}
	rec, err := r.record()
	if err != nil {
		return err
	}
	return &replayedError{rec}
}

// insert commits the row of a reserved entry, sent at most once: the moment at which the record exists.
func (c *creation) insert(id int64) (Record, error) {
	s := c.store
	r := c.newRow(id)
	err := s.insertRow(c.budget, c.ids.collection, r)
	switch {
	case err == nil:
		return r.record()
	case errors.Is(err, sqldb.ErrDuplicate):
		return c.occupied(&r)
	case errors.Is(err, sqldb.ErrUnknown):
		return c.resolve(&r)
	}
	// Certainly not inserted. The entry dangles, which costs the next create of this key a fence: remove it if possible.
	ctx, cancel := c.budget.resolving()
	defer cancel()
	s.removeEntry(ctx, c.ids.collection, c.key, id)
	c.elsewhere = errors.Is(err, sqldb.ErrUnavailable)
	return Record{}, fmt.Errorf("insert row %d: %w: %w", id, ErrUnavailable, err)
}

// occupied looks at what was at the ID before the row came.
func (c *creation) occupied(mine *row) (Record, error) {
	r, err := c.store.readRow(c.budget, c.ids.collection, mine.id)
	switch {
	case err != nil:
		return Record{}, fmt.Errorf("insert row %d: %w: %s", mine.id, ErrUnknown, err.Error()) // not unavailable as well
	case r == nil || r.state == fence:
		return Record{}, errLost
	case r.token == mine.token:
		return mine.record()
	case r.belongsTo(c.key):
		return Record{}, c.conflict(r)
	case r.key == c.key:
		return Record{}, errLost // it has expired: the next round takes the entry over
	}
	c.store.alarm("an ID was issued twice: its row belongs to another key", "collection", c.ids.collection, "id", mine.id)
	c.ids.drop(mine.id)
	return Record{}, errLost // the next round takes the entry over; the other key's row is left alone
}

// resolve finds out what an unanswered insert did, on a fresh connection: whoever commits first at the ID decides, the
// insert or the fence.
func (c *creation) resolve(mine *row) (Record, error) {
	ctx, cancel := c.budget.resolving()
	defer cancel()
	err := c.store.insertRow(ctx, c.ids.collection, c.newFence(mine.id))
	unknown := fmt.Errorf("insert row %d: %w", mine.id, ErrUnknown)
	switch {
	case err == nil:
		c.store.metrics.fences.WithLabelValues(fenceUnanswered).Inc()
		c.store.removeEntry(ctx, c.ids.collection, c.key, mine.id)
		return Record{}, unknown // it may have lived and been deleted before the fence
	case errors.Is(err, sqldb.ErrDuplicate):
		if r, err := c.store.readRow(ctx, c.ids.collection, mine.id); err == nil && r != nil && r.state == live && r.token == mine.token {
			return mine.record()
		}
	}
	return Record{}, unknown
}

// removeEntry drops exactly the entry {key, id}; a failure leaves it dangling, which is harmless.
func (s *Store) removeEntry(ctx context.Context, collection, key string, id int64) {
	if _, err := s.entries[collection].removals.ask(ctx, index.Entry{Key: key, ID: id}); err != nil {
		s.log.Debug("an entry dangles", "collection", collection, "id", id, "cause", err.Error())
	}
}
