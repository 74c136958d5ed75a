package store

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"keyrange/idsegment"
)

const (
	// sampleEvery is the pause between two looks at the ranges.
	sampleEvery = time.Minute
	// sampleTables bounds how many range tables one look counts.
	sampleTables = 64
	// samplePatience bounds the counting of one look; a slow node keeps its older tallies.
	samplePatience = 10 * time.Second
)

// gauge looks at the ranges again and again.
type gauge struct {
	*surveyor
	// latest is nil before the first look has succeeded.
	latest atomic.Pointer[Levels]
	// sampling lets one look at a time draw conclusions, and guards states.
	sampling sync.Mutex
	states   map[string]string // of collections, as they were logged last
}

// Levels says how full the ranges are, how fast the IDs are used up and how long they last. Rows are estimated, and at
// most 64 range tables looked at, within about 15 s; exact counts all of them, which takes as long as ctx lasts.
// ErrUnavailable: no issuer has answered since the start, or ctx ended.
func (s *Store) Levels(ctx context.Context, exact bool) (Levels, error) {
	now := s.topology.Load()
	about := newSurvey(now.layout)
	about.most, about.patience = sampleTables, samplePatience
	if exact {
		about.exact, about.most, about.patience = true, int(now.layout.LastRange())*len(s.placements), 0
	}
	for i, n := range now.nodes {
		about.nodes[i].rows = n.guarded
	}
	about.open = map[idsegment.Name]bool{}
	for collection, p := range s.placements {
		low, high := p.usable()
		for _, r := range append(low, high...) {
			about.open[idsegment.Name{Collection: collection, Range: r.Number}] = true
		}
	}
	return s.gauge.look(ctx, about)
}

// SetAlarmLevels changes when the gateway warns of full ranges, from the next look on.
func (s *Store) SetAlarmLevels(levels AlarmLevels) { s.gauge.alarms.Store(levels.withDefaults()) }

// watchLevels takes samples until the store closes.
func (s *Store) watchLevels() {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		if err := s.sampleLevels(s.background); err != nil && s.background.Err() == nil {
			s.log.Debug("nobody knows how full the ranges are", "cause", err.Error())
		}
		select {
		case <-ticker.C:
		case <-s.background.Done():
			return
		}
	}
}

// sampleLevels looks at the ranges for the metrics, and logs which collections are in another state than before.
func (s *Store) sampleLevels(ctx context.Context) error {
	g := &s.gauge
	g.sampling.Lock()
	defer g.sampling.Unlock()
	levels, err := s.Levels(ctx, false)
	if err != nil {
		return err
	}
	g.latest.Store(&levels)
	for _, o := range levels.Collections {
		was, is := severity(g.states[o.Collection]), severity(o.State)
		if is < was && !o.Complete {
			continue // an issuer that does not answer may have issued what is missing here
		}
		g.states[o.Collection] = o.State
		if is != was {
			s.reportState(o, is < was)
		}
	}
	return nil
}

// severity orders states; a collection without one is taken for ok.
func severity(state string) int { return max(slices.Index(states, state), 0) }

// reportState logs that a collection has come into a state.
func (s *Store) reportState(o Outlook, better bool) {
	attrs := []any{"collection", o.Collection, "state", o.State, "issued", o.Issued, "left", o.Left}
	if o.PerDay != nil {
		attrs = append(attrs, "per_day", *o.PerDay)
	}
	if o.DaysLeft != nil {
		attrs = append(attrs, "days_left", *o.DaysLeft)
	}
	switch {
	case better:
		s.log.Info("the ranges of a collection have more room", attrs...)
	case o.State == StateWarn:
		s.log.Warn("the ranges of a collection fill up", attrs...)
	case o.State == StateAlarm:
		s.alarm("the ranges of a collection are nearly full: append a node to the config", attrs...)
	default:
		s.alarm("the ranges of a collection are full: append a node to the config", attrs...)
	}
}
