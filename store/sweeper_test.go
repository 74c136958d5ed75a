package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keyrange/index"
)

// TestSweeperTurn: of two gateways one sweeps. When it stops saying that it does, the other goes on where it was, and
// counts on; when it comes back, it stands by.
func TestSweeperTurn(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		a, b := d.open(t), d.open(t)
		for i := range 50 {
			mustCreate(t, a, fmt.Sprintf("k%02d", i), "x")
		}
		first, clock := newTestSweeper(a)
		second, _ := newTestSweeper(b)
		second.now = clock.read
		first.step(t.Context())
		if pause := second.step(t.Context()); second.mine || pause != turnWanted {
			t.Fatal("both have the turn")
		}
		for first.progress.Pass.Phase != PhaseEntries || len(first.progress.Pass.After) == 0 {
			first.step(t.Context())
		}
		first.life = -time.Second // it is about to hang
		clock.advance(first.kept)
		first.step(t.Context())
		was := *first.progress.Pass
		second.step(t.Context())
		if !second.mine {
			t.Fatal("nobody takes over")
		}
		pass := second.progress.Pass
		if pass.Phase != PhaseEntries || pass.Counts.Rows != 50 || pass.Counts.Entries < was.Counts.Entries || !pass.StartedAt.Equal(was.StartedAt) {
			t.Errorf("goes on at %+v, was %+v", *pass, was)
		}
		clock.advance(first.kept)
		if first.step(t.Context()); first.mine {
			t.Error("it was taken over and goes on")
		}
		if counts := second.pass(t, clock); counts.Entries < 50 || counts.Entries > 57 || counts.Rows != 50 {
			t.Errorf("the pass of both: %+v", counts)
		}
		second.letGo(t.Context())
		if first.step(t.Context()); !first.mine || first.progress.Last == nil || first.progress.Pass != nil {
			t.Errorf("after the turn was given back: %v, %+v", first.mine, first.progress)
		}
		for _, o := range []*opened{a, b} {
			if !strings.Contains(o.log.String(), "this gateway sweeps from now on") {
				t.Errorf("not logged: %s", o.log)
			}
		}
	})
}

// TestSweeperDiesBetweenRows: whatever place a pass is left at, the next gateway ends it, having met every row and entry.
func TestSweeperDiesBetweenRows(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size, d.Ranges = 10, []string{"1,3,5", "2,4"}
		o := d.open(t)
		for i := range 50 {
			mustCreate(t, o, fmt.Sprintf("k%02d", i), "x")
		}
		putRow(t, o, 0, 4, testRow(40, "misplaced", "{}")) // a second table of this name
		w, _ := newTestSweeper(o)
		var last *SweepPass
		for range 100 {
			w.step(t.Context())
			w.noted = time.Time{} // so that it notes where it is, does one step more,
			w.step(t.Context())
			if last = w.progress.Last; last != nil {
				break
			}
			w, _ = newTestSweeper(o) // and dies; the next one has the name of the same gateway
		}
		if last == nil {
			t.Fatal("the pass does not end")
		}
		if c := last.Counts; c.Rows < 51 || c.Entries < 50 || c.Misplaced < 1 || c.Strays+c.Doubles+c.Beyond != 0 {
			t.Errorf("counted %+v", c)
		}
	})
}

// flakyIndex fails while it is told to.
type flakyIndex struct {
	index.Index
	down *bool
}

func (f flakyIndex) Find(ctx context.Context, collection string, keys []string) (map[string]int64, error) {
	if *f.down {
		return nil, index.ErrUnavailable
	}
	return f.Index.Find(ctx, collection, keys)
}

func (f flakyIndex) Scan(ctx context.Context, collection, after string, limit int) ([]index.Entry, error) {
	if *f.down {
		return nil, index.ErrUnavailable
	}
	return f.Index.Scan(ctx, collection, after, limit)
}

