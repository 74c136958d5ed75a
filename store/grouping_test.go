package store

import (
	"io"
	"strings"
	"testing"

	"keyrange/store/sqldb"
)

// by is the deployment with records grouped by a member.
func (d deployment) by(member string) deployment {
	d.Group = member
	return d
}

// TestGroupingIsKept: a store whose config groups a collection in another way than its records were made is refused at
// start, with both ways named, and the records stay as they are.
func TestGroupingIsKept(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		for _, c := range []struct{ was, is string }{{"", "customer"}, {"customer", ""}, {"customer", "client"}} {
			d := d.renew(t).by(c.was)
			s := d.open(t)
			join(t, s, "k", strings.Repeat("g", len(c.was)))
			s.shut(t)
			o, err := d.by(c.is).try(t.Context(), io.Discard)
			if err == nil {
				o.shut(t)
			}
			wantError(t, "open", err, errGrouping)
			for _, text := range []string{"collection records", c.was, c.is, "can never change"} {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("from %q to %q: the error does not say %q: %v", c.was, c.is, text, err)
				}
			}
			again := d.open(t)
			wantDocument(t, again, "k", doc("k").Document)
			again.shut(t)
		}
	})
}

// TestGroupingOfUnused: the group of a collection of which no ID was ever leased may change. A store that still runs with
// the earlier config gets no IDs any more.
func TestGroupingOfUnused(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		plain := d.open(t)
		plain.Warm(t.Context()) // makes the range table
		if d.Index[:6] == "sqlite" {
			plain.shut(t)
		}
		s := d.by("customer").open(t)
		if d.Index[:6] != "sqlite" {
			_, err := plain.Create(t.Context(), testCollection, "late", doc("late"))
			wantError(t, "create by the earlier config", err, ErrUnavailable)
			if !strings.Contains(plain.log.String()+err.Error(), "can never change") {
				t.Errorf("the error does not say why: %v", err)
			}
		}
		join(t, s, "k", "g")
		wantGroup(t, s, "g", []string{"k"})
		if d.Index[:6] == "sqlite" {
			return
		}
		// Going back is refused now, also to the store that still runs.
		_, err := plain.Create(t.Context(), testCollection, "later", doc("later"))
		wantError(t, "create by the earlier config", err, ErrUnavailable)
		d.checkInvariants(t, s)
	})
}

// TestGroupingOfNodeAway: as long as a node is away, nobody can tell whether a collection is used. What is known to be
// grouped goes on, also on a new node.
func TestGroupingOfNodeAway(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		through, _, toNode := d.proxied(t)
		s := through.open(t)
		mustCreate(t, s, "k", "v") // on the first node, which goes away
		s.shut(t)
		toNode.Refuse(true)
		o, err := through.by("customer").try(t.Context(), io.Discard)
		if err != nil {
			t.Fatal(err) // nothing on the second node stands against it, but it is not to be used yet
		}
		o.log = &logBuffer{}
		defer o.shut(t)
		if o.topology.Load().nodes[1].barred() == nil {
			t.Error("a node was made to know of a group although nobody can tell whether it is right")
		}
		toNode.Refuse(false)
		eventually(t, "the first node is refused", func() bool {
			why := o.topology.Load().nodes[0].barred()
			return why != nil && strings.Contains(why.Error(), "can never change")
		})
		db, err := sqldb.Open(t.Context(), d.Nodes[1], sqldb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if stored, err := (groupings{db}).read(t.Context()); err != nil || len(stored) > 0 {
			t.Errorf("the second node knows %v, %v", stored, err)
		}
	})
}
