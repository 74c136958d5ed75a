package store

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keyrange/idsegment"
	"keyrange/store/sqldb"
	"keyrange/test/servers"
)

// mustLevels looks at the ranges.
func mustLevels(t *testing.T, s *opened, exact bool) Levels {
	t.Helper()
	levels, err := s.Levels(t.Context(), exact)
	if err != nil {
		t.Fatal(err)
	}
	return levels
}

// surveyAt looks at the ranges of an open store's fleet as a command would, at some time.
func surveyAt(t *testing.T, f Fleet, now time.Time) Levels {
	t.Helper()
	levels, err := f.Levels(t.Context(), Survey{Collections: []string{testCollection}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return levels
}

// stuff gives range 1 so many issued IDs, of which every fourth has a live row, and every fortieth a fence.
func stuff(t *testing.T, s *opened, ids int64) {
	t.Helper()
	mustCreate(t, s, "opens the range", "x")
	segment, err := s.issuers[0].Lease(t.Context(), idsegment.Name{Collection: testCollection, Range: 1}, ids)
	if err != nil {
		t.Fatal(err)
	}
	var batch []row
	for id := segment.Start; id < segment.End; id++ {
		r := row{id: id, key: fmt.Sprintf("key-%06d", id), version: 1, createdAt: time.Now(), updatedAt: time.Now(), Content: Content{Document: []byte(`{"v":"some text"}`)}}
		switch {
		case id%40 == 1:
			batch = append(batch, r.asFence())
		case id%4 == 0:
			batch = append(batch, r)
		}
	}
	for part := range slices.Chunk(batch, 500) {
		for _, err := range s.topology.Load().nodes[0].rows.insert(t.Context(), tableName(testCollection, 1), part) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLevelsEstimate: an estimate is near what a whole count finds, without fences and deleted rows.
func TestLevelsEstimate(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size = 120_000
		s := d.open(t)
		stuff(t, s, 101_000) // more than one chunk
		if err := s.Delete(t.Context(), testCollection, "opens the range", Condition{}); err != nil {
			t.Fatal(err)
		}
		const rows, bytesEach = 25_250, 27
		estimated, exact := mustLevels(t, s, false).Ranges, mustLevels(t, s, true).Ranges
		if len(estimated) != 1 || len(exact) != 1 {
			t.Fatalf("%+v, %+v", estimated, exact)
		}
		if got := exact[0]; got.Live != rows || got.Bytes != rows*bytesEach || !got.Exact {
			t.Errorf("counted %+v", got)
		}
		if got := estimated[0]; math.Abs(float64(got.Live)/rows-1) > 0.01 || math.Abs(float64(got.Bytes)/rows/bytesEach-1) > 0.01 || got.Exact {
			t.Errorf("estimated %+v", got)
		}
		if got := estimated[0]; got.Issued < 101_000 || got.Lo != 1 || got.Hi != 120_001 || got.Node != "node-1" || !got.Open || got.Drained || !got.Complete {
			t.Errorf("%+v", got)
		}
	})
}

// TestLevelsSmall: a small range is counted as a whole, and one that nobody has opened is only in the sum.
func TestLevelsSmall(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s := d.open(t)
		before := mustLevels(t, s, false)
		if len(before.Ranges) != 0 || before.Collections[0] != (Outlook{Collection: testCollection, Owned: 2000, Left: 2000, State: StateOK, Complete: true}) {
			t.Errorf("at first: %+v", before)
		}
		for i := range 100 {
			mustCreate(t, s, fmt.Sprintf("k%02d", i), "x")
		}
		dangling(t, s, "fenced")
		mustCreate(t, s, "fenced", "x")
		if err := s.Delete(t.Context(), testCollection, "k00", Condition{}); err != nil {
			t.Fatal(err)
		}
		levels := mustLevels(t, s, false)
		if len(levels.Ranges) != 1 || levels.Ranges[0].Live != 100 || !levels.Ranges[0].Exact || levels.Ranges[0].Issued < 101 {
			t.Errorf("%+v", levels.Ranges)
		}
		if o := levels.Collections[0]; o.Issued != levels.Ranges[0].Issued || o.Left != 2000-o.Issued || o.PerDay != nil || o.DaysLeft != nil {
			t.Errorf("%+v", o)
		}
	})
}