// TestSweeperWaits: while a database is away the sweeper waits and keeps its place.
func TestSweeperWaits(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		o := d.open(t)
		for i := range 50 {
			mustCreate(t, o, fmt.Sprintf("k%02d", i), "x")
		}
		down := false
		o.index = flakyIndex{o.index, &down}
		w, clock := newTestSweeper(o)
		n := 0
		for w.progress.Last == nil {
			clock.advance(w.step(t.Context()))
			if n++; w.progress.Pass == nil || w.progress.Pass.Phase == PhaseSecond {
				continue
			}
			down = true
			before := *w.progress.Pass
			for range 3 {
				pause := w.step(t.Context())
				p := *w.progress.Pass
				if p.Phase == before.Phase && (p.From != before.From || string(p.After) != string(before.After) || p.Counts != before.Counts) {
					t.Fatalf("it went from %+v to %+v while the index was away", before, p)
				}
				clock.advance(pause)
			}
			if status, err := o.Sweeper(t.Context()); err != nil || status.State != SweeperOff {
				t.Errorf("%+v, %v", status, err) // the store's own
			}
			down = false
		}
		if c := w.progress.Last.Counts; c.Rows != 50 || c.Entries != 50 || n < 14 {
			t.Errorf("after %d steps: %+v", n, c)
		}
		log := o.log.String()
		if !strings.Contains(log, "the sweeper waits for a database") || !strings.Contains(log, "name=index") || !strings.Contains(log, "the sweeper goes on") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestSweeperAfterCrash: what a process that died half way has left behind is gone after a pass (I3, I6).
func TestSweeperAfterCrash(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s := d.open(t)
		mustCreate(t, s, "k", "before")
		s.shut(t)
		if !d.crash(t, "delete", 1) {
			t.Fatal("it did not die")
		}
		o := d.open(t)
		if id := allEntries(t, o)["k"]; id == 0 {
			t.Fatal("nothing was left behind")
		}
		w, clock := newTestSweeper(o)
		if counts := w.pass(t, clock); counts.Dangling != 1 || counts.Removed != 1 || counts.Harmful() != 0 {
			t.Errorf("swept %+v", counts)
		}
		if left := allEntries(t, o); len(left) != 0 {
			t.Errorf("left %v", left)
		}
		d.checkInvariants(t, o)
	})
}

// TestSweeperPatience: an entry that dangles is left alone until it has been seen twice, the grace period apart, and a
// fence that is old only goes then as well.
func TestSweeperPatience(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		o := d.open(t)
		mustCreate(t, o, "whole", "x")
		putEntry(t, o, "k", 900)
		putEntry(t, o, "taken over", 902)
		old := testRow(901, "f", "").asFence()
		old.updatedAt = time.Now().Add(-25 * time.Hour).UTC()
		putRow(t, o, 0, 1, old)
		w, clock := newTestSweeper(o)
		w.how.Store(Sweeping{RowsPerSecond: 1000, Interval: time.Hour}.withDefaults())
		began := clock.read()
		for w.progress.Last == nil {
			pause := w.step(t.Context())
			if waited := clock.read().Sub(began); waited < sweeperGrace && len(allEntries(t, o)) != 3 {
				t.Fatalf("the entry is gone after %s", waited)
			}
			if w.progress.Pass != nil && w.progress.Pass.Phase == PhaseSecond && allEntries(t, o)["taken over"] == 902 {
				mustCreate(t, o, "taken over", "x") // between the two looks
			}
			if pause > w.kept {
				t.Fatalf("the turn is not kept for %s", pause)
			}
			clock.advance(pause)
		}
		if waited := clock.read().Sub(began); waited < sweeperGrace || waited > sweeperGrace+time.Minute {
			t.Errorf("the pass took %s", waited)
		}
		if c := w.progress.Last.Counts; c.Dangling != 1 || c.Removed != 1 || c.Purged != 1 || len(allEntries(t, o)) != 2 {
			t.Errorf("counted %+v", c)
		}
	})
}

