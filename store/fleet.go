package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"keyrange/idsegment"
	"keyrange/rangeshard"
	"keyrange/store/sqldb"
)

// Fleet is the databases that a map of ranges stands on.
type Fleet struct {
	Map *rangeshard.Map
	// Nodes are the databases of the map's nodes, in its order.
	Nodes  []*sqldb.DB
	Issuer *idsegment.Issuer
}

// Verdict is what the stamps and the issuer say of a fleet.
type Verdict struct {
	// Issuer is nil when the issuer belongs to the nodes and no ID that it issued is outside the map.
	Issuer error
	// Nodes has, for each node, nil when its database is the one that config says it is.
	Nodes []error
	// Stamped tells nodes with a stamp from fresh databases.
	Stamped []bool
	// cluster is the stored id, "" on a fleet without any.
	cluster string
}

// Err joins all faults, each with the node or the issuer that it is about.
func (v Verdict) Err() error { return errors.Join(append([]error{v.Issuer}, v.Nodes...)...) }

// Verify compares the map with the stamps of the nodes and with the IDs that were issued, and writes nothing (I5, I7). A
// nil node or issuer, one that is out of reach, is left out.
func (f Fleet) Verify(ctx context.Context) Verdict {
	v := Verdict{Nodes: make([]error, len(f.Nodes)), Stamped: make([]bool, len(f.Nodes))}
	stamps := make([]rangeshard.Stamp, len(f.Nodes))
	stampedCluster, stampedNode := "", ""
	for i, db := range f.Nodes {
		if db == nil {
			continue
		}
		if stamps[i], v.Stamped[i], v.Nodes[i] = rangeshard.ReadStamp(ctx, db); v.Stamped[i] && stampedCluster == "" {
			stampedCluster, stampedNode = stamps[i].Cluster, f.Map.Nodes()[i].Name
		}
	}
	var issued []idsegment.Issued
	if f.Issuer != nil {
		issued, v.Issuer = f.askIssuer(ctx, &v)
		if v.Issuer == nil && v.cluster == "" && stampedCluster != "" {
			v.Issuer = fmt.Errorf("the issuer at %s is empty, but %s belongs to the cluster %s already: is it the right database?",
				f.Issuer.Describe(), stampedNode, stampedCluster)
		}
	}
	v.cluster = cmp.Or(v.cluster, stampedCluster)
	for i := range f.Nodes {
		if v.Stamped[i] && v.Nodes[i] == nil {
			v.Nodes[i] = f.located(i, stamps[i].Accept(f.stamp(i, v.cluster)))
		}
	}
	f.compareIssued(issued, stamps, &v)
	return v
}

func (f Fleet) askIssuer(ctx context.Context, v *Verdict) ([]idsegment.Issued, error) {
	var err error
	if v.cluster, err = f.Issuer.Cluster(ctx); err != nil {
		return nil, err
	}
	return f.Issuer.List(ctx)
}

// compareIssued looks for IDs that were issued where the map, or the database that it leads to, does not have them.
func (f Fleet) compareIssued(issued []idsegment.Issued, stamps []rangeshard.Stamp, v *Verdict) {
	for _, seq := range issued {
		r, node, ok := f.Map.Range(seq.Range)
		first := (seq.Range-1)*f.Map.Size() + 1
		switch {
		case ok && r.Hi != seq.End:
			v.Issuer = errors.Join(v.Issuer, fmt.Errorf("range %d of %s was opened to end at %d, but config makes it end at %d: the range size can never change",
				seq.Range, seq.Collection, seq.End-1, r.Hi-1))
		case seq.Next == first: // registered, but no ID was ever taken from it
		case !ok:
			v.Issuer = errors.Join(v.Issuer, fmt.Errorf("range %d of %s has issued IDs, but no node owns it: was a node dropped from the config?",
				seq.Range, seq.Collection))
		case f.Nodes[node] == nil || v.Nodes[node] != nil: // out of reach, or at fault already
		case !v.Stamped[node]:
			v.Nodes[node] = f.located(node, fmt.Errorf("%w: range %d of %s has issued IDs, but this database has never held it (it has no stamp): is it the right one?",
				rangeshard.ErrStamp, seq.Range, seq.Collection))
		case !stamps[node].Ranges.Contains(seq.Range):
			v.Nodes[node] = f.located(node, fmt.Errorf("%w: range %d of %s has issued IDs, but this database has never held it (it says: %s): does it belong to another node?",
				rangeshard.ErrStamp, seq.Range, seq.Collection, stamps[node]))
		}
	}
}

// located says which node of the config an error is about.
func (f Fleet) located(node int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nodes[%d] (%s) at %s: %w", node, f.Map.Nodes()[node].Name, f.Nodes[node].Location(), err)
}

func (f Fleet) stamp(node int, cluster string) rangeshard.Stamp {
	n := f.Map.Nodes()[node]
	return rangeshard.Stamp{Cluster: cluster, Node: n.Name, RangeSize: f.Map.Size(), Ranges: n.Ranges}
}

// Claim makes the databases of a fleet what the map says they are: it stamps fresh ones and extends the stamps of nodes
// that were given more ranges. Nothing is written when Verify finds a fault. A fleet without an id gets newCluster.
func (f Fleet) Claim(ctx context.Context, newCluster string, now time.Time) error {
	v := f.Verify(ctx)
	if err := v.Err(); err != nil {
		return err
	}
	cluster, err := f.Issuer.JoinCluster(ctx, cmp.Or(v.cluster, newCluster))
	if err != nil {
		return err
	}
	for i, db := range f.Nodes {
		if err := rangeshard.ClaimNode(ctx, db, f.stamp(i, cluster), now); err != nil {
			return f.located(i, err)
		}
	}
	return nil
}

// newTopology opens the tables of a fleet's nodes; those that run already are kept as they are.
func (s *Store) newTopology(f Fleet, running []*node) *topology {
	t := &topology{layout: f.Map, drains: map[*node]bool{}, maxDocument: math.MaxInt64}
	for i, n := range f.Map.Nodes() {
		db := f.Nodes[i]
		k := slices.IndexFunc(running, func(r *node) bool { return r.name == n.Name })
		if k >= 0 {
			t.nodes = append(t.nodes, running[k])
		} else {
			t.nodes = append(t.nodes, s.newNode(n.Name, db))
		}
		t.drains[t.nodes[i]] = n.Drain
		if packet := db.Server().MaxPacketBytes; packet > 0 {
			t.maxDocument = min(t.maxDocument, maxDocumentMySQL(packet))
		}
	}
	return t
}

// Extend puts a grown map in force (I7). The fleet has the databases of all its nodes, those of the running ones as they
// are, and no issuer: the running one stays. When the map is not an extension of the running one, or a database is not
// what the map says, nothing changes. Requests under way end on the map that they began with. One call at a time.
func (s *Store) Extend(ctx context.Context, fleet Fleet) error {
	running := s.topology.Load()
	if err := fleet.Map.Extends(running.layout); err != nil {
		return err
	}
	fleet.Issuer = s.issuer
	if err := fleet.Claim(ctx, s.identity.Instance(), s.timestamp()); err != nil {
		return err
	}
	s.topology.Store(s.newTopology(fleet, running.nodes))
	for _, p := range s.placements {
		p.retry(ctx)
	}
	return nil
}