// TestLevelsGrowth: the ledgers tell how fast IDs are used, whoever used them and however often gateways were restarted.
func TestLevelsGrowth(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.MoreIssuers = []string{d.renew(t).Issuer, d.renew(t).Issuer}
		first, began := d.open(t), time.Now()
		for i := range 60 {
			mustCreate(t, first, fmt.Sprintf("a%d", i), "x")
		}
		first.shut(t)
		s := d.open(t)
		for i := range 60 {
			mustCreate(t, s, fmt.Sprintf("b%d", i), "x")
		}
		s.Close(t.Context()) // hands unused IDs back
		fleet := s.fleet()
		issued := surveyAt(t, fleet, began).Collections[0].Issued
		if issued < 120 || issued > 130 {
			t.Errorf("%d IDs issued", issued)
		}
		check := func(after time.Duration, want float64) {
			t.Helper()
			o := surveyAt(t, fleet, began.Add(after)).Collections[0]
			switch {
			case want < 0 && o.PerDay == nil && o.DaysLeft == nil:
			case want < 0 || o.PerDay == nil || math.Abs(*o.PerDay-want) > 0.02*want:
				t.Errorf("after %s: %s a day, want %.0f", after, shown(o.PerDay), want)
			case want == 0 && o.DaysLeft != nil, want > 0 && math.Abs(*o.DaysLeft - float64(o.Left) / *o.PerDay) > 0.01:
				t.Errorf("after %s: %s days left", after, shown(o.DaysLeft))
			}
		}
		const unknown = -1
		check(9*time.Minute, unknown)
		check(time.Hour, float64(issued)*24)
		check(12*time.Hour, float64(issued)*2)
		check(36*time.Hour, 0)
		// The first two thirds were leased two days ago, so the rest is what the last day used.
		node, err := sqldb.Open(t.Context(), d.Nodes[0], sqldb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		if _, err := node.Exec(t.Context(), "UPDATE gateway_segment SET leased_at = leased_at - 172800 WHERE end_id <= 80"); err != nil {
			t.Fatal(err)
		}
		all, err := rowsOf(fleet.Nodes[0], nil).usage(t.Context(), began.Add(-time.Hour))
		recent := all[tableName(testCollection, 1)]
		if err != nil || !recent.before || recent.leased == 0 {
			t.Fatalf("%+v, %v", all, err)
		}
		check(time.Hour, float64(recent.leased/3))
		fleet.Nodes[0] = nil
		check(time.Hour, unknown)
	})
}

// shown writes a number that may be unknown.
func shown(f *float64) string {
	if f == nil {
		return "unknown"
	}
	return fmt.Sprint(*f)
}

// TestLevelsNothingThere: a table that does not exist is empty, and a database without a ledger has leased nothing.
func TestLevelsNothingThere(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			db, err := sqldb.Open(t.Context(), engine.Fresh(t), sqldb.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			live, size, err := rowsOf(db, nil).tally(t.Context(), "records_r00001", []span{{1, 10}, {20, 30}})
			if live != 0 || size != 0 || err != nil {
				t.Errorf("tally: %d, %d, %v", live, size, err)
			}
			used, err := rowsOf(db, nil).usage(t.Context(), time.Now())
			if len(used) != 0 || err != nil {
				t.Errorf("usage: %v, %v", used, err)
			}
		})
	}
}

// TestLevelsDrained: the IDs of a drained node are not left for new records.
func TestLevelsDrained(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s := d.open(t)
		mustCreate(t, s, "k", "x")
		d.Drains = []bool{true, false}
		if err := s.Extend(t.Context(), d.grown(t, s)); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, s, "l", "x")
		levels := mustLevels(t, s, false)
		if len(levels.Ranges) != 2 || !levels.Ranges[0].Drained || levels.Ranges[0].Open || levels.Ranges[1].Drained || !levels.Ranges[1].Open {
			t.Fatalf("%+v", levels.Ranges)
		}
		if o := levels.Collections[0]; o.Owned != 2000 || o.Left != 1000-levels.Ranges[1].Issued || o.Issued != levels.Ranges[0].Issued+levels.Ranges[1].Issued {
			t.Errorf("%+v", o)
		}
		d.Drains = []bool{true, true}
		if err := s.Extend(t.Context(), d.grown(t, s)); err != nil {
			t.Fatal(err)
		}
		if o := mustLevels(t, s, false).Collections[0]; o.Left != 0 || o.State != StateFull {
			t.Errorf("with all nodes drained: %+v", o)
		}
	})
}

