package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"keyrange/index"
)

const (
	// fsckBatch is how many rows or entries one step takes.
	fsckBatch = 1000
	// fsckWorkers bounds the steps over rows that run at once.
	fsckWorkers = 4
	// fsckPieceIDs is how many IDs one worker takes at a time, so that a large range table occupies all of them.
	fsckPieceIDs = 100_000
	// fsckStepTimeout bounds one step, so that a database that stalls does not hold it up for ever.
	fsckStepTimeout = time.Minute
	// maxDoubts bounds the entries that are remembered for a second look.
	maxDoubts = 50_000
)

// SweepCounts is what a pass over the stores has counted.
type SweepCounts struct {
	// Entries and Rows (live ones) and Fences were looked at.
	Entries int64 `json:"entries"`
	Rows    int64 `json:"rows"`
	Fences  int64 `json:"fences"`
	// Expired are those of Rows that had been expired for a minute or longer, of which Buried are gone.
	Expired int64 `json:"expired"`
	Buried  int64 `json:"expired_removed"`
	// Dangling entries were found, of which Removed are gone.
	Dangling int64 `json:"dangling"`
	Removed  int64 `json:"removed"`
	// Strays are rows, of which Reindexed have their entries again.
	Strays    int64 `json:"strays"`
	Reindexed int64 `json:"reindexed"`
	// Doubles, Misplaced and Beyond are never mended.
	Doubles   int64 `json:"doubles"`
	Misplaced int64 `json:"misplaced"`
	Beyond    int64 `json:"beyond"`
	// Unlisted are pairs of a group and a range, of which Relisted are in the directory again.
	Unlisted int64 `json:"unlisted"`
	Relisted int64 `json:"relisted"`
	// Purged is how many old fences were deleted.
	Purged int64 `json:"purged"`
}

// add counts what a step has found.
func (c *SweepCounts) add(found swept) {
	c.Entries += found.entries
	c.Rows += found.rows
	c.Fences += found.fences
	c.Expired += found.expired
	c.Buried += found.buried
	for _, d := range found.damage {
		repaired := int64(0)
		if d.Repaired {
			repaired = 1
		}
		switch d.Kind {
		case Dangling:
			c.Dangling++
			c.Removed += repaired
		case Stray:
			c.Strays++
			c.Reindexed += repaired
		case Double:
			c.Doubles++
		case Misplaced:
			c.Misplaced++
		case Beyond:
			c.Beyond++
		case Unlisted:
			c.Unlisted++
			c.Relisted += repaired
		}
	}
}

// Harmful is how much was found that is harmful and was not mended. Dangling entries do no harm.
func (c SweepCounts) Harmful() int64 {
	return c.Strays - c.Reindexed + c.Doubles + c.Misplaced + c.Beyond + c.Unlisted - c.Relisted
}

// Fsck is what Fleet.Fsck needs to know.
type Fsck struct {
	// Index is open.
	Index       index.Index
	Collections []string
	// Groups are the members that the documents of collections are grouped by, by the name of the collection.
	Groups map[string]string
	// Repair mends dangling entries, stray rows and the directory of groups, and removes expired rows. Otherwise no entry, row
	// or fence is written.
	Repair bool
	// Grace is the time between the two looks that an entry must be seen dangling in: longer than any request under way
	// may take, or 0 when nobody else uses the databases.
	Grace time.Duration
	Now   func() time.Time
	// Found is told each piece of damage, and Progress now and then how much of how much has been looked at, an estimate,
	// and what was counted so far. One call of either at a time.
	Found    func(Damage)
	Progress func(done, of int64, counts SweepCounts)
}

// fsck is one run.
type fsck struct {
	Fsck
	sweep *sweep

	mu       sync.Mutex
	counts   SweepCounts
	done, of int64
	doubtful map[string][]doubt // by collection
	doubts   int
}

