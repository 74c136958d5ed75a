package store

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"keyrange/idsegment"
	"keyrange/rangeshard"
)

const (
	simCollection = "records"
	// simRangeIDs are more than a simulation uses up.
	simRangeIDs = 10_000
)

// simMetrics is shared by all simulated stores, because making them takes longer than a simulation.
var simMetrics = newMetrics(nil, &keyCache{})

// simGateway is a gateway process: a store made by hand, on the databases of the world.
type simGateway struct {
	world *simWorld
	name  string
	store *Store
	nodes []*node
	// dead: it was killed. It is under the world's mu.
	dead bool
}

// simMap has one range on each node.
func simMap(nodes int) *rangeshard.Map {
	var all []rangeshard.Node
	for i := range nodes {
		ranges, err := rangeshard.ParseRanges(fmt.Sprint(i + 1))
		if err != nil {
			panic(err)
		}
		all = append(all, rangeshard.Node{Name: fmt.Sprintf("node-%d", i+1), Ranges: ranges})
	}
	m, err := rangeshard.NewMap(simRangeIDs, all)
	if err != nil {
		panic(err)
	}
	return m
}

var simMaps = []*rangeshard.Map{1: simMap(1), 2: simMap(2)}

// startGateway makes the next gateway.
func (w *simWorld) startGateway() *simGateway {
	w.started++
	g := &simGateway{world: w, name: fmt.Sprintf("g%d", w.started)}
	ix := newGate(&simIndex{world: w, gateway: g}, func(string, bool) {})
	ix.admit()
	s := &Store{
		index: &queuedIndex{ix, w, g}, gate: ix, identity: &Identity{instance: uint64(w.started)}, now: time.Now, metrics: simMetrics,
		log: slog.New(&simLog{world: w, gateway: g}), cache: newKeyCache(0), places: newPlaceCache(0),
	}
	if w.cached {
		s.cache, s.places = newKeyCache(1<<20), newPlaceCache(1<<20)
	}
	s.background, s.stop = context.WithCancel(context.Background())
	layout := simMaps[w.nodes]
	now := &topology{layout: layout, drains: map[*node]bool{}, maxDocument: math.MaxInt64}
	for i, n := range layout.Nodes() {
		now.nodes = append(now.nodes, w.startNode(g, n.Name, i))
	}
	s.topology.Store(now)
	g.store, g.nodes = s, now.nodes
	woken := func(ctx context.Context) {
		w.turnstile(ctx, g, fmt.Sprintf("operation %03d goes on", operationOf(ctx).number))
	}
	e := newEntries(s, simCollection)
	e.inserts.woken, e.finds.woken, e.removals.woken = woken, woken, woken
	s.entries = map[string]*entries{simCollection: e}
	if w.grouped {
		d := newDirectory(s, simCollection)
		d.inserts.woken = woken
		s.directories = map[string]*directory{simCollection: d}
	}
	for i, n := range now.nodes {
		t := newTable(s, n, tableName(simCollection, int64(i+1)))
		t.inserts.woken, t.reads.woken, t.changes.woken = woken, woken, woken
		s.tables.Store(tableKey{simCollection, int64(i + 1), n}, t)
	}
	s.placements = map[string]*placement{simCollection: w.placement(g)}
	w.gateways = append(w.gateways, g)
	return g
}

// startNode opens a gateway's way to a node.
func (w *simWorld) startNode(g *simGateway, name string, i int) *node {
	n := &node{name: name}
	n.admit()
	n.guarded = guard(name, &simRows{world: w, gateway: g, node: name}, n.barred, func(string, bool) {})
	n.rows = &queuedRows{n.guarded, w, g}
	return n
}

// placement opens the ranges of all nodes, and lets no other be looked for.
func (w *simWorld) placement(g *simGateway) *placement {
	p := newPlacement(g.store, simCollection, idsegment.Options{}, Placement{Spread: w.nodes})
	p.refused = fmt.Errorf("take an ID: %w: all nodes are down", ErrUnavailable)
	p.nextFill.Store(math.MaxInt64)
	var open []*openRange
	for i, n := range g.nodes {
		r, _, _ := simMaps[w.nodes].Range(int64(i + 1))
		ids := idsegment.NewRotation(1)
		ids.Set(0, idsegment.NewSequence(&simIssuer{w, g}, idsegment.Name{Collection: simCollection, Range: r.Number},
			idsegment.Bounds{Lo: r.Lo, Hi: r.Hi}, r.Lo, idsegment.Options{MinStep: 4, MaxStep: 4}))
		open = append(open, &openRange{Range: r, node: n, ids: ids})
	}
	p.open.Store(&open)
	return p
}

// simIssuer leases to one gateway out of what the world has left. It answers at once: which ID a record gets is decided
// without it.
type simIssuer struct {
	world   *simWorld
	gateway *simGateway
}

// Lease implements idsegment.Leaser.
func (i *simIssuer) Lease(_ context.Context, name idsegment.Name, count int64) (idsegment.Segment, error) {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	if i.gateway.dead {
		return idsegment.Segment{}, idsegment.ErrUnavailable
	}
	start := i.world.leased[name.Range] + (name.Range-1)*simRangeIDs + 1
	i.world.leased[name.Range] += count
	return idsegment.Segment{Start: start, End: start + count}, nil
}

// Return implements idsegment.Leaser.
func (i *simIssuer) Return(context.Context, idsegment.Name, idsegment.Segment) (bool, error) {
	return false, nil
}

// kill ends a gateway. Its calls are on their way all the same: each may have landed just now, may land later or never.
func (w *simWorld) kill(g *simGateway) {
	w.tracef("%s is killed", g.name)
	w.mu.Lock()
	g.dead = true
	w.mu.Unlock()
	for _, op := range w.running() {
		if op.gateway == g {
			op.killed = true
			w.end(op, simResult{err: fmt.Errorf("%w: the gateway was killed", ErrUnknown)})
		}
	}
	for _, c := range w.waiting() {
		switch {
		case c.gateway != g:
		case c.write:
			w.release(c, w.fateAtDeadline(c))
		default:
			w.release(c, fateRefused)
		}
	}
	w.settleDown()
}

// circuits are those of all databases.
func (g *simGateway) circuits() []*circuit {
	all := []*circuit{g.store.gate.reads, g.store.gate.writes}
	for _, n := range g.nodes {
		all = append(all, n.guarded.reads, n.guarded.writes)
	}
	return all
}

// mend closes the circuits of a gateway, as its probes would.
func (g *simGateway) mend() {
	for _, c := range g.circuits() {
		_ = c.try(func() error { return nil }) // a refusal says that it is too early
	}
}

// broken reports whether a circuit is not closed.
func (g *simGateway) broken() bool {
	return slices.ContainsFunc(g.circuits(), (*circuit).open)
}

// simLog fails the simulation on an alarm: none is to be raised, because no ID is issued twice (I1).
type simLog struct {
	world   *simWorld
	gateway *simGateway
}

// Enabled implements slog.Handler.
func (l *simLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

// Handle implements slog.Handler.
func (l *simLog) Handle(_ context.Context, r slog.Record) error {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	if !l.gateway.dead {
		l.world.alarms = append(l.world.alarms, l.gateway.name+": "+r.Message)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (l *simLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *simLog) WithGroup(string) slog.Handler { return l }
