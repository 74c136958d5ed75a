package handlers

import (
	"context"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"keyrange/store"
)

// askSweeper sends a request to the operators' listener.
func (r *rig) askSweeper() *httptest.ResponseRecorder {
	request := httptest.NewRequest("GET", patternSweeper, nil)
	request.Header.Set("X-Request-Id", "test")
	answer := httptest.NewRecorder()
	r.Admin().ServeHTTP(answer, request)
	return answer
}

// TestSweeper: the operators' listener says what the sweeper does, and never shows a key; the clients' has no such path.
func TestSweeper(t *testing.T) {
	r := newRig(t)
	share, end := 0.25, fakeNow.Add(time.Hour)
	last := &store.SweepPass{StartedAt: fakeNow, FinishedAt: &end, Counts: store.SweepCounts{Entries: 10, Rows: 9, Fences: 2, Dangling: 1, Removed: 1, Purged: 1}}
	rows := &store.SweepPass{StartedAt: end, Phase: store.PhaseRows, Collection: "orders", Range: 3, Node: "node-2", From: 4711, Fraction: &share,
		Counts: store.SweepCounts{Rows: 5, Strays: 2, Reindexed: 1, Doubles: 3, Misplaced: 4, Beyond: 5}}
	r.fake.sweeper = store.SweeperStatus{State: store.SweeperActive, Holder: "abc", WaitsFor: "node-2", Pass: rows, Last: last}
	golden(t, "sweeper_rows", transcript(r.askSweeper()))
	entries := &store.SweepPass{StartedAt: end, Phase: store.PhaseEntries, Collection: "orders", From: math.MinInt64, After: []byte("a-secret-key")}
	r.fake.sweeper = store.SweeperStatus{State: store.SweeperStandby, Holder: "abc", Pass: entries}
	golden(t, "sweeper_entries", transcript(r.askSweeper()))
	if answer := r.askSweeper().Body.String(); strings.Contains(answer, "secret") || strings.Contains(answer, "YS1zZWNyZXQta2V5") {
		t.Errorf("a key: %s", answer)
	}
	r.fake.sweeper = store.SweeperStatus{State: store.SweeperOff}
	golden(t, "sweeper_off", transcript(r.askSweeper()))
	r.expect(404, "not_found", "GET", patternSweeper, "")
	r.fake.before = func(context.Context, string, string) error { return store.ErrUnavailable }
	if answer := r.askSweeper(); answer.Code != 503 {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}
