package store

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"keyrange/rangeshard"
	"keyrange/test/servers"
)

// used makes the databases of a deployment those of a cluster, with a record.
func (d deployment) used(t *testing.T) {
	t.Helper()
	s := d.open(t)
	mustCreate(t, s, "old", "x")
	s.shut(t)
}

// TestAdmissionStartWithout: a gateway starts without a database, serves what it can, and takes the database in when it
// answers.
func TestAdmissionStartWithout(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		through := d
		through.Nodes = append([]string(nil), d.Nodes...)
		through.Direct = d.Nodes
		var toIndex, toIssuer, toFirst, toSecond *servers.Proxy
		toIndex, through.Index = servers.NewProxyFor(t, d.Index)
		toIssuer, through.Issuer = servers.NewProxyFor(t, d.Issuer)
		toFirst, through.Nodes[0] = servers.NewProxyFor(t, d.Nodes[0])
		toSecond, through.Nodes[1] = servers.NewProxyFor(t, d.Nodes[1])
		through.used(t)
		for _, tt := range []struct {
			name          string
			away          *servers.Proxy
			reads, writes bool
			health        string
		}{
			{"Index", toIndex, false, false, "index"},
			{"Issuer", toIssuer, true, false, "issuer"},
			{"NodeInUse", toFirst, false, false, "node-1"},
			{"OtherNode", toSecond, true, true, "node-2"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				tt.away.Refuse(true)
				s, ctx := through.open(t), t.Context()
				_, err := s.Get(ctx, testCollection, "old")
				if tt.reads && err != nil {
					t.Errorf("get: %v", err)
				} else if !tt.reads {
					wantError(t, "get", err, ErrUnavailable)
				}
				_, err = s.Create(ctx, testCollection, "new "+tt.name, doc("x"))
				if tt.writes && err != nil {
					t.Errorf("create: %v", err)
				} else if !tt.writes {
					wantError(t, "create", err, ErrUnavailable)
				}
				for _, h := range s.Health(ctx) {
					if down := h.Name == tt.health; down != (h.Err != nil) {
						t.Errorf("health of %s: %v", h.Name, h.Err)
					}
				}
				tt.away.Refuse(false)
				eventually(t, "the database is taken in", func() bool {
					_, err := s.Create(ctx, testCollection, "later "+tt.name, doc("x"))
					return err == nil
				})
				wantDocument(t, s, "old", doc("x").Document)
				if !strings.Contains(s.log.String(), "out of reach") || strings.Contains(s.log.String(), "alarm") {
					t.Errorf("log:\n%s", s.log)
				}
				s.shut(t)
			})
		}
	})
}

// TestAdmissionFirstStart: the first start of all needs every database.
func TestAdmissionFirstStart(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		through, toIndex, toNode := d.proxied(t)
		for _, away := range []*servers.Proxy{toIndex, toNode} {
			away.Refuse(true)
			if _, err := through.try(t.Context(), &bytes.Buffer{}); err == nil {
				t.Error("it started")
			}
			away.Refuse(false)
		}
		through.used(t)
	})
}

// TestAdmissionForeigner: a database that was away at start and turns out to be another one is not used (I5).
func TestAdmissionForeigner(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		d.used(t)
		other := d.renew(t)
		other.used(t)
		through := d
		var toNode *servers.Proxy
		toNode, foreign := servers.NewProxyFor(t, other.Nodes[0])
		through.Nodes = []string{foreign, d.Nodes[1]}
		toNode.Refuse(true)
		s := through.open(t)
		toNode.Refuse(false)
		eventually(t, "an alarm", func() bool {
			return s.topology.Load().nodes[0].barred() != nil && strings.Contains(s.log.String(), "alarm=true")
		})
		_, err := s.Get(t.Context(), testCollection, "old")
		wantError(t, "get from a foreign node", err, ErrUnavailable)
		if log := s.log.String(); strings.Count(log, "not the one that config says") != 1 || !strings.Contains(log, "another cluster") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestExtendWhileANodeIsDown: a node that is down does not stand in the way of appending another one.
func TestExtendWhileANodeIsDown(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		d.Size = 20
		through, _, toNode := d.proxied(t)
		through.Direct = nil
		s, ctx := through.open(t), t.Context()
		toNode.Refuse(true)
		through.Nodes, through.Ranges = append(through.Nodes, d.renew(t).Nodes[0]), []string{"1", "2", "3"}
		if err := s.Extend(ctx, through.grown(t, s)); err != nil {
			t.Fatal(err)
		}
		toNode.Refuse(false)
		eventually(t, "60 records", func() bool {
			for i := range 60 {
				if _, err := s.Get(ctx, testCollection, fmt.Sprintf("k%d", i)); err == nil {
					continue
				}
				if _, err := s.Create(ctx, testCollection, fmt.Sprintf("k%d", i), doc("x")); err != nil {
					return false
				}
			}
			return true
		})
		through.checkInvariants(t, s)
	})
}

