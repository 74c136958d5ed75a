package store

import (
	"context"
	"errors"
	"time"

	"keyrange/index"
)

const (
	// indexPause is how long an index that is down is left alone before a probe tries it again. It is short, because every
	// create needs the index and an election takes a second or two. Measured, service is back 0.1 s after a server that was
	// halted goes on, and 0.3 to 0.7 s after one that was gone is back, of which most is the driver's.
	indexPause = 250 * time.Millisecond
	// indexLeast is the least time of a call that says anything about the index: one with less may be late through no
	// fault of the index.
	indexLeast = 50 * time.Millisecond
)

// indexCircuits open when the index does not answer. What it refuses in words proves that it is there. A driver that waits
// for the next primary is waited for, as long as requests have time.
var indexCircuits = circuitKind{indexPause, index.ErrUnavailable, func(err error) bool {
	return (errors.Is(err, index.ErrUnavailable) || errors.Is(err, index.ErrUnknown)) && !index.Answered(err)
}}

// gatedIndex is the index, which takes part once it has answered for the first time. It is behind circuit breakers, one for
// reads and one for writes, because a primary that has lost its majority still answers reads.
type gatedIndex struct {
	index.Index
	admission
	reads, writes *circuit
}

// newGate tells of changes with the kind of calls that they are about.
func newGate(ix index.Index, onChange func(kind string, down bool)) *gatedIndex {
	g := &gatedIndex{Index: ix}
	of := func(kind string) *circuit {
		return newCircuit(indexCircuits, "index", g.barred, func(open bool) { onChange(kind, open) })
	}
	g.reads, g.writes = of(forReads), of(forWrites)
	return g
}

// run sends a call, or refuses it. One with hardly any time left proves nothing.
func (g *gatedIndex) run(ctx context.Context, c *circuit, send func() error) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < indexLeast {
		return c.peek(send)
	}
	return c.run(send)
}

func (g *gatedIndex) Insert(ctx context.Context, collection string, entries []index.Entry) (errs []error) {
	err := g.run(ctx, g.writes, func() error {
		if errs = g.Index.Insert(ctx, collection, entries); len(errs) == 0 {
			return nil
		}
		return errs[0]
	})
	if errs == nil {
		return repeat(err, len(entries))
	}
	return errs
}

func (g *gatedIndex) Find(ctx context.Context, collection string, keys []string) (found map[string]int64, err error) {
	err = g.run(ctx, g.reads, func() error { found, err = g.Index.Find(ctx, collection, keys); return err })
	return found, err
}

// Scan takes as long as a whole batch takes, which says nothing of the calls of requests.
func (g *gatedIndex) Scan(ctx context.Context, collection, after string, limit int) (found []index.Entry, err error) {
	err = g.reads.peek(func() error { found, err = g.Index.Scan(ctx, collection, after, limit); return err })
	return found, err
}

func (g *gatedIndex) Replace(ctx context.Context, collection, key string, old, new int64) (ok bool, err error) {
	err = g.run(ctx, g.writes, func() error { ok, err = g.Index.Replace(ctx, collection, key, old, new); return err })
	return ok, err
}

func (g *gatedIndex) Remove(ctx context.Context, collection string, entries []index.Entry) error {
	return g.run(ctx, g.writes, func() error { return g.Index.Remove(ctx, collection, entries) })
}

// probe looks at the index until it is up again for a kind of calls. It asks what requests ask, for a key that nobody can
// have: a server that has lost its storage or its majority may well answer a ping.
func (g *gatedIndex) probe(ctx context.Context, kind, collection string) {
	if kind == forWrites {
		g.writes.probe(ctx, func(ctx context.Context) error { return g.Index.Remove(ctx, collection, []index.Entry{{}}) })
		return
	}
	g.reads.probe(ctx, func(ctx context.Context) error {
		_, err := g.Index.Find(ctx, collection, []string{""})
		return err
	})
}

// openGate puts the index of the store behind its gate. Once it is back its stamp is looked at, because it may have come
// back empty.
func (s *Store) openGate(ix index.Index, collections []string) *gatedIndex {
	var g *gatedIndex
	g = newGate(ix, func(kind string, down bool) {
		next := func() { s.lookAtIndex(s.background) }
		if down {
			s.log.Error("index is down", "for", kind, "location", ix.Describe())
			next = func() { g.probe(s.background, kind, collections[0]) } // without one nothing is asked of the index
		} else {
			s.log.Info("index is up", "for", kind)
		}
		if s.background.Err() == nil {
			s.tasks.Go(next)
		}
	})
	return g
}
