package store

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"keyrange/index"
)

// newScriptWorld is a world in which only what the script says happens. Its records have no group, so that a create asks for
// one thing after another.
func newScriptWorld() *simWorld {
	w := newSimWorld(1, mutantNone, false)
	w.grouped = false
	return w
}

// expect lets the one call that waits go, which must be the one that the script says.
func (w *simWorld) expect(t *testing.T, label string, f simFate) {
	t.Helper()
	w.settleDown()
	calls := w.waiting()
	if len(calls) != 1 || !strings.Contains(calls[0].label, label) {
		t.Fatalf("%d calls wait, want one to %s", len(calls), label)
	}
	w.release(calls[0], f)
	w.settleDown()
}

// TestStoreCreateOccupiedUnread: a create whose ID was fenced, and that cannot read by whom, has one outcome and not two.
// Seeds find this too, but it takes 60,000 of them.
func TestStoreCreateOccupiedUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScriptWorld()
		defer w.shutDown()
		op := &simOperation{client: w.clients[0], kind: simCreate, key: "a", timeout: time.Second}
		w.start(op)
		w.expect(t, "index insert", fateDone)
		w.db.insertRow(row{id: w.db.entries["a"], key: "a", state: fence})
		w.expect(t, "insert a#1", fateDone)
		w.expect(t, "read", fateRefused)
		if outcome := outcomeOf(op.result.err); op.returned == 0 || outcome != outcomeUnknown {
			t.Errorf("create: %v (%s)", op.result.err, outcome)
		}
	})
}

// TestStoreDeleteResent: a delete whose statement got no answer is sent again and finds nothing. Its own first statement may
// have taken effect, or another client deleted the record, or changed the version that was demanded: nobody can tell, so
// the outcome is unknown. To claim success would be a lie in the second and third case.
func TestStoreDeleteResent(t *testing.T) {
	first := Tag{1, 1}
	for name, test := range map[string]struct {
		first simFate
		cond  Condition
		other func(d *simDatabases)
	}{
		"took effect":        {fateLost, Condition{}, func(*simDatabases) {}},
		"deleted by another": {fateNever, Condition{}, func(d *simDatabases) { d.change(&rowChange{id: 1, key: "a"}) }},
		"changed by another": {fateNever, Condition{Tags: []Tag{first}}, func(d *simDatabases) {
			d.change(&rowChange{id: 1, key: "a", Content: Content{Document: []byte("a#9")}})
		}},
		"nothing happened to it": {fateNever, Condition{Tags: []Tag{first}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newScriptWorld()
				defer w.shutDown()
				w.db.insertEntry(index.Entry{Key: "a", ID: 1})
				w.db.insertRow(row{id: 1, key: "a", version: 1, Content: Content{Document: []byte("a#0")}})
				op := &simOperation{client: w.clients[0], kind: simDelete, key: "a", cond: test.cond, timeout: time.Second}
				w.start(op)
				w.expect(t, "index find", fateDone)
				w.expect(t, "delete {a 1}", test.first)
				want := outcomeUnknown
				if test.other == nil {
					want = outcomeOK
				} else {
					test.other(w.db)
				}
				w.expect(t, "delete {a 1}", fateDone)
				if want == outcomeOK {
					w.expect(t, "index remove", fateDone)
				}
				if outcome := outcomeOf(op.result.err); op.returned == 0 || outcome != want {
					t.Errorf("delete: %v (%s), want %s", op.result.err, outcome, want)
				}
			})
		})
	}
}
