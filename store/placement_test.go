package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"keyrange/index"
)

// threeNodes makes a deployment of three nodes with a range each.
func (d deployment) threeNodes(t *testing.T) deployment {
	t.Helper()
	d.Nodes, d.Ranges = append(d.Nodes, d.renew(t).Nodes[0]), []string{"1", "2", "3"}
	return d
}

// perNode counts the rows of each node.
func (d deployment) perNode(t *testing.T) (counts []int) {
	t.Helper()
	counts = make([]int, len(d.Nodes))
	for _, r := range d.allRows(t) {
		counts[r.node]++
	}
	return counts
}

// eventually polls until ok, for ten seconds at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

// TestPlacementSpread: new records go to several nodes in turn.
func TestPlacementSpread(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.threeNodes(t)
		d.Placement = Placement{Spread: 3}
		s := d.open(t)
		for i := range 300 {
			mustCreate(t, s, fmt.Sprintf("k%d", i), "x")
		}
		for n, count := range d.perNode(t) {
			if count < 90 || count > 110 {
				t.Errorf("node %d has %d of 300 rows", n, count)
			}
		}
		d.checkInvariants(t, s)
	})
}

// TestPlacementUsesAllIDs: spreading fills ranges that are below the high level first, then every one to its last ID, and
// only then refuses.
func TestPlacementUsesAllIDs(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size, d.Ranges, d.Placement = 30, []string{"1,3", "2"}, Placement{Spread: 2, HighLevel: 0.5}
		s := d.open(t)
		third := 0
		for i := range 90 {
			if i == 40 { // ranges 1 and 2 have been above their level for a while
				p := s.placements[testCollection]
				eventually(t, "range 3 is open", func() bool {
					p.retry(t.Context()) // else it would look once a second
					if _, err := p.pick(t.Context()); err != nil {
						t.Fatal(err)
					}
					return p.openAt(61) != nil
				})
			}
			var rec Record
			eventually(t, "a range for a create", func() bool {
				var err error
				if rec, err = s.Create(t.Context(), testCollection, fmt.Sprintf("k%d", i), doc("x")); err != nil && !errors.Is(err, ErrExhausted) {
					t.Fatal(err)
				}
				return err == nil
			})
			if rec.Tag.ID > 60 && third == 0 {
				third = i
			}
		}
		if third < 15 || third > 41 {
			t.Errorf("range 3 took its first record as number %d, with ranges 1 and 2 high from 32 on", third)
		}
		_, err := s.Create(t.Context(), testCollection, "one more", doc("x"))
		wantError(t, "create past the last ID", err, ErrExhausted)
		d.checkInvariants(t, s)
	})
}

// TestPlacementNodeDown: while a node is down, new records go to the others, reads of its records say that it is
// unavailable, and all other requests go on. When it is back it takes part again.
func TestPlacementNodeDown(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		d = d.threeNodes(t)
		d.Placement = Placement{Spread: 3}
		through, _, toNode := d.proxied(t)
		s, ctx := through.open(t), t.Context()
		onFirst, onSecond := "", ""
		for i := range 30 {
			key := fmt.Sprintf("before%d", i)
			if mustCreate(t, s, key, key).Tag.ID <= d.Size {
				onFirst = key
			} else {
				onSecond = key
			}
		}
		toNode.Refuse(true)
		first := s.topology.Load().nodes[0]
		for i := 0; !first.down(); i++ {
			_, err := s.Create(ctx, testCollection, fmt.Sprintf("falling%d", i), doc("x"))
			if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown) {
				t.Error(err)
			}
		}
		for i := range 60 {
			mustCreate(t, s, fmt.Sprintf("down%d", i), "x")
		}
		_, err := s.Get(ctx, testCollection, onFirst)
		wantError(t, "get from the node that is down", err, ErrUnavailable)
		wantDocument(t, s, onSecond, doc(onSecond).Document)
		toNode.Refuse(false)
		eventually(t, "the node takes part again", func() bool {
			rec, err := s.Create(ctx, testCollection, fmt.Sprintf("after%d", time.Now().UnixNano()), doc("x"))
			if err != nil {
				t.Error(err)
			}
			return rec.Tag.ID <= d.Size
		})
		wantDocument(t, s, onFirst, doc(onFirst).Document)
		through.checkInvariants(t, s)
	})
}

