package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"keyrange/index"
	"keyrange/test/servers"
)

// embedded is the engine of tests that are about no engine.
var embedded = servers.Engine{Name: "sqlite", Fresh: servers.FreshSQLite}

// trace is Trace without an error.
func traced(t *testing.T, s *opened, key string) Trace {
	t.Helper()
	seen, err := s.Trace(t.Context(), testCollection, key)
	if err != nil {
		t.Fatalf("trace %q: %v", key, err)
	}
	return seen
}

// TestTrace: each step of the path is told as it is, on every engine, and a look changes nothing.
func TestTrace(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s, ctx := d.open(t), t.Context()
		if seen := traced(t, s, "nobody"); seen != (Trace{}) {
			t.Errorf("a key without an entry: %+v", seen)
		}
		rec := mustCreate(t, s, "k", "one")
		if _, _, err := s.Put(ctx, testCollection, "k", doc("two"), Condition{}); err != nil {
			t.Fatal(err)
		}
		seen := traced(t, s, "k")
		want := Trace{
			CachedID: rec.Tag.ID, EntryID: rec.Tag.ID, ID: rec.Tag.ID, Range: 1, Lo: 1, Hi: 1001, Node: "node-1", Table: "records_r00001",
			Row: RowLive, Version: 2, CreatedAt: rec.CreatedAt, UpdatedAt: seen.UpdatedAt, Bytes: int64(len(doc("two").Document)),
		}
		if seen != want || seen.UpdatedAt.Before(rec.UpdatedAt) {
			t.Errorf("a record:\n got %+v\nwant %+v", seen, want)
		}
		for key, id := range map[string]int64{"absent": 900, "fenced": 901, "foreign": rec.Tag.ID, "over": 902, "beyond": 2001} {
			if err := s.index.Insert(ctx, testCollection, []index.Entry{{Key: key, ID: id}})[0]; err != nil {
				t.Fatal(err)
			}
		}
		token := s.identity.token()
		if err := s.insertRow(ctx, testCollection, row{id: 901, key: "fenced", version: 1, token: token, createdAt: s.timestamp(), updatedAt: s.timestamp()}.asFence()); err != nil {
			t.Fatal(err)
		}
		over := row{id: 902, key: "over", version: 4, token: token, createdAt: s.timestamp(), updatedAt: s.timestamp(), Content: doc("over")}
		over.ExpiresAt = s.timestamp().Add(-time.Hour)
		if err := s.insertRow(ctx, testCollection, over); err != nil {
			t.Fatal(err)
		}
		if seen := traced(t, s, "over"); seen.Row != RowExpired || seen.Version != 4 || !seen.ExpiresAt.Equal(over.ExpiresAt) {
			t.Errorf("an expired record: %+v", seen)
		}
		for key, row := range map[string]string{"absent": RowAbsent, "fenced": RowFence, "foreign": RowForeign} {
			seen := traced(t, s, key)
			if seen.Row != row || seen.Range != 1 || seen.Version != 0 || seen.Bytes != 0 || !seen.CreatedAt.IsZero() {
				t.Errorf("%s: %+v", key, seen)
			}
		}
		if seen := traced(t, s, "beyond"); seen != (Trace{EntryID: 2001, ID: 2001}) {
			t.Errorf("an ID that no node owns: %+v", seen)
		}
		_, err := s.Trace(ctx, testCollection, strings.Repeat("k", MaxKeyBytes+1))
		wantError(t, "a key that is too long", err, ErrInvalid)
		_, err = s.Trace(ctx, "nowhere", "k")
		wantError(t, "no such collection", err, ErrInvalid)
		wantDocument(t, s, "k", doc("two").Document)
	})
}

// TestTraceStale: what is remembered and what the index says are told apart, and the index counts.
func TestTraceStale(t *testing.T) {
	s := fresh(t, embedded).open(t)
	rec := mustCreate(t, s, "k", "one")
	s.cache.put(testCollection, "k", 77)
	hits, misses := s.cache.counts()
	if seen := traced(t, s, "k"); seen.CachedID != 77 || seen.EntryID != rec.Tag.ID || seen.ID != rec.Tag.ID || seen.Row != RowLive {
		t.Errorf("%+v", seen)
	}
	if h, m := s.cache.counts(); h != hits || m != misses || s.cache.peek(testCollection, "k") != 77 {
		t.Error("the look has left a trace in the cache")
	}
}

// silentIndex answers no look-up.
type silentIndex struct{ index.Index }

func (silentIndex) Find(ctx context.Context, _ string, _ []string) (map[string]int64, error) {
	<-ctx.Done()
	return nil, index.ErrUnavailable
}

// TestTraceDown: a database that does not answer is part of what is told: without the index the remembered ID is followed, in
// the time that is left, and without the node the path ends before the row.
func TestTraceDown(t *testing.T) {
	s := fresh(t, embedded).open(t)
	rec := mustCreate(t, s, "k", "one")
	healthy := s.index
	s.index = silentIndex{healthy}
	ctx, cancel := context.WithTimeout(t.Context(), tracePatience+5*time.Second)
	defer cancel()
	seen, err := s.Trace(ctx, testCollection, "k")
	if err != nil || seen.EntryErr == nil || seen.EntryID != 0 || seen.ID != rec.Tag.ID || seen.Row != RowLive {
		t.Errorf("without the index: %+v %v", seen, err)
	}
	if seen, err := s.Trace(ctx, testCollection, "other"); err != nil || seen.EntryErr == nil || seen.ID != 0 {
		t.Errorf("without the index, and not remembered: %+v %v", seen, err)
	}
	s.index = healthy
	n := s.topology.Load().nodes[0]
	n.admitted.Store(false)
	n.keepOut(errors.New("kept out by the test"))
	if seen := traced(t, s, "k"); seen.EntryID != rec.Tag.ID || seen.Node != "node-1" || seen.Row != "" || seen.RowErr == nil {
		t.Errorf("without the node: %+v", seen)
	}
	n.admit()
}

// TestOverview: the nodes are as config has them, and the circuits as the metrics have them.
func TestOverview(t *testing.T) {
	s := fresh(t, embedded).open(t)
	over := s.Overview()
	if over.RangeSize != 1000 || over.Levels != (AlarmLevels{.75, .9}) || len(over.Nodes) != 2 || over.Nodes[1] != (NodeOverview{Name: "node-2", Ranges: "2"}) {
		t.Errorf("%+v", over)
	}
	if len(over.Circuits) != 3 || over.Circuits[2] != (Circuit{Kind: "node", Name: "node-2"}) {
		t.Errorf("%+v", over.Circuits)
	}
	writes := s.topology.Load().nodes[1].guarded.writes
	for range breakerFailures {
		_ = writes.run(func() error { return writes.unavailable })
	}
	if got := s.Overview().Circuits[2]; !got.WritesOpen || got.ReadsOpen {
		t.Errorf("%+v", got)
	}
}
