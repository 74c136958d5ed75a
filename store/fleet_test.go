package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"keyrange/rangeshard"
	"keyrange/store/sqldb"
)

// grown is the fleet of an open store with other nodes: those that run keep their databases, others are opened.
func (d deployment) grown(t *testing.T, o *opened) Fleet {
	t.Helper()
	var f Fleet
	var nodes []rangeshard.Node
	for i, url := range d.Nodes {
		ranges, err := rangeshard.ParseRanges(d.Ranges[i])
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, rangeshard.Node{Name: fmt.Sprintf("node-%d", i+1), Ranges: ranges, Drain: d.Drains != nil && d.Drains[i]})
		if running := o.topology.Load().nodes; i < len(running) {
			f.Nodes = append(f.Nodes, running[i].db)
			continue
		}
		db, err := sqldb.Open(t.Context(), url, sqldb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		f.Nodes = append(f.Nodes, db)
	}
	var err error
	if f.Map, err = rangeshard.NewMap(d.Size, nodes); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestStoreExtend: a node is appended while creates run into the end of the last range. They go on without a restart, on
// the new node, and no row has moved.
func TestStoreExtend(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size = 20
		s, ctx := d.open(t), t.Context()
		for i := range 40 {
			mustCreate(t, s, fmt.Sprintf("old%d", i), "x")
		}
		_, err := s.Create(ctx, testCollection, "new0", doc("x"))
		wantError(t, "create on full ranges", err, ErrExhausted)
		before := d.allRows(t)

		d.Nodes, d.Ranges = append(d.Nodes, d.renew(t).Nodes[0]), []string{"1", "2,4", "3"}
		if err := s.Extend(ctx, d.grown(t, s)); err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			mustCreate(t, s, fmt.Sprintf("new%d", i), "x")
		}
		moved := map[int64]storedRow{}
		perNode := map[int]int{}
		for _, r := range d.allRows(t) {
			moved[r.id] = r
			perNode[r.node]++
		}
		for _, r := range before {
			if moved[r.id] != r {
				t.Errorf("row %+v is now %+v", r, moved[r.id])
			}
		}
		if fmt.Sprint(perNode) != "map[0:20 1:40 2:20]" {
			t.Errorf("rows per node %v", perNode)
		}
		d.checkInvariants(t, s)
		_, err = s.Create(ctx, testCollection, "one more", doc("x"))
		wantError(t, "create on full ranges", err, ErrExhausted)
		s.shut(t)
		d.open(t) // the stamps fit the larger config
	})
}

// TestStoreExtendUnderLoad: requests that run while the map is replaced do not notice.
func TestStoreExtendUnderLoad(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size = 200
		s, ctx := d.open(t), t.Context()
		var stop atomic.Bool
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for i := 0; !stop.Load() && i < 40; i++ {
					key := fmt.Sprintf("k%d-%d", worker, i)
					if _, err := s.Create(ctx, testCollection, key, doc(key)); err != nil {
						t.Error(err)
					}
					if _, err := s.Get(ctx, testCollection, key); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for number := 3; number <= 5; number++ {
			d.Ranges = []string{d.Ranges[0], d.Ranges[1] + fmt.Sprintf(",%d", number)}
			if err := s.Extend(ctx, d.grown(t, s)); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		stop.Store(true)
		d.checkInvariants(t, s)
	})
}

// TestStoreExtendRefused: a map that is no extension, or a database that is not what the map says, changes nothing.
func TestStoreExtendRefused(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s := d.open(t)
		mustCreate(t, s, "k", "x")
		running := s.topology.Load()

		shrunk := d
		shrunk.Nodes, shrunk.Ranges = d.Nodes[:1], []string{"1-2"}
		if err := s.Extend(t.Context(), shrunk.grown(t, s)); err == nil || !strings.Contains(err.Error(), "node node-2 with ranges 2 is missing") {
			t.Errorf("a node dropped: %v", err)
		}
		other := d.renew(t)
		other.open(t).shut(t) // its databases belong to another cluster
		foreign := d
		foreign.Nodes, foreign.Ranges = append(append([]string(nil), d.Nodes...), other.Nodes[0]), []string{"1", "2", "3"}
		if err := s.Extend(t.Context(), foreign.grown(t, s)); !errors.Is(err, rangeshard.ErrStamp) || !strings.Contains(err.Error(), "another cluster") {
			t.Errorf("another cluster's node: %v", err)
		}
		if s.topology.Load() != running {
			t.Error("a refused map is in force")
		}
		mustCreate(t, s, "k2", "x")
		d.checkInvariants(t, s)
	})
}
