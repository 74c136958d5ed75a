package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"keyrange/idsegment"
	"keyrange/rangeshard"
)

// surveyor finds out how full ranges are. It remembers what it has heard, for when a database does not answer the next
// time. It is safe for concurrent use.
type surveyor struct {
	collections []string
	issuers     []*issuer
	now         func() time.Time
	alarms      atomic.Pointer[AlarmLevels]

	mu      sync.Mutex
	lists   [][]idsegment.Issued // by issuer; nil for one that has not answered yet
	ledgers map[string]map[string]usage
	tallies map[idsegment.Name]datedTally
}

// datedTally is a tally with the time that it was made.
type datedTally struct {
	tally
	at time.Time
}

func newSurveyor(collections []string, issuers []*issuer, now func() time.Time, alarms AlarmLevels) *surveyor {
	v := &surveyor{
		collections: collections, issuers: issuers, now: now, lists: make([][]idsegment.Issued, len(issuers)),
		ledgers: map[string]map[string]usage{}, tallies: map[idsegment.Name]datedTally{},
	}
	v.alarms.Store(alarms.withDefaults())
	return v
}

// survey is what one look at the ranges is about.
type survey struct {
	layout *rangeshard.Map
	nodes  []*surveyed // in the order of the map
	// open are the ranges that take new records.
	open map[idsegment.Name]bool
	// exact counts every row, as long as that takes.
	exact bool
	// most is how many range tables are counted; the others keep their tallies.
	most int
	// patience bounds the counting as a whole; 0 is for no bound.
	patience time.Duration
	// progress is told how many IDs of how many an exact survey has looked at; one call at a time.
	progress func(done, of int64)
}

// surveyed is a node in a survey.
type surveyed struct {
	name    string
	drained bool
	ranges  int64 // how many it owns
	rows    rows  // nil when it is left out
}

// newSurvey leaves it to the caller which rows the nodes have, and the rest.
func newSurvey(layout *rangeshard.Map) *survey {
	s := &survey{layout: layout, progress: func(_, _ int64) {}}
	for _, n := range layout.Nodes() {
		s.nodes = append(s.nodes, &surveyed{name: n.Name, drained: n.Drain, ranges: n.Ranges.Count()})
	}
	return s
}

// look runs a survey. ErrUnavailable: no issuer has answered, ever, or ctx ended. What a node does not tell stays what it
// was, or unknown.
func (v *surveyor) look(ctx context.Context, s *survey) (Levels, error) {
	now := v.now()
	issued, complete, err := v.askIssued(ctx)
	if err != nil {
		return Levels{}, err
	}
	used := v.used(s, issued)
	v.askNodes(ctx, s, used, now)
	if err := ctx.Err(); err != nil {
		return Levels{}, fmt.Errorf("survey the ranges: %w: %w", ErrUnavailable, err)
	}
	levels := Levels{At: now.UTC().Truncate(time.Second)}
	for _, collection := range v.collections {
		own := slices.DeleteFunc(slices.Clone(used), func(t usedRange) bool { return t.name.Collection != collection })
		for _, t := range own {
			levels.Ranges = append(levels.Ranges, v.level(s, t, complete))
		}
		levels.Collections = append(levels.Collections, v.outlook(s, collection, own, complete, now))
	}
	return levels, nil
}

// askIssued asks all issuers. For one that does not answer its last word stands: it can only have issued more since.
func (v *surveyor) askIssued(ctx context.Context) (issued issuedRanges, complete bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	lists, err := askIssuers(ctx, v.issuers)
	complete = err == nil
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range lists {
		if lists[i] == nil {
			lists[i] = v.lists[i]
		}
		v.lists[i] = lists[i]
	}
	if issued = mergeIssued(lists); issued == nil {
		return nil, false, fmt.Errorf("survey the ranges: %w: %w", ErrUnavailable, err)
	}
	return issued, complete, nil
}

