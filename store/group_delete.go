package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"keyrange/idsegment"
	"keyrange/store/sqldb"
)

const (
	// deletionBatch is how many records of a group are deleted between two notes of the progress.
	deletionBatch = 256
	// deletionLife is how long a gateway that says nothing keeps a deletion. A step takes half of it at most.
	deletionLife = 20 * time.Second
	// deletionPoll is the pause between two looks for deletions that nobody does.
	deletionPoll = 5 * time.Second
	// deletionRetry is for how long a deletion is put off after a step that failed, as by a node that is down. Others come first.
	deletionRetry = 2 * time.Second
	// deletionsAtOnce bounds the deletions of a gateway.
	deletionsAtOnce = 4
)

// Deletion is the deletion of all records of a group, as far as it has come.
type Deletion struct {
	ID, Group string
	// Deleted counts records. What a gateway that died had deleted and not noted yet is missing.
	Deleted   int64
	StartedAt time.Time
	// FinishedAt is zero as long as it is not done.
	FinishedAt time.Time
}

func deletionOf(job idsegment.Job) Deletion {
	return Deletion{job.ID, job.Group, job.Deleted, job.StartedAt, job.FinishedAt}
}

// DeleteGroup takes on the deletion of all records of a group. When it is done, those are gone whose creation was
// acknowledged before this call; those that are created meanwhile may be gone or stay. Some gateway of the fleet does it,
// whatever becomes of this one. While a deletion of the group is not done, that one is returned, and what has been created
// since it began is deleted as well. After ErrUnknown it may have been taken on, after every other error it was not; it is safe to
// ask again.
func (s *Store) DeleteGroup(ctx context.Context, collection, group string) (Deletion, error) {
	if _, err := s.groupDirectory(collection, group); err != nil {
		return Deletion{}, err
	}
	id, err := s.identity.NewKey()
	if err != nil {
		return Deletion{}, fmt.Errorf("name a deletion: %w: %w", ErrUnavailable, err)
	}
	job, err := idsegment.Job{}, s.issuers[0].barred()
	if err == nil {
		job, err = s.issuers[0].StartJob(ctx, id, collection, group)
	}
	switch {
	case errors.Is(err, idsegment.ErrUnknown):
		s.metrics.countUnknown(opDelete, ErrUnknown)
		return Deletion{}, fmt.Errorf("take a deletion on: %w: %s", ErrUnknown, err.Error())
	case err != nil:
		return Deletion{}, fmt.Errorf("take a deletion on: %w: %s", ErrUnavailable, err.Error())
	}
	select {
	case s.deleter.woken <- struct{}{}:
	default: // it has been told to look
	}
	return deletionOf(job), nil
}

// Deletion says how far a deletion has come; ErrNoDeletion when the collection has none of this id.
func (s *Store) Deletion(ctx context.Context, collection, id string) (Deletion, error) {
	if s.directories[collection] == nil {
		return Deletion{}, ErrNoDeletion
	}
	var job idsegment.Job
	var found bool
	err := s.issuers[0].barred()
	if err == nil {
		job, found, err = s.issuers[0].LookJob(ctx, id)
	}
	switch {
	case err != nil:
		return Deletion{}, fmt.Errorf("look at a deletion: %w: %s", ErrUnavailable, err.Error())
	case !found || job.Collection != collection:
		return Deletion{}, ErrNoDeletion
	}
	return deletionOf(job), nil
}

// deleter does the deletions of groups that the fleet has taken on, a few at a time.
type deleter struct {
	store *Store
	woken chan struct{}
	// life and poll are deletionLife and deletionPoll, but in tests.
	life, poll time.Duration
	mu         sync.Mutex
	// putOff are the deletions of which the log has said that they wait.
	putOff map[string]bool
}

func newDeleter(s *Store) *deleter {
	return &deleter{store: s, woken: make(chan struct{}, 1), life: deletionLife, poll: deletionPoll, putOff: map[string]bool{}}
}