// TestLevelsIssuerAway: what an issuer said last stands while it does not answer, and the numbers say that there may be
// more. A survey that has never heard of it counts without it.
func TestLevelsIssuerAway(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		proxy, through := servers.NewProxyFor(t, d.renew(t).Issuer)
		d.MoreIssuers = []string{through}
		s := d.open(t)
		for i := range 40 {
			mustCreate(t, s, fmt.Sprintf("k%d", i), "x")
		}
		before := mustLevels(t, s, true)
		if got := before.Ranges[0]; got.Live != 40 || !got.Exact || !got.Complete || !before.Collections[0].Complete {
			t.Errorf("%+v", before)
		}
		fleet := s.fleet()
		fleet.Issuers[1] = nil
		without := surveyAt(t, fleet, time.Now())
		if got := without.Ranges[0]; got.Complete || got.Exact || got.Issued >= before.Ranges[0].Issued || without.Collections[0].Complete {
			t.Errorf("without it: %+v", without)
		}
		proxy.Refuse(true)
		after := mustLevels(t, s, true)
		proxy.Refuse(false) // it takes unused IDs back
		if got := after.Ranges[0]; got.Complete || got.Exact || got.Issued != before.Ranges[0].Issued || got.Live != 40 || after.Collections[0].Complete {
			t.Errorf("while it is away: %+v", after)
		}
		fleet.Issuers[0] = nil
		_, err := fleet.Levels(t.Context(), Survey{Collections: []string{testCollection}, Now: time.Now})
		wantError(t, "levels without any issuer", err, ErrUnavailable)
	})
}