// insertCounter counts writes to the index.
type insertCounter struct {
	index.Index
	inserts atomic.Int64
}

func (c *insertCounter) Insert(ctx context.Context, collection string, entries []index.Entry) []error {
	c.inserts.Add(1)
	return c.Index.Insert(ctx, collection, entries)
}

// TestPlacementStrictNodeDown: filling range after range, a create is refused at once while the node whose turn it is is
// down, and the index is not touched.
func TestPlacementStrictNodeDown(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		through, _, toNode := d.proxied(t)
		s, ctx := through.open(t), t.Context()
		counter := &insertCounter{Index: s.index}
		s.index = counter
		mustCreate(t, s, "k", "x")
		toNode.Refuse(true)
		for i := 0; !s.topology.Load().nodes[0].down(); i++ {
			_, err := s.Create(ctx, testCollection, fmt.Sprintf("falling%d", i), doc("x"))
			if err == nil {
				t.Fatal("a create succeeded on a node that refuses")
			}
		}
		before := counter.inserts.Load()
		for i := range 20 {
			_, err := s.Create(ctx, testCollection, fmt.Sprintf("down%d", i), doc("x"))
			wantError(t, "create", err, ErrUnavailable)
		}
		if n := counter.inserts.Load() - before; n > 0 {
			t.Errorf("%d writes to the index", n)
		}
		toNode.Refuse(false)
		eventually(t, "creates go on", func() bool {
			_, err := s.Create(ctx, testCollection, "falling0", doc("y"))
			return err == nil || errors.Is(err, ErrConflict)
		})
		through.checkInvariants(t, s)
	})
}

// TestPlacementDrain: a drained node takes no new records and hands its unused IDs back; those that it has are served.
func TestPlacementDrain(t *testing.T) {
	for _, spread := range []int{1, 2} {
		t.Run(fmt.Sprintf("spread=%d", spread), func(t *testing.T) {
			engines(t, func(t *testing.T, d deployment) {
				d.Placement = Placement{Spread: spread}
				s, ctx := d.open(t), t.Context()
				for i := range 10 {
					mustCreate(t, s, fmt.Sprintf("k%d", i), "x")
				}
				d.Drains = []bool{true, false}
				if err := s.Extend(ctx, d.grown(t, s)); err != nil {
					t.Fatal(err)
				}
				before := d.perNode(t)
				for i := range 20 {
					mustCreate(t, s, fmt.Sprintf("drained%d", i), "x")
				}
				if after := d.perNode(t); after[0] != before[0] || after[1] != before[1]+20 {
					t.Errorf("rows per node %v, then %v", before, after)
				}
				for i := range 10 {
					wantDocument(t, s, fmt.Sprintf("k%d", i), doc("x").Document)
				}
				if _, _, err := s.Put(ctx, testCollection, "k0", doc("y"), Condition{Exists: true}); err != nil {
					t.Error(err)
				}
				issued, err := s.issuers[0].List(ctx)
				if err != nil || issued[0].Next != int64(before[0])+1 {
					t.Errorf("the issuer is at %+v after %d rows: %v", issued, before[0], err)
				}
				d.Drains = []bool{true, true}
				if err := s.Extend(ctx, d.grown(t, s)); err != nil {
					t.Fatal(err)
				}
				_, err = s.Create(ctx, testCollection, "nowhere", doc("x"))
				wantError(t, "create with all nodes drained", err, ErrExhausted)
				d.checkInvariants(t, s)
			})
		})
	}
}
