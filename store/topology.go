package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"keyrange/rangeshard"
	"keyrange/store/sqldb"
)

// topology is a map of ranges with its open nodes. It is never changed, only replaced as a whole by a larger one.
type topology struct {
	layout *rangeshard.Map
	nodes  []*node // in the order of the map
	// drains are the nodes that take no new records.
	drains map[*node]bool
	// maxDocument is the size of the largest document that every node takes, in bytes. A node that has not answered yet
	// has no say.
	maxDocument int64
}

// drained reports whether a node takes no new records.
func (t *topology) drained(n *node) bool { return t.drains[n] }

// newTopology makes the nodes of a fleet; those that run on the same database already are kept as they are.
func (s *Store) newTopology(f Fleet, running []*node) *topology {
	t := &topology{layout: f.Map, drains: map[*node]bool{}}
	known := make(map[string]*node, len(running))
	for _, n := range running {
		known[n.name] = n
	}
	for i, n := range f.Map.Nodes() {
		on := known[n.Name]
		if on == nil || on.db != f.Nodes[i] {
			on = s.newNode(n.Name, f.Nodes[i])
		}
		t.nodes = append(t.nodes, on)
		t.drains[on] = n.Drain
	}
	t.maxDocument = largestDocument(t.nodes)
	return t
}

func largestDocument(nodes []*node) int64 {
	largest := int64(math.MaxInt64)
	for _, n := range nodes {
		if packet := n.db.Server().MaxPacketBytes; packet > 0 {
			largest = min(largest, maxDocumentMySQL(packet))
		}
	}
	return largest
}

// fleet is the fleet of the running topology.
func (s *Store) fleet() Fleet {
	now := s.topology.Load()
	f := Fleet{Map: now.layout, cluster: s.cluster}
	for _, n := range now.nodes {
		f.Nodes = append(f.Nodes, n.db)
	}
	for _, i := range s.issuers {
		f.Issuers = append(f.Issuers, i.Issuer)
	}
	return f
}

// move is a running node that is to be found on another database.
type move struct {
	node *node
	to   *sqldb.DB
}

// Extend puts a grown map in force (I7). The fleet has the databases of all its nodes and no issuers: the running ones
// stay. A running node keeps its database, or moves to another one that holds its stamp, once the old one takes no writes
// any more. When the map is not an extension of the running one, or a database is not what the map says, nothing changes.
// Nodes that do not change may be down. Requests under way end on the map that they began with.
func (s *Store) Extend(ctx context.Context, fleet Fleet) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	running := s.topology.Load()
	if err := fleet.Map.Extends(running.layout); err != nil {
		return err
	}
	check, moves := s.changes(running, fleet)
	v, err := check.verifyGrown(ctx)
	if err != nil {
		return err
	}
	if err := retired(ctx, moves); err != nil {
		return err
	}
	s.judgeNodes(ctx, check.Nodes, &v)
	if err := errors.Join(v.Err(), Verdict{Nodes: v.Nodes}.away()); err != nil {
		return err
	}
	if err := check.claim(ctx, &v, check.cluster, s.timestamp()); err != nil {
		return err
	}
	s.adaptNodes(ctx, check.Nodes, &v)
	if err := errors.Join(v.Err(), Verdict{Nodes: v.Nodes}.away()); err != nil {
		return err
	}
	next := s.newTopology(fleet, running.nodes)
	for _, n := range next.nodes {
		if !slices.Contains(running.nodes, n) {
			n.admit()
		}
	}
	s.topology.Store(next)
	for _, m := range moves {
		s.forgetTables(m.node)
	}
	for _, p := range s.placements {
		p.retry(ctx)
	}
	return nil
}

// changes returns the part of a fleet that is to be verified before it takes the place of the running one, and the nodes
// that move. Nodes that stay as they are are left out.
func (s *Store) changes(running *topology, fleet Fleet) (check Fleet, moves []move) {
	check = s.fleet()
	check.Map, check.Nodes = fleet.Map, slices.Clone(fleet.Nodes)
	at := make(map[string]int, len(running.nodes))
	for i, n := range running.nodes {
		at[n.name] = i
	}
	for i, n := range fleet.Map.Nodes() {
		k, ok := at[n.Name]
		switch {
		case !ok:
		case running.nodes[k].db != fleet.Nodes[i]:
			moves = append(moves, move{running.nodes[k], fleet.Nodes[i]})
		case running.layout.Nodes()[k].Ranges.Equal(n.Ranges):
			check.Nodes[i] = nil
		}
	}
	return check, moves
}

// retired checks that the databases that nodes move away from take no writes any more, as far as they answer: a record
// that another gateway writes there would be missing. A database at the same location is the same one.
func retired(ctx context.Context, moves []move) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	var errs []error
	for _, m := range moves {
		from := m.node.db.Location()
		if from != m.to.Location() && m.node.barred() == nil && rangeshard.TryWrite(ctx, m.node.db) == nil {
			errs = append(errs, fmt.Errorf("%s moves from %s to %s, but the old database still takes writes, which would be lost: stop it or make it read-only first",
				m.node.name, from, m.to.Location()))
		}
	}
	return errors.Join(errs...)
}

// verifyGrown verifies the databases that are about to change; none of them may be away.
func (f Fleet) verifyGrown(ctx context.Context) (Verdict, error) {
	if !slices.ContainsFunc(f.Nodes, func(db *sqldb.DB) bool { return db != nil }) {
		return Verdict{cluster: f.cluster, Issuers: make([]Finding, len(f.Issuers)), Nodes: make([]Finding, len(f.Nodes))}, nil
	}
	v := f.Verify(ctx)
	if err := errors.Join(v.Err(), Verdict{Nodes: v.Nodes}.away()); err != nil {
		return v, err
	}
	if missing := v.issuersAway(); missing != nil && slices.ContainsFunc(v.Nodes, func(n Finding) bool { return n.Unclaimed }) {
		return v, fmt.Errorf("a node or ranges can only be added while every issuer answers, because one that is away may know that the ranges are in use: %w", missing)
	}
	return v, nil
}

// forgetTables drops the lanes to a node that is no more.
func (s *Store) forgetTables(n *node) {
	s.tables.Range(func(key, _ any) bool {
		if key.(tableKey).node == n {
			s.tables.Delete(key)
		}
		return true
	})
}