// TestLevelsNodeAway: the tally of a node that does not answer stays what it was, and that counting takes too long does
// not make a node count as down.
func TestLevelsNodeAway(t *testing.T) {
	networked(t, func(t *testing.T, d deployment) {
		through, _, toNode := d.proxied(t)
		s := through.open(t)
		for i := range 20 {
			mustCreate(t, s, fmt.Sprintf("k%d", i), "x")
		}
		before := mustLevels(t, s, false)
		n := s.topology.Load().nodes[0]
		toNode.Stall()
		for range breakerFailures + 1 {
			about := newSurvey(s.topology.Load().layout)
			about.nodes[0].rows, about.most, about.patience = n.guarded, sampleTables, 20*time.Millisecond
			stalled, err := s.gauge.look(t.Context(), about)
			if err != nil || stalled.Ranges[0].Live != before.Ranges[0].Live {
				t.Errorf("stalled: %+v, %v", stalled, err)
			}
		}
		if n.down() {
			t.Error("the node counts as down because counting took too long")
		}
		toNode.Resume()
		toNode.Refuse(true)
		refused := mustLevels(t, s, true)
		toNode.Refuse(false) // it takes unused IDs back
		if refused.Ranges[0].Live != before.Ranges[0].Live || refused.Ranges[0].Issued != before.Ranges[0].Issued {
			t.Errorf("refused: %+v, before %+v", refused.Ranges, before.Ranges)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Levels(gone, true)
		wantError(t, "levels for a client that went away", err, ErrUnavailable)
	})
}

// TestLevelsChoice: of many ranges the open ones are counted, then those that were counted longest ago.
func TestLevelsChoice(t *testing.T) {
	v := newSurveyor([]string{"c"}, nil, time.Now, AlarmLevels{})
	s := &survey{open: map[idsegment.Name]bool{}, most: 3}
	on := &surveyed{rows: &sqliteRows{}}
	var used []usedRange
	for i, age := range []int{3, 1, 5, 2, 4, 0, 9, 9} { // minutes; 0 was never counted
		u := usedRange{idsegment.Name{Collection: "c", Range: int64(i)}, 1, 100, issuedRange{issued: 5, top: 6}, on}
		if i == 6 {
			u.top = 0 // nothing was issued
		}
		if i == 7 {
			u.node = &surveyed{} // away
		}
		if age > 0 {
			v.tallies[u.name] = datedTally{at: time.Now().Add(-time.Duration(age) * time.Minute)}
		}
		used = append(used, u)
	}
	s.open[used[1].name] = true
	var got []int64
	for _, u := range v.choose(s, used) {
		got = append(got, u.name.Range)
	}
	if want := []int64{1, 5, 2}; !slices.Equal(got, want) {
		t.Errorf("chose %v, want %v", got, want)
	}
}

// TestLevelsAlarm: a collection that fills up is logged once for each state, and so is new room.
func TestLevelsAlarm(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size = 50
		s := d.open(t)
		sample := func(times int) {
			for range times {
				if err := s.sampleLevels(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range 30 {
			mustCreate(t, s, fmt.Sprintf("k%d", i), "x")
		}
		sample(2)
		s.SetAlarmLevels(AlarmLevels{Warn: 0.2})
		sample(3)
		s.SetAlarmLevels(AlarmLevels{Warn: 0.2, Alarm: 0.25})
		sample(2)
		s.SetAlarmLevels(AlarmLevels{})
		sample(2)
		for i := range 70 {
			mustCreate(t, s, fmt.Sprintf("l%d", i), "x")
		}
		sample(2)
		if got := mustLevels(t, s, false).Collections[0]; got.State != StateFull || got.Issued != 100 {
			t.Errorf("%+v", got)
		}
		s.shut(t) // nobody writes to the log any more
		var got []string
		for line := range strings.Lines(s.log.String()) {
			if _, after, ok := strings.Cut(line, "level="); ok && strings.Contains(line, "the ranges of a collection") {
				level, _, _ := strings.Cut(after, " ")
				_, state, _ := strings.Cut(line, "state=")
				state, _, _ = strings.Cut(state, " ")
				if alarm := strings.Contains(line, "alarm=true"); alarm != (level == slog.LevelError.String()) {
					t.Errorf("alarm %v: %s", alarm, line)
				}
				got = append(got, level+" "+state)
			}
		}
		if want := []string{"WARN warn", "ERROR alarm", "INFO ok", "ERROR full"}; !slices.Equal(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
	})
}

// TestLevelsIncompleteIsNoRelief: that fewer IDs seem to be issued, because an issuer does not answer, is no good news.
func TestLevelsIncompleteIsNoRelief(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		d.Size, d.MoreIssuers = 20, []string{d.renew(t).Issuer}
		full := d.open(t)
		for i := range 36 {
			mustCreate(t, full, fmt.Sprintf("k%d", i), "x")
		}
		full.shut(t)
		s := d.open(t)
		if err := s.sampleLevels(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.gauge.sampling.Lock()
		s.gauge.mu.Lock()
		s.gauge.lists[1] = nil // as if it had never answered
		s.gauge.mu.Unlock()
		s.gauge.sampling.Unlock()
		s.issuers[1].admitted.Store(false)
		if err := s.sampleLevels(t.Context()); err != nil {
			t.Fatal(err)
		}
		if o := s.gauge.latest.Load().Collections[0]; o.Complete || o.State != StateOK {
			t.Errorf("%+v", o)
		}
		s.shut(t)
		if log := s.log.String(); strings.Contains(log, "more room") || strings.Count(log, "nearly full") != 1 {
			t.Errorf("logged %s", log)
		}
	})
}

// TestLevelsMetrics: the latest look is shown, without what is unknown.
func TestLevelsMetrics(t *testing.T) {
	var g gauge
	registry := prometheus.NewRegistry()
	registry.MustRegister(levelsCollector{&g.latest})
	gather := func() (lines []string) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				line := strings.TrimPrefix(f.GetName(), "gateway_store_")
				for _, l := range m.GetLabel() {
					line += " " + l.GetValue()
				}
				lines = append(lines, fmt.Sprint(line, " = ", m.GetGauge().GetValue()))
			}
		}
		return lines
	}
	if got := gather(); len(got) > 0 {
		t.Errorf("before the first look: %q", got)
	}
	perDay, days := 5.0, 1.2
	g.latest.Store(&Levels{
		Ranges: []Level{
			{Collection: "c", Range: 1, Lo: 1, Hi: 11, Node: "node-1", Issued: 10, Live: 7, Bytes: 700},
			{Collection: "c", Range: 2, Lo: 11, Hi: 21, Node: "node-2", Issued: 4, Live: -1, Bytes: -1},
		},
		Collections: []Outlook{
			{Collection: "c", Owned: 20, Issued: 14, Left: 6, PerDay: &perDay, DaysLeft: &days, State: StateWarn},
			{Collection: "d", Owned: 20, Left: 20, State: StateOK},
		},
	})
	want := []string{
		"collection_days_left c = 1.2", "collection_growth_ids_per_day c = 5", "collection_issued_ids c = 14", "collection_issued_ids d = 0",
		"collection_left_ids c = 6", "collection_left_ids d = 20", "collection_level_state c = 1", "collection_level_state d = 0",
		"collection_owned_ids c = 20", "collection_owned_ids d = 20",
		"range_bytes c node-1 1 = 700", "range_issued_ids c node-1 1 = 10", "range_issued_ids c node-2 2 = 4", "range_live_rows c node-1 1 = 7",
		"range_owned_ids c node-1 1 = 10", "range_owned_ids c node-2 2 = 10",
	}
	if got := gather(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
