package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// lookAtTheEnd lets everything land that is still on its way, and then asks for every key, without any faults: through
// the gateways that are left, with what they remember, and through one that knows nothing.
func (w *simWorld) lookAtTheEnd() {
	w.calm = true
	w.tracef("the end: all is quiet")
	for len(w.waiting()) > 0 && len(w.violations) == 0 {
		w.advance(time.Minute) // calls that stall and that nobody waits for: their end may open a circuit
	}
	for len(w.late) > 0 && len(w.violations) == 0 {
		w.land(w.rng.IntN(len(w.late)))
	}
	w.startGateway()
	for _, g := range w.gateways {
		for !g.dead && g.broken() {
			w.advance(2 * breakerPause)
			g.mend()
		}
	}
	w.tracef("%s", w.db)
	for _, key := range w.keys {
		for _, g := range w.gateways {
			if !g.dead {
				w.ask(g, simGet, key)
			}
		}
		last := w.gateways[len(w.gateways)-1]
		w.ask(last, simPut, key) // whatever is left of others heals
		w.ask(last, simGet, key)
	}
	for _, op := range w.operations {
		w.checkEffects(op)
	}
}

// ask runs an operation when all is calm, so it must succeed or find nothing.
func (w *simWorld) ask(g *simGateway, kind simKind, key string) {
	op := &simOperation{client: &simClient{gateway: g}, kind: kind, key: key, timeout: time.Minute}
	w.start(op)
	for w.settleDown(); op.returned == 0; w.settleDown() {
		if calls := w.waiting(); len(calls) > 0 {
			w.answer(calls[0])
		} else {
			w.advance(takeOverPoll)
		}
	}
	if err := op.result.err; err != nil && (kind == simPut || !errors.Is(err, ErrNotFound)) {
		w.violate("I3: %s fails after all is quiet: %s", op, err.Error())
	}
}

// checkEffects compares what an operation wrote with what its client was told (I6).
func (w *simWorld) checkEffects(op *simOperation) {
	wrote := w.db.written[op.document]
	outcome := outcomeOf(op.result.err)
	switch {
	case outcome == outcomeNone, outcome == outcomeUnknown && op.kind == simGet && !op.killed,
		outcome == outcomePrecondition && !op.cond.demanded(), outcome == outcomeConflict && op.kind != simCreate:
		w.violate("%s answers %v", op, op.result.err)
	case op.document == "":
	case len(wrote) > 1:
		w.violate("I2: %s took effect as %v", op, wrote)
	case outcome == outcomeOK && !slices.Equal(wrote, []Tag{op.result.record.Tag}):
		w.violate("I6: %s answers %s and wrote %v", op, op.result, wrote)
	case outcome != outcomeOK && outcome != outcomeUnknown && len(wrote) > 0:
		w.violate("I6: %s was refused, %s, and wrote %v", op, op.result, wrote)
	}
	if op.kind == simGet && outcome == outcomeOK && (op.result.record.Key != op.key || !strings.HasPrefix(string(op.result.record.Document), op.key+"#")) {
		w.violate("I4: %s answers %s", op, op.result)
	}
}

// simState is what a key holds: a document under a tag, or nothing. Once the moment of its expiry has come, it is nothing;
// an operation that was under way at that moment may have met either.
type simState struct {
	document string
	tag      Tag
	// expires is in nanoseconds since 1970; 0 for never.
	expires int64
}

func (s simState) exists() bool { return s.tag != Tag{} }

// satisfies reports whether a condition holds.
func (s simState) satisfies(c Condition) bool {
	return !c.demanded() || s.exists() && (c.Exists || slices.Contains(c.Tags, s.tag))
}

// simAnswer is the outcome of an operation, and the version that it wrote, found or met.
type simAnswer struct {
	outcome  simOutcome
	document string
	tag      Tag
	// until is the latest moment at which the operation may have taken effect, as simState.expires.
	until int64
}

// simRegister is one key as its clients are promised it to be: a register that holds a document and its tag, or nothing.
var simRegister = porcupine.Model{
	Init: func() any { return simState{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(simState).step(input.(*simOperation), output.(simAnswer))
	},
}

// step says whether a key in this state may answer an operation so, and what it holds afterwards, given that its record
// may expire before.
func (s simState) step(op *simOperation, a simAnswer) (possible bool, next simState) {
	if s.expires == 0 || op.began.UnixNano() < s.expires {
		possible, next = s.answer(op, a)
	}
	if !possible && s.expires != 0 && a.until >= s.expires {
		return simState{}.answer(op, a)
	}
	return possible, next
}

// answer is step for a record that does not expire before.
func (s simState) answer(op *simOperation, a simAnswer) (possible bool, next simState) {
	switch a.outcome {
	case outcomeNotFound:
		return !s.exists(), s
	case outcomeConflict:
		return s.tag == a.tag, s
	case outcomePrecondition:
		return !s.satisfies(op.cond), s
	}
	switch op.kind {
	case simGet:
		return s.document == a.document && s.tag == a.tag, s
	case simDelete:
		if s.exists() && s.satisfies(op.cond) {
			return true, simState{}
		}
		return a.outcome == outcomeUnknown, s // it came too late to change anything
	}
	next = simState{document: op.document, tag: a.tag}
	if !op.expires.IsZero() {
		next.expires = op.expires.UnixNano()
	}
	if a.tag.Version == 1 {
		return !s.exists() && !op.cond.demanded(), next
	}
	return op.kind == simPut && s.tag == Tag{a.tag.ID, a.tag.Version - 1} && s.satisfies(op.cond), next
}

// history is what clients of a key were told. An operation that ended without a certain answer may take effect at any
// time after its call. What a write without an answer wrote is known from the databases, and one that wrote nothing is
// left out, as are refusals.
func (w *simWorld) history(key string) []porcupine.Operation {
	var all []porcupine.Operation
	for _, op := range w.operations {
		a := simAnswer{outcome: outcomeOf(op.result.err), document: string(op.result.record.Document), tag: op.result.record.Tag}
		returned := op.returned
		a.until = op.ended.UnixNano()
		var conflict *ConflictError
		switch {
		case op.key != key, a.outcome == outcomeRefused:
			continue
		case errors.As(op.result.err, &conflict):
			a.tag = conflict.Existing
		case a.outcome == outcomeUnknown && op.kind == simGet:
			continue
		case a.outcome == outcomeUnknown:
			returned, a.until = math.MaxInt64, math.MaxInt64
			if wrote := w.db.written[op.document]; op.kind != simDelete && len(wrote) == 0 {
				continue
			} else if op.kind != simDelete {
				a.tag = wrote[0]
			}
		}
		all = append(all, porcupine.Operation{ClientId: op.client.number, Input: op, Call: op.called, Output: a, Return: returned})
	}
	return all
}

// simPatience is far above what the history of one key takes to check.
const simPatience = time.Minute

// checkHistories checks that each key was linearizable. It must run outside the bubble, whose clock it does not need.
func (w *simWorld) checkHistories() {
	for _, key := range w.keys {
		if verdict := porcupine.CheckOperationsTimeout(simRegister, w.history(key), simPatience); verdict != porcupine.Ok {
			w.violations = append(w.violations, fmt.Sprintf("the history of %s is not linearizable (%s)", key, verdict))
		}
	}
}