// Fsck looks once at every entry and every row of the collections, and returns what it has counted, by its end or until an
// error. Every node and the index must answer (issuers need not), and be the ones that the map says they are; a nil node
// is left out, as if it had no tables. It is safe while gateways run, with or without Repair.
func (f Fleet) Fsck(ctx context.Context, about Fsck) (SweepCounts, error) {
	v := f.Verify(ctx)
	if err := v.Err(); err != nil {
		return SweepCounts{}, err
	}
	if v.cluster == "" && v.away() == nil {
		return SweepCounts{}, errors.New("no database has a stamp: this fleet has never been started, there is nothing to look at")
	}
	fleet := sweptFleet{layout: f.Map}
	for i, db := range f.Nodes {
		node := &sweptNode{name: f.Map.Nodes()[i].Name}
		if db != nil {
			if v.Nodes[i].Away {
				return SweepCounts{}, v.Nodes[i].Err
			}
			if err := about.compareGrouping(ctx, db); err != nil {
				return SweepCounts{}, fmt.Errorf("%s: %w", node.name, err)
			}
			node.rows = rowsOf(db, about.shapes())
			if err := (adapter{db: db}).expiring(ctx, about.Repair); err != nil {
				return SweepCounts{}, fmt.Errorf("node %s: %w", node.name, err)
			}
		}
		fleet.nodes = append(fleet.nodes, node)
	}
	stamp, err := about.Index.Stamp(ctx)
	if err != nil {
		return SweepCounts{}, fmt.Errorf("index: %w", err)
	}
	if stamp != "" && v.cluster != "" && stamp != v.cluster {
		return SweepCounts{}, v.JudgeIndex(stamp, about.Index.Describe()).Err
	}
	for _, collection := range about.Collections {
		if err := about.Index.Prepare(ctx, collection); err != nil {
			return SweepCounts{}, fmt.Errorf("index: %w", err)
		}
		if about.Groups[collection] == "" {
			continue
		}
		if err := about.Index.Prepare(ctx, directoryOf(collection)); err != nil {
			return SweepCounts{}, fmt.Errorf("index: %w", err)
		}
	}
	identity, err := NewIdentity()
	if err != nil {
		return SweepCounts{}, err
	}
	run := &fsck{Fsck: about, doubtful: map[string][]doubt{}, sweep: &sweep{
		index: about.Index, fleet: func() sweptFleet { return fleet }, identity: identity, now: about.Now, repair: about.Repair,
		batch: fsckBatch, fencesBefore: func() time.Time { return time.Time{} }, // the gateways purge them
	}}
	err = run.run(ctx)
	if err == nil && about.Repair && stamp == "" {
		// Only now has it the entries of all records, so that gateways may use it.
		_, err = about.Index.SetStamp(ctx, v.cluster)
	}
	return run.counts, err
}

// run goes through the rows first, so that a key whose row is found stray gets its entry back rather than loses it.
func (f *fsck) run(ctx context.Context) error {
	for _, collection := range f.Collections {
		if err := f.rows(ctx, collection); err != nil {
			return err
		}
	}
	f.estimateEntries()
	for _, collection := range f.Collections {
		if err := f.entries(ctx, collection); err != nil {
			return err
		}
	}
	return f.secondLook(ctx)
}