// TestExtendMovesANode: a node's rows are found at another address, once the old one takes no writes any more.
func TestExtendMovesANode(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		through, _, toNode := d.proxied(t)
		through.Direct = nil
		s, ctx := through.open(t), t.Context()
		mustCreate(t, s, "k", "x")

		moved := func() Fleet {
			f := through.grown(t, s)
			f.Nodes[0] = mustOpen(t, d.Nodes[0])
			return f
		}
		if err := s.Extend(ctx, moved()); err == nil || !strings.Contains(err.Error(), "still takes writes") {
			t.Errorf("a move from a database that is in use: %v", err)
		}
		foreign := through.grown(t, s)
		foreign.Nodes[0] = mustOpen(t, d.renew(t).Nodes[0])
		if err := s.Extend(ctx, foreign); err == nil || !strings.Contains(err.Error(), "never held it") {
			t.Errorf("a move to an empty database: %v", err)
		}
		toNode.Refuse(true)
		if _, err := s.Get(ctx, testCollection, "k"); err == nil {
			t.Error("the old address still answers")
		}
		if err := s.Extend(ctx, moved()); err != nil {
			t.Fatal(err)
		}
		wantDocument(t, s, "k", doc("x").Document)
		mustCreate(t, s, "k2", "x")
		if _, _, err := s.Put(ctx, testCollection, "k", doc("y"), Condition{Exists: true}); err != nil {
			t.Error(err)
		}
		through.Nodes[0] = d.Nodes[0]
		through.checkInvariants(t, s)
		s.shut(t) // before the database that was opened last
	})
}

// TestSetPlacement: the order changes while records are created.
func TestSetPlacement(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d = d.threeNodes(t)
		s, ctx := d.open(t), t.Context()
		create := func(n int, prefix string) {
			for i := range n {
				mustCreate(t, s, fmt.Sprintf("%s%d", prefix, i), "x")
			}
		}
		create(10, "strict")
		s.SetPlacement(ctx, Placement{Spread: 3})
		create(30, "spread")
		s.SetPlacement(ctx, Placement{})
		create(10, "strict again")
		if got := fmt.Sprint(d.perNode(t)); got != "[30 10 10]" {
			t.Errorf("rows per node %s", got)
		}
		d.checkInvariants(t, s)
	})
}

// TestVerifyNamesBothSides: what a stamp says and what config wants are both in the message.
func TestVerifyNamesBothSides(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.used(t)
		d.Nodes[0], d.Nodes[1] = d.Nodes[1], d.Nodes[0]
		_, err := d.try(t.Context(), &bytes.Buffer{})
		wantError(t, "start with swapped nodes", err, rangeshard.ErrStamp)
		for _, part := range []string{"nodes[0] (node-1)", "nodes[1] (node-2)", "two DSNs swapped"} {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not say %q", err, part)
			}
		}
	})
}

// TestAdmissionIndex: an index that is empty while there are records, or another cluster's, is refused: keys would be used a
// second time (I4).
func TestAdmissionIndex(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.used(t)
		other := d.renew(t)
		other.used(t)
		for part, ix := range map[string]string{"has never been used, but the cluster": d.renew(t).Index, "it belongs to the cluster": other.Index} {
			wrong := d
			wrong.Index = ix
			if _, err := wrong.try(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not say %q", err, part)
			}
		}
		d.used2(t)
	})
}

// TestAdmissionIndexDropped: an index that loses its stamp while it is in use is kept out until it is stamped again.
func TestAdmissionIndexDropped(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		if !strings.HasPrefix(d.Index, "sqlite") {
			return // the tests of the built gateway drop an index of a server
		}
		s, ctx := d.open(t), t.Context()
		mustCreate(t, s, "k", "x")
		db := mustOpen(t, d.Index)
		if _, err := db.Exec(ctx, "DELETE FROM gateway_stamp"); err != nil {
			t.Fatal(err)
		}
		s.lookAtIndex(ctx)
		_, err := s.Create(ctx, testCollection, "new", doc("x"))
		wantError(t, "create", err, ErrUnavailable)
		if !strings.Contains(s.log.String(), "alarm=true") || !strings.Contains(s.log.String(), "gateway fsck --repair") {
			t.Errorf("log:\n%s", s.log)
		}
		if _, err := db.Exec(ctx, "INSERT INTO gateway_stamp (one, cluster) VALUES (1, ?)", s.cluster); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a create", func() bool {
			_, err := s.Create(ctx, testCollection, "new", doc("x"))
			return err == nil
		})
		wantDocument(t, s, "k", doc("x").Document)
		s.shut(t)
	})
}
