package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"keyrange/idsegment"
)

// Phases of a pass. It goes through the rows and then the entries of each collection, and ends with the second look.
const (
	PhaseRows    = "rows"
	PhaseEntries = "entries"
	PhaseSecond  = "second_look"
)

// SweepPass is one pass over everything that is stored. Its JSON is what the gateway that sweeps leaves to its successor,
// and holds a key in After; what people see is made of it elsewhere.
type SweepPass struct {
	StartedAt time.Time `json:"started_at"`
	// FinishedAt is nil while the pass goes on.
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	// Phase is one of those above; "" when the pass has ended.
	Phase string `json:"phase,omitempty"`
	// Collection is empty during the second look.
	Collection string `json:"collection,omitempty"`
	// Range, Node and From are the range table that is looked at, and the ID to go on from.
	Range int64  `json:"range,omitempty"`
	Node  string `json:"node,omitempty"`
	From  int64  `json:"from,omitempty"`
	// After is the key to go on after among the entries. Never show it.
	After []byte `json:"after,omitempty"`
	// Fraction is how much of the rows of the collection has been looked at, 0 to 1; nil in the other phases.
	Fraction *float64 `json:"fraction,omitempty"`
	// Counts are what was found so far.
	Counts SweepCounts `json:"counts"`
}

// sweepProgress is how far the sweeper has come: the pass under way, nil between passes, and the last one that has ended.
type sweepProgress struct {
	Pass *SweepPass `json:"pass,omitempty"`
	Last *SweepPass `json:"last,omitempty"`
}

// encode is the form in which the progress is noted.
func (p sweepProgress) encode() []byte {
	text, err := json.Marshal(p)
	if err != nil {
		return nil // numbers and strings; to lose it costs another pass
	}
	return text
}

// decodeProgress reads what was noted. What makes no sense here, because another version or another config wrote it, is
// forgotten, and a new pass begins.
func decodeProgress(text []byte, collections []string) (p sweepProgress) {
	if err := json.Unmarshal(text, &p); err != nil {
		return sweepProgress{}
	}
	if p.Pass == nil {
		return p
	}
	switch p.Pass.Phase {
	case PhaseRows, PhaseEntries:
		if !slices.Contains(collections, p.Pass.Collection) {
			p.Pass = nil
		}
	case PhaseSecond:
	default:
		p.Pass = nil
	}
	return p
}

// States of the sweeper of a gateway.
const (
	// SweeperActive: this gateway has the turn.
	SweeperActive = "active"
	// SweeperStandby: another one has it, or this one does not get it.
	SweeperStandby = "standby"
	// SweeperOff: it is turned off here.
	SweeperOff = "off"
)

// SweeperStatus is what the sweeper of the fleet does.
type SweeperStatus struct {
	// State is that of this gateway.
	State string
	// Holder is the instance name of the gateway that has the turn; "" for none.
	Holder string
	// WaitsFor is the database that this gateway's sweeper waits for, a node's name, "index" or "issuer"; "" for none.
	WaitsFor string
	// Pass is the one under way, Last the one that has ended last; nil for none. Of another gateway they are up to 15 s old.
	Pass, Last *SweepPass
}

// Sweeper says what the sweeper does. ErrUnavailable: another gateway may have the turn, and the issuer that knows does not
// answer.
func (s *Store) Sweeper(ctx context.Context) (SweeperStatus, error) {
	w := s.sweeper
	if status, mine := w.own(); mine {
		return status, nil
	}
	status := SweeperStatus{State: SweeperStandby}
	if w.how.Load().RowsPerSecond == 0 {
		status.State = SweeperOff
	}
	w.status.Lock()
	status.WaitsFor = w.waits
	w.status.Unlock()
	turns := s.issuers[0]
	err := turns.barred()
	var turn idsegment.Turn
	if err == nil {
		turn, err = turns.LookTurn(ctx)
	}
	if err != nil {
		return status, fmt.Errorf("look whose turn it is to sweep: %w: %s", ErrUnavailable, err.Error())
	}
	if turn.Left > 0 {
		status.Holder = turn.Holder
	}
	p := decodeProgress(turn.Progress, w.collections)
	status.Pass, status.Last = p.Pass, p.Last
	return status, nil
}

// own is the status of a sweeper that has the turn.
func (w *sweeper) own() (status SweeperStatus, mine bool) {
	w.status.Lock()
	defer w.status.Unlock()
	status = SweeperStatus{State: SweeperActive, Holder: w.identity.Instance(), WaitsFor: w.waits}
	if p := w.progress.Pass; p != nil {
		pass := *p
		status.Pass = &pass
	}
	status.Last = w.progress.Last // never changed, only replaced
	return status, w.mine
}

// change changes the progress.
func (w *sweeper) change(change func(p *sweepProgress)) {
	w.status.Lock()
	defer w.status.Unlock()
	change(&w.progress)
}

// note counts what a step has found, tells of it, and remembers what is to be looked at again, as far as there is room.
func (w *sweeper) note(found swept) {
	w.change(func(p *sweepProgress) { p.Pass.Counts.add(found) })
	w.metrics.add(found)
	w.doubtful = append(w.doubtful, found.doubtful[:min(len(found.doubtful), maxDoubts-len(w.doubtful))]...)
	for _, d := range found.damage {
		w.tell(d)
	}
}

// tell logs damage, unless there is so much of it that the sum at the end of the pass has to do.
func (w *sweeper) tell(d Damage) {
	if w.alarms[d.Kind]++; w.alarms[d.Kind] > maxAlarms {
		return
	}
	attrs := []any{"collection", d.Collection, "id", d.ID, "table", d.Table, "node", d.Node}
	switch d.Kind {
	case Dangling:
		w.store.log.Debug("an entry that dangled was removed", attrs...)
	case Stray:
		w.store.alarm("a record had no entry and could not be read", append(attrs, "entry_id", d.Entry, "repaired", d.Repaired)...)
	case Double:
		w.store.alarm("a key has two records", append(attrs, "entry_id", d.Entry)...)
	case Misplaced:
		w.store.alarm("a row is not where its ID belongs", attrs...)
	case Unlisted:
		w.store.alarm("a range was not listed for a group, and its records there were missing from lists", append(attrs, "repaired", d.Repaired)...)
	case Beyond:
		w.store.log.Warn("an entry points at no range table of this config", attrs...)
	}
}
