package store

import (
	"context"
	"math"
	"slices"
	"time"
)

// work takes the pass one step further. It returns how many rows and entries it has looked at, and how long there is
// nothing to do.
func (w *sweeper) work(ctx context.Context, how *Sweeping) (looked int64, pause time.Duration, err error) {
	if w.progress.Pass == nil {
		if pause := w.untilDue(how); pause > 0 {
			return 0, pause, nil
		}
		w.change(func(p *sweepProgress) {
			p.Pass = &SweepPass{StartedAt: w.store.timestamp(), Phase: PhaseRows, Collection: w.collections[0], From: math.MinInt64}
		})
		w.alarms = map[DamageKind]int{}
	}
	switch w.progress.Pass.Phase {
	case PhaseRows:
		return w.workRows(ctx)
	case PhaseEntries:
		return w.workEntries(ctx)
	}
	return w.workSecond(ctx, how)
}

// untilDue is how long it takes until the next pass is to begin. A clock that was set back does not put it off.
func (w *sweeper) untilDue(how *Sweeping) time.Duration {
	last := w.progress.Last
	if last == nil || last.FinishedAt == nil || last.FinishedAt.After(w.now()) {
		return 0
	}
	return last.FinishedAt.Add(how.Interval).Sub(w.now())
}

// workRows looks at rows of the pass's collection, and goes on to its entries.
func (w *sweeper) workRows(ctx context.Context) (looked int64, pause time.Duration, err error) {
	pass := w.progress.Pass
	if w.tables == nil {
		if w.tables, err = w.tablesOf(ctx, pass.Collection); err != nil {
			return 0, 0, err
		}
		w.at, w.top = 0, 0
		for w.at < len(w.tables) && w.tables[w.at].before(pass.Range, pass.Node) {
			w.at++
		}
	}
	if w.at >= len(w.tables) {
		w.rowsDone()
		return 0, 0, nil
	}
	t := w.tables[w.at]
	from := pass.From
	if pass.Range != t.number || pass.Node != t.node.name {
		from, w.top = math.MinInt64, 0
	}
	if w.top == 0 {
		if w.top, err = t.node.rows.top(ctx, t.name); err != nil {
			return 0, 0, t.failed("look for the last row", err)
		}
	}
	found, rest, err := w.rowStep(ctx, t, span{from, math.MaxInt64})
	w.note(found)
	if err != nil {
		return 0, 0, err
	}
	if len(found.oldFences) > 0 && len(w.oldFences) < maxOldFences {
		w.oldFences = append(w.oldFences, oldFences{t, found.oldFences, w.now()})
	}
	share := w.shareOf(t, rest)
	w.change(func(p *sweepProgress) {
		p.Pass.Range, p.Pass.Node, p.Pass.From, p.Pass.Fraction = t.number, t.node.name, rest.lo, &share
	})
	if rest != (span{}) {
		return found.rows + found.fences, 0, nil
	}
	if w.at, w.top = w.at+1, 0; w.at < len(w.tables) {
		next := w.tables[w.at]
		w.change(func(p *sweepProgress) {
			p.Pass.Range, p.Pass.Node, p.Pass.From = next.number, next.node.name, math.MinInt64
		})
	} else {
		w.rowsDone()
	}
	return found.rows + found.fences, 0, nil
}

// rowsDone goes on to the entries of the pass's collection.
func (w *sweeper) rowsDone() {
	w.tables = nil
	w.change(func(p *sweepProgress) {
		*p.Pass = SweepPass{StartedAt: p.Pass.StartedAt, Phase: PhaseEntries, Collection: p.Pass.Collection, Counts: p.Pass.Counts}
	})
}

// shareOf is how much of the collection's rows has been looked at, 0 to 1, when a span of a table is left.
func (w *sweeper) shareOf(t sweptTable, rest span) float64 {
	r, _, _ := w.fleet().layout.Range(t.number) // the tables are those of ranges
	part := 1.0
	if rest != (span{}) && w.top > r.Lo {
		part = min(1, max(0, float64(rest.lo-r.Lo)/float64(w.top-r.Lo)))
	}
	return (float64(w.at) + part) / float64(len(w.tables))
}

