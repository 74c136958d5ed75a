package store

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
		w := newSimWorld(1, mutantNone, false)
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