// TestSweeperStatus: the sweeper of a store works on its own, can be turned off and on, and says what it does, in the
// metrics as well; another gateway says the same of it.
func TestSweeperStatus(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		a, b := d.open(t), d.open(t)
		mustCreate(t, a, "k", "x")
		wait := func(what string, holds func(mine, others SweeperStatus) bool) {
			t.Helper()
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				mine, err := a.Sweeper(t.Context())
				others, otherErr := b.Sweeper(t.Context())
				if err != nil || otherErr != nil {
					t.Fatal(err, otherErr)
				}
				if holds(mine, others) {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("%s: %+v, %+v", what, mine, others)
				}
			}
		}
		wait("off", func(mine, others SweeperStatus) bool {
			return mine == SweeperStatus{State: SweeperOff} && mine == others
		})
		a.SetSweeping(Sweeping{RowsPerSecond: 1000, Interval: time.Hour})
		wait("a pass", func(mine, others SweeperStatus) bool {
			return mine.State == SweeperActive && mine.Last != nil && mine.Last.Counts.Rows == 1 && mine.Last.FinishedAt != nil &&
				others.State == SweeperOff && others.Holder == mine.Holder && mine.Holder == a.identity.Instance() && others.Last != nil
		})
		b.SetSweeping(Sweeping{RowsPerSecond: 1000, Interval: time.Hour})
		wait("the other stands by", func(mine, others SweeperStatus) bool {
			return others.State == SweeperStandby && others.Holder == mine.Holder
		})
		b.SetSweeping(Sweeping{})
		a.SetSweeping(Sweeping{})
		wait("off again", func(mine, others SweeperStatus) bool {
			return mine.State == SweeperOff && mine.Holder == "" && others.State == SweeperOff && mine.Last != nil
		})
		registry := prometheus.NewRegistry()
		w, clock := newTestSweeper(a)
		w.metrics = newSweeperMetrics(registry, w)
		w.pass(t, clock)
		values := gathered(t, registry)
		for name, want := range map[string]float64{
			"active": 1, "rows_scanned_total": 1, "entries_scanned_total": 1, "passes_total": 1, "strays_total": 0, "dangling_total": 0,
			"dangling_removed_total": 0, "fences_purged_total": 0,
		} {
			if got, ok := values["gateway_sweeper_"+name]; !ok || got != want {
				t.Errorf("%s is %v (%v), want %v", name, got, ok, want)
			}
		}
		if values["gateway_sweeper_last_pass_timestamp_seconds"] < 1e9 {
			t.Errorf("last pass at %v", values["gateway_sweeper_last_pass_timestamp_seconds"])
		}
	})
}

// gathered are the counters and gauges of a registry without labels.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return values
}

// TestSweeperIssuerAway: without the issuer that knows whose turn it is, nobody sweeps, and nobody can say who does.
func TestSweeperIssuerAway(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		o := d.open(t)
		w, _ := newTestSweeper(o)
		if err := o.issuers[0].Close(); err != nil {
			t.Fatal(err)
		}
		if pause := w.step(t.Context()); pause != turnWanted || w.waits != "issuer" {
			t.Errorf("pauses for %s and waits for %q", pause, w.waits)
		}
		if _, err := o.Sweeper(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v, want %v", err, ErrUnavailable)
		}
	})
}

// TestProgress: what another version has noted is forgotten.
func TestProgress(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "{": false, `{"pass":{"phase":"rows","collection":"records"}}`: true, `{"pass":{"phase":"rows","collection":"other"}}`: false,
		`{"pass":{"phase":"dance","collection":"records"}}`: false, `{"pass":{"phase":"second_look"}}`: true,
	} {
		if p := decodeProgress([]byte(text), []string{testCollection}); (p.Pass != nil) != want {
			t.Errorf("%s: %+v", text, p.Pass)
		}
	}
}
