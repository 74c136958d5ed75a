package faults

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// historyUnknowns and historyOperations bound the history of a hot key, because the time for checking one grows
	// with the writes that may or may not have happened. Then another key takes its place.
	historyUnknowns, historyOperations = 5, 1000
	// historyPatience is far above what checking the history of one key takes.
	historyPatience = 2 * time.Minute
)

// history is all that was asked and answered about a key that many clients write. It is safe for concurrent use.
type history struct {
	key string

	mu       sync.Mutex
	replies  []reply
	unknowns int
	last     tag // of the last answer that had one
}

// add takes in a reply and reports whether the history is long enough.
func (h *history) add(r reply) (full bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.found != (tag{}) {
		h.last = r.found
	}
	switch {
	case r.outcome == refused, r.outcome == unknown && r.kind == get:
		return false // it had no effect, and the checker would find out if it had
	case r.outcome == unknown:
		h.unknowns++
	}
	h.replies = append(h.replies, r)
	return h.unknowns >= historyUnknowns || len(h.replies) >= historyOperations
}

// tag is one that the record had a moment ago.
func (h *history) tag() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last.String()
}

// check says whether the key was linearizable.
func (h *history) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	operations := make([]porcupine.Operation, len(h.replies))
	for i, r := range h.replies {
		operations[i] = porcupine.Operation{Input: r.request, Call: int64(r.called), Output: r, Return: int64(r.returned)}
	}
	if verdict := porcupine.CheckOperationsTimeout(record, operations, historyPatience); verdict != porcupine.Ok {
		text := ""
		for _, r := range h.replies {
			text += fmt.Sprintf("\n%12d %12d %-32s %-60s %s %s", r.called.Microseconds(), r.returned.Microseconds(), r.name(), r.document, r.found, r.request.tag)
		}
		return fmt.Errorf("the history of %s (%d operations, %d unknown) is not linearizable: %s%s", h.key, len(h.replies), h.unknowns, verdict, text)
	}
	return nil
}

// register is the record of one key as its clients are promised it to be; the zero value stands for none.
type register struct {
	document string
	// found is its tag; an ID of anyID came from a write without an answer.
	found tag
}

// anyID stands for an ID that is not known yet.
const anyID = math.MaxInt64

// record is the model that histories are checked against.
var record = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, _, output any) (bool, any) { return state.(register).step(output.(reply)) },
}

// step says whether a record in this state may give an answer, and what it is afterwards.
func (s register) step(r reply) (possible bool, next register) {
	exists := s.document != ""
	if r.outcome == unknown {
		return true, s.perhaps(r)
	}
	switch {
	case r.status == http.StatusNotFound:
		return !exists, s
	case r.status == http.StatusConflict:
		s, possible = s.known(r.found)
		return exists && possible, s
	case r.status == http.StatusPreconditionFailed:
		return !exists || s.found.id == anyID || s.found.String() != r.tag, s
	case r.status == http.StatusNoContent:
		return exists && (!r.kind.demands() || s.found.id == anyID || s.found.String() == r.tag), register{}
	case r.kind == get:
		s, possible = s.known(r.found)
		return exists && possible && s.document == r.body, s
	case r.status == http.StatusCreated:
		return !exists && r.found.version == 1 && !r.kind.demands(), register{r.document, r.found}
	}
	// Replaced: the version before is what the record was, and what If-Match demanded.
	before := tag{r.found.id, r.found.version - 1}
	_, possible = s.known(before)
	demanded := !r.kind.demands() || r.tag == before.String()
	return exists && possible && demanded, register{r.document, r.found}
}

// known is the state when its tag is seen.
func (s register) known(found tag) (register, bool) {
	if s.found.id == anyID && s.found.version == found.version {
		s.found.id = found.id
	}
	return s, s.found == found
}

// perhaps is the state after a write without an answer that took effect now, if it could.
func (s register) perhaps(r reply) register {
	exists := s.document != ""
	switch {
	case r.kind.demands() && (!exists || s.found.id != anyID && s.found.String() != r.tag):
		return s
	case r.kind == remove || r.kind == removeIf:
		return register{}
	case exists && r.kind == post:
		return s
	case exists:
		return register{r.document, tag{s.found.id, s.found.version + 1}}
	}
	return register{r.document, tag{anyID, 1}}
}