// used lists the ranges that an issuer knows, or that are known to have records, by collection and number.
func (v *surveyor) used(s *survey, issued issuedRanges) (used []usedRange) {
	v.mu.Lock()
	defer v.mu.Unlock()
	add := func(name idsegment.Name) {
		r, n, ok := s.layout.Range(name.Range)
		if ok && slices.Contains(v.collections, name.Collection) {
			used = append(used, usedRange{name, r.Lo, r.Hi, issued[name], s.nodes[n]})
		}
	}
	for name := range issued {
		add(name)
	}
	for name, known := range v.tallies {
		if _, listed := issued[name]; !listed && known.live > 0 {
			add(name)
		}
	}
	slices.SortFunc(used, func(a, b usedRange) int {
		return cmp.Or(cmp.Compare(a.name.Collection, b.name.Collection), cmp.Compare(a.name.Range, b.name.Range))
	})
	return used
}

// choose picks the ranges to count: those with issued IDs, open ones first, then those with the oldest tally.
func (v *surveyor) choose(s *survey, used []usedRange) []usedRange {
	v.mu.Lock()
	defer v.mu.Unlock()
	chosen := slices.DeleteFunc(slices.Clone(used), func(t usedRange) bool { return t.top <= t.Lo || t.node.rows == nil })
	slices.SortStableFunc(chosen, func(a, b usedRange) int {
		if s.open[a.name] != s.open[b.name] {
			if s.open[a.name] {
				return -1
			}
			return 1
		}
		return v.tallies[a.name].at.Compare(v.tallies[b.name].at)
	})
	return chosen[:min(len(chosen), s.most)]
}

// askNodes reads the ledgers of the nodes with used ranges and counts some of these, on all nodes at once, one range after
// the other on each.
func (v *surveyor) askNodes(ctx context.Context, s *survey, used []usedRange, now time.Time) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.patience > 0 {
		defer time.AfterFunc(s.patience, cancel).Stop()
	}
	chosen := v.choose(s, used)
	done := s.counting(chosen)
	var wg sync.WaitGroup
	for _, n := range s.nodes {
		if n.rows == nil || !slices.ContainsFunc(used, func(r usedRange) bool { return r.node == n }) {
			continue
		}
		wg.Go(func() {
			if recent, err := n.rows.usage(ctx, now.Add(-growthWindow)); err == nil {
				v.mu.Lock()
				v.ledgers[n.name] = recent
				v.mu.Unlock()
			}
			for _, t := range chosen {
				if t.node != n {
					continue
				}
				counted, err := count(ctx, n.rows, tableName(t.name.Collection, t.name.Range), span{t.Lo, t.top}, s.exact, done)
				if err == nil { // the node is down otherwise, or too slow for now
					v.mu.Lock()
					v.tallies[t.name] = datedTally{counted, now}
					v.mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
}

// counting returns a function that takes how many more IDs have been looked at, and makes progress of it.
func (s *survey) counting(chosen []usedRange) func(ids int64) {
	var mu sync.Mutex
	var done, of int64
	for _, t := range chosen {
		of += t.top - t.Lo
	}
	return func(ids int64) {
		mu.Lock()
		defer mu.Unlock()
		done += ids
		s.progress(done, of)
	}
}

// Survey is what Fleet.Levels needs to know.
type Survey struct {
	Collections []string
	Alarms      AlarmLevels
	// Exact counts every record, as long as that takes, and tells Progress how many IDs of how many it has looked at.
	Exact    bool
	Progress func(done, of int64)
	Now      func() time.Time
}

// Levels is Store.Levels for a fleet that no store runs on. It claims nothing and writes nothing. The databases must have
// been verified; a nil one is left out, as if it did not answer.
func (f Fleet) Levels(ctx context.Context, about Survey) (Levels, error) {
	var issuers []*issuer
	for _, i := range f.Issuers {
		one := &issuer{Issuer: i}
		if i != nil {
			one.admit()
		}
		issuers = append(issuers, one)
	}
	s := newSurvey(f.Map)
	s.exact, s.most = about.Exact, int(f.Map.LastRange())*len(about.Collections)
	if about.Progress != nil {
		s.progress = about.Progress
	}
	for i, db := range f.Nodes {
		if db != nil {
			s.nodes[i].rows = rowsOf(db, nil)
		}
	}
	return newSurveyor(about.Collections, issuers, about.Now, about.Alarms).look(ctx, s)
}
