package store

import (
	"time"

	"keyrange/idsegment"
)

// States of a collection, from good to bad.
const (
	StateOK    = "ok"
	StateWarn  = "warn"
	StateAlarm = "alarm"
	// StateFull: no range that may take new records has an ID left.
	StateFull = "full"
)

// states are all of them, in that order.
var states = []string{StateOK, StateWarn, StateAlarm, StateFull}

const (
	// growthWindow is how far growth looks back.
	growthWindow = 24 * time.Hour
	// minGrowthAge is how old a collection must be for its growth to say anything.
	minGrowthAge = 10 * time.Minute
)

// AlarmLevels is how full the ranges of a collection are, as shares of all their IDs above 0 and up to 1, when the gateway
// warns and when it raises an alarm. 0 means 0.75 and 0.9.
type AlarmLevels struct{ Warn, Alarm float64 }

func (a AlarmLevels) withDefaults() *AlarmLevels {
	if a.Warn <= 0 {
		a.Warn = 0.75
	}
	if a.Alarm <= 0 {
		a.Alarm = 0.9
	}
	return &a
}

// state judges a collection by its IDs.
func (a AlarmLevels) state(issued, left int64) string {
	level := float64(issued) / float64(issued+left)
	switch {
	case left <= 0:
		return StateFull
	case level >= a.Alarm:
		return StateAlarm
	case level >= a.Warn:
		return StateWarn
	}
	return StateOK
}

// Level is how full one range of one collection is.
type Level struct {
	Collection string
	// Range is its number, from 1.
	Range int64
	// Node owns the range.
	Node string
	// Lo and Hi bound its IDs: [Lo, Hi).
	Lo, Hi int64
	// Issued is how many of them are leased, used or not. When it is not Complete an issuer does not answer, and more may
	// be.
	Issued   int64
	Complete bool
	// Live is how many records there are, Bytes the size of their keys and documents; both are -1 when unknown. They are
	// estimates unless Exact.
	Live, Bytes int64
	Exact       bool
	// Drained: the node takes no new records.
	Drained bool
	// Open: the range takes new records of the gateway that was asked.
	Open bool
}

// Outlook is how long the ranges of one collection last.
type Outlook struct {
	Collection string
	// Owned is how many IDs there are in all ranges, Issued how many of them are leased, see Level.
	Owned, Issued int64
	// Left is how many are not leased yet, in ranges on nodes that are not drained.
	Left int64
	// PerDay is how many IDs were leased, by all gateways, in the last 24 hours, or per 24 hours when the collection is
	// younger. It is nil when the collection is younger than 10 minutes, or a node has not said.
	PerDay *float64
	// DaysLeft is how long Left lasts at that rate; nil when that is unknown or 0.
	DaysLeft *float64
	// State is one of the states above.
	State string
	// Complete is false when an issuer does not answer.
	Complete bool
}

// Levels is how full the ranges are, at a moment.
type Levels struct {
	At time.Time
	// Ranges are those that a gateway has opened, by collection and number; all others are untouched.
	Ranges []Level
	// Collections are in the order of config.
	Collections []Outlook
}

// level is what is known of a range.
func (v *surveyor) level(s *survey, t usedRange, complete bool) Level {
	l := Level{
		Collection: t.name.Collection, Range: t.name.Range, Node: t.node.name, Lo: t.Lo, Hi: t.Hi, Issued: t.issued,
		Complete: complete, Live: -1, Bytes: -1, Drained: t.node.drained, Open: s.open[t.name],
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.tallies[t.name]; ok {
		l.Live, l.Bytes, l.Exact = known.live, known.bytes, known.exact && complete
	} else if t.issued == 0 && complete {
		l.Live, l.Bytes, l.Exact = 0, 0, true
	}
	return l
}

// outlook adds up the ranges of a collection; those that are not in used are untouched.
func (v *surveyor) outlook(s *survey, collection string, used []usedRange, complete bool, now time.Time) Outlook {
	o := Outlook{Collection: collection, Complete: complete}
	for _, n := range s.nodes {
		ids := n.ranges * s.layout.Size()
		o.Owned += ids
		if !n.drained {
			o.Left += ids
		}
	}
	for _, t := range used {
		o.Issued += t.issued
		if !t.node.drained {
			o.Left -= t.issued
		}
	}
	o.State = v.alarms.Load().state(o.Issued, o.Left)
	o.PerDay = v.growth(used, now)
	if o.PerDay != nil && *o.PerDay > 0 {
		days := float64(o.Left) / *o.PerDay
		o.DaysLeft = &days
	}
	return o
}

// growth is how many IDs of a collection are leased per day; nil when it is unknown. The ledgers tell, so it spans
// restarts and all gateways.
func (v *surveyor) growth(used []usedRange, now time.Time) *float64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	leased, age := int64(0), time.Duration(0)
	for _, t := range used {
		if t.issued == 0 {
			continue
		}
		ledger, ok := v.ledgers[t.node.name]
		if !ok {
			return nil
		}
		recent, ok := ledger[tableName(t.name.Collection, t.name.Range)]
		leased += recent.leased
		if !ok || recent.before {
			age = growthWindow
		} else {
			age = max(age, min(now.Sub(recent.first), growthWindow))
		}
	}
	if age < minGrowthAge {
		return nil
	}
	perDay := float64(leased) / float64(len(v.issuers)) / age.Hours() * 24
	return &perDay
}

// usedRange is a range that a gateway has opened.
type usedRange struct {
	name   idsegment.Name
	Lo, Hi int64
	issuedRange
	node *surveyed
}