// run does deletions until the store closes, and then lets other gateways have them at once, also one that it does not know it
// has taken.
func (d *deleter) run() {
	var workers sync.WaitGroup
	for range deletionsAtOnce {
		workers.Go(d.work)
	}
	workers.Wait()
	jobs := d.store.issuers[0]
	if jobs.barred() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.store.background), endTimeout)
	defer cancel()
	if err := jobs.LeaveJobs(ctx, d.store.identity.Instance()); err != nil {
		d.store.log.Debug("deletions are left by themselves", "cause", err.Error())
	}
}

// work looks for deletions until the store closes.
func (d *deleter) work() {
	for {
		pause := d.poll
		if again := d.look(d.store.background); again {
			pause = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-d.woken:
		case <-d.store.background.Done():
		}
		timer.Stop()
		if d.store.background.Err() != nil {
			return
		}
	}
}

// look does a deletion that nobody does, and reports whether there may be another.
func (d *deleter) look(ctx context.Context) bool {
	jobs := d.store.issuers[0]
	if jobs.barred() != nil {
		return false
	}
	stepCtx, cancel := context.WithTimeout(ctx, d.life/2)
	defer cancel()
	// Those about other collections are left to gateways whose config has them.
	collections := slices.Collect(maps.Keys(d.store.directories))
	job, ok, err := jobs.TakeJob(stepCtx, d.store.identity.Instance(), d.life, collections...)
	if err != nil || !ok {
		return false
	}
	d.do(ctx, job)
	return true
}

// do goes on with a deletion until it is done, a step fails, it is another gateway's, or the store closes.
func (d *deleter) do(ctx context.Context, job idsegment.Job) {
	for {
		next, ended, err := d.step(ctx, job)
		job = next
		switch {
		case ctx.Err() != nil:
			d.leave(ctx, job, 0)
			return
		case errors.Is(err, errLost):
			return // another gateway has it, or it begins anew
		case err != nil:
			if d.waits(job.ID, true) {
				d.store.log.Warn("the deletion of a group waits for a database", "id", job.ID, "cause", err.Error())
			}
			d.leave(ctx, job, deletionRetry)
			return
		}
		if d.waits(job.ID, false) {
			d.store.log.Info("the deletion of a group goes on", "id", job.ID)
		}
		if ended {
			d.store.log.Info("a group was deleted", "collection", job.Collection, "id", job.ID, "records", job.Deleted)
			return
		}
	}
}

// waits notes whether a deletion waits, and reports whether that is new.
func (d *deleter) waits(id string, now bool) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed = d.putOff[id] != now
	if now {
		d.putOff[id] = true
	} else {
		delete(d.putOff, id)
	}
	return changed
}

// leave notes how far a deletion has come, and lets any gateway take it after a while. When it cannot be noted the deletion is
// free at the end of its life.
func (d *deleter) leave(ctx context.Context, job idsegment.Job, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if _, err := d.store.issuers[0].KeepJob(ctx, d.store.identity.Instance(), job, after); err != nil {
		d.store.log.Debug("a deletion is left by itself", "id", job.ID, "cause", err.Error())
	}
}

// step deletes the next records of a group, a batch of them at most, and notes it. errLost: the deletion is not this
// gateway's any more.
func (d *deleter) step(ctx context.Context, job idsegment.Job) (next idsegment.Job, ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.life/2)
	defer cancel()
	s, jobs, holder := d.store, d.store.issuers[0], d.store.identity.Instance()
	if job.Upto == 0 {
		// Only what is there now: otherwise a busy group would never be done.
		if job.Upto, err = s.lastOf(ctx, job.Collection, job.Group); err != nil {
			return job, false, err
		}
	}
	if job.Upto > job.At {
		deleted, at, err := s.deleteMembers(ctx, job.Collection, job.Group, span{job.At + 1, job.Upto + 1})
		job.Deleted += deleted // also when it failed half way; the next step does not see those any more
		if err != nil {
			return job, false, err
		}
		job.At = at
	}
	note := func() (bool, error) { return jobs.KeepJob(ctx, holder, job, d.life) }
	if ended = job.At >= job.Upto; ended {
		note = func() (bool, error) { return jobs.EndJob(ctx, holder, job) }
	}
	ours, err := note()
	if err == nil && !ours {
		err = errLost
	}
	return job, ended, err
}