// before orders range tables by number and node.
func (t sweptTable) before(number int64, node string) bool {
	return t.number < number || t.number == number && node != "" && t.node.name != node
}

// workEntries looks at entries of the pass's collection, and goes on to the rows of the next one.
func (w *sweeper) workEntries(ctx context.Context) (looked int64, pause time.Duration, err error) {
	pass := w.progress.Pass
	found, next, err := w.entryStep(ctx, pass.Collection, string(pass.After))
	w.note(found)
	if err != nil {
		return 0, 0, err
	}
	w.change(func(p *sweepProgress) {
		if p.Pass.After = []byte(next); next != "" {
			return
		}
		i := slices.Index(w.collections, pass.Collection) + 1
		*p.Pass = SweepPass{StartedAt: pass.StartedAt, Phase: PhaseSecond, Counts: p.Pass.Counts}
		if i < len(w.collections) {
			p.Pass.Phase, p.Pass.Collection, p.Pass.From = PhaseRows, w.collections[i], math.MinInt64
		}
	})
	return found.entries, 0, nil
}

// workSecond looks once more at what was doubtful, when the grace period is over, and ends the pass.
func (w *sweeper) workSecond(ctx context.Context, how *Sweeping) (looked int64, pause time.Duration, err error) {
	ripe := w.now().Add(-how.Grace)
	switch {
	case len(w.doubtful) > 0:
		first := w.doubtful[0]
		n := 0
		for n < min(w.batch, len(w.doubtful)) && w.doubtful[n].collection == first.collection && !w.doubtful[n].seen.After(ripe) {
			n++
		}
		if n == 0 {
			return 0, first.seen.Sub(ripe), nil
		}
		found, err := w.secondStep(ctx, first.collection, w.doubtful[:n])
		if err != nil {
			return 0, 0, err
		}
		w.doubtful = w.doubtful[n:]
		w.note(found)
		return int64(n), 0, nil
	case len(w.oldFences) > 0:
		old := w.oldFences[0]
		if old.seen.After(ripe) {
			return 0, old.seen.Sub(ripe), nil
		}
		old.node = w.fleet().nodes[old.owner] // its database may be another one by now
		n, err := w.purgeStep(ctx, old.sweptTable, old.ids)
		if err != nil {
			return 0, 0, err
		}
		w.oldFences = w.oldFences[1:]
		w.change(func(p *sweepProgress) { p.Pass.Counts.Purged += n })
		w.metrics.purged.Add(float64(n))
		return int64(len(old.ids)), 0, nil
	}
	w.finish()
	return 0, 0, nil
}

// finish ends a pass.
func (w *sweeper) finish() {
	now := w.store.timestamp()
	w.change(func(p *sweepProgress) {
		p.Last, p.Pass = &SweepPass{StartedAt: p.Pass.StartedAt, FinishedAt: &now, Counts: p.Pass.Counts}, nil
	})
	c := w.progress.Last.Counts
	w.metrics.passes.Inc()
	w.metrics.last.Set(float64(now.Unix()))
	facts := []any{"entries", c.Entries, "rows", c.Rows, "fences", c.Fences, "expired_removed", c.Buried, "dangling", c.Dangling, "removed", c.Removed,
		"strays", c.Strays, "reindexed", c.Reindexed, "doubles", c.Doubles, "misplaced", c.Misplaced, "beyond", c.Beyond,
		"unlisted", c.Unlisted, "relisted", c.Relisted, "purged", c.Purged}
	if c.Strays+c.Doubles+c.Misplaced+c.Unlisted > 0 {
		w.store.alarm("a sweep has found damage: see gateway fsck", facts...)
	} else {
		w.store.log.Info("a sweep has ended", facts...)
	}
	w.noted = time.Time{} // so that the next step keeps the turn, and this with it
}