// entries goes through the entries of a collection.
func (f *fsck) entries(ctx context.Context, collection string) error {
	after := ""
	for {
		stepCtx, cancel := context.WithTimeout(ctx, fsckStepTimeout)
		found, next, err := f.sweep.entryStep(stepCtx, collection, after)
		cancel()
		if err != nil {
			return err
		}
		f.note(found, found.entries)
		if f.doubts >= maxDoubts {
			if err := f.secondLook(ctx); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		after = next
	}
}

// piece is a part of a range table that one worker goes through.
type piece struct {
	sweptTable
	span
	// ids are those that belong there, for the progress.
	ids span
}

// upTo is how many of the IDs are below one.
func (p piece) upTo(id int64) int64 { return min(max(id, p.ids.lo), p.ids.hi) - p.ids.lo }

// rows goes through the rows of a collection, several pieces at once.
func (f *fsck) rows(ctx context.Context, collection string) error {
	pieces, err := f.pieces(ctx, collection)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(fsckWorkers, len(pieces)) {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(pieces) {
					return nil
				}
				if err := f.piece(ctx, pieces[i]); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// pieces cuts the range tables of a collection into pieces, and counts their IDs into the estimate of what is to be done:
// once for the rows and once for the entries.
func (f *fsck) pieces(ctx context.Context, collection string) (all []piece, err error) {
	ctx, cancel := context.WithTimeout(ctx, fsckStepTimeout)
	defer cancel()
	tables, err := f.sweep.tablesOf(ctx, collection)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		top, err := t.node.rows.top(ctx, t.name)
		if err != nil {
			return nil, t.failed("look for the last row", err)
		}
		r, _, _ := f.sweep.fleet().layout.Range(t.number) // tables beyond the last one are left out
		end := min(max(top+1, r.Lo), r.Hi)
		for lo := r.Lo; lo < end || lo == r.Lo; lo += fsckPieceIDs {
			ids := span{lo, min(lo+fsckPieceIDs, end)}
			p := piece{t, ids, ids}
			// The outer ones take the rows that are misplaced, below and above the range.
			if lo == r.Lo {
				p.lo = math.MinInt64
			}
			if ids.hi == end {
				p.hi = math.MaxInt64
			}
			all = append(all, p)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range all {
		f.of += 2 * (p.ids.hi - p.ids.lo)
	}
	return all, nil
}

// piece goes through one piece.
func (f *fsck) piece(ctx context.Context, p piece) error {
	for rest := p.span; rest != (span{}); {
		stepCtx, cancel := context.WithTimeout(ctx, fsckStepTimeout)
		found, next, err := f.sweep.rowStep(stepCtx, p.sweptTable, rest)
		cancel()
		if err != nil {
			f.note(found, 0)
			return err
		}
		reached := p.ids.hi
		if next != (span{}) {
			reached = next.lo
		}
		f.note(found, p.upTo(reached)-p.upTo(rest.lo))
		rest = next
	}
	return nil
}

// note adds up what a step has found, and that it got on by so much.
func (f *fsck) note(found swept, progress int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.add(found)
	f.done += progress
	for _, d := range found.doubtful {
		f.doubtful[d.collection] = append(f.doubtful[d.collection], d)
		f.doubts++
	}
	for _, d := range found.damage {
		f.Found(d)
	}
	f.Progress(min(f.done, f.of), f.of, f.counts)
}

// estimateEntries puts the rows that were found in the place of the estimate of how many entries there are.
func (f *fsck) estimateEntries() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of = f.done + max(1, f.counts.Rows)
}

// secondLook looks once more at the entries that were seen dangling, not before the grace period of the last of them is
// over.
func (f *fsck) secondLook(ctx context.Context) error {
	for collection, doubtful := range f.doubtful {
		for len(doubtful) > 0 {
			n := min(fsckBatch, len(doubtful))
			if err := waitUntil(ctx, f.Now, doubtful[n-1].seen.Add(f.Grace)); err != nil {
				return err
			}
			stepCtx, cancel := context.WithTimeout(ctx, fsckStepTimeout)
			found, err := f.sweep.secondStep(stepCtx, collection, doubtful[:n])
			cancel()
			if err != nil {
				return err
			}
			f.note(found, 0)
			doubtful = doubtful[n:]
		}
		delete(f.doubtful, collection)
	}
	f.doubts = 0
	return nil
}

// waitUntil waits for a moment, or fails with ctx.
func waitUntil(ctx context.Context, now func() time.Time, moment time.Time) error {
	timer := time.NewTimer(moment.Sub(now()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}