// lastOf is the ID of the last record of a group, whether or not it can be read; 0 when there is none.
func (s *Store) lastOf(ctx context.Context, collection, group string) (int64, error) {
	w := &walker{store: s, now: s.topology.Load(), collection: collection, walk: Walk{Group: group, Descending: true}, left: 1}
	if err := w.runGroup(ctx); err != nil || len(w.found) == 0 {
		return 0, err
	}
	return w.found[0].id, nil
}

// deleteMembers deletes records of a group within a span of IDs, a batch of them at most, and returns how many and the ID up
// to which all are gone.
func (s *Store) deleteMembers(ctx context.Context, collection, group string, within span) (deleted, at int64, err error) {
	tables, err := s.groupTables(ctx, s.topology.Load(), collection, group, within)
	if err != nil {
		return 0, 0, err
	}
	for _, t := range tables {
		members, err := t.node.rows.members(ctx, t.name, group, t.span, deletionBatch)
		if err != nil {
			return 0, 0, fmt.Errorf("look for a group in %s on %s: %w: %w", t.name, t.node.name, ErrUnavailable, err)
		}
		if len(members) == 0 {
			continue
		}
		if deleted, err = s.deleteAll(ctx, collection, group, members); err != nil {
			return deleted, 0, err
		}
		if len(members) == deletionBatch {
			return deleted, members[deletionBatch-1].id, nil
		}
		return deleted, t.hi - 1, nil
	}
	return 0, within.hi - 1, nil
}

// deleteAll deletes the records of rows, each as Delete does: its row first, then its entry. All share the statements.
func (s *Store) deleteAll(ctx context.Context, collection, group string, members []brief) (int64, error) {
	b, cancel := newBudget(ctx)
	defer cancel()
	var deleted atomic.Int64
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			change := rowChange{id: m.id, key: m.key, sameGroup: true, Content: Content{Group: group}}
			done, err := s.changeRow(b, collection, change)
			if errors.Is(err, sqldb.ErrUnknown) {
				done, err = s.resolveRemove(b, collection, change, err)
			}
			if err == nil && !done.ok {
				err = s.settleGone(b, collection, change)
			}
			if err != nil {
				errs[i] = fmt.Errorf("delete row %d: %w", m.id, err)
				return
			}
			if done.ok {
				deleted.Add(1)
			}
			s.cache.drop(collection, m.key, m.id)
			resolving, cancel := b.resolving()
			defer cancel()
			// Also when somebody else has deleted the row: it may have been this job, in a process that died in between.
			s.removeEntry(resolving, collection, m.key, m.id)
		})
	}
	wg.Wait()
	return deleted.Load(), errors.Join(errs...)
}

// settleGone makes sure that a row is gone that could not be deleted: somebody else has deleted it, or it has expired a moment
// ago. An expired row is removed like any other, because its entry goes. ErrBusy: it is a record all the same.
func (s *Store) settleGone(b budget, collection string, change rowChange) error {
	r, err := s.readRow(b, collection, change.id)
	if err != nil || r == nil || r.state != live || r.key != change.key {
		return err
	}
	change.expired = true
	done, err := s.changeRow(b, collection, change)
	if errors.Is(err, sqldb.ErrUnknown) {
		done, err = s.resolveRemove(b, collection, change, err)
	}
	if err == nil && !done.ok {
		err = ErrBusy // the clock was set back, or a create has buried it: the next step looks again
	}
	return err
}
