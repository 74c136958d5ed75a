package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"keyrange/index"
)

// simMutant is a known-bad variant of the protocol, made of fakes and alternative operations. The simulation must catch
// each of them, or it proves nothing.
type simMutant string

const (
	// mutantNone is the protocol as it is.
	mutantNone simMutant = ""
	// mutantNoFence takes entries over, and resolves lost replies, without a fence.
	mutantNoFence simMutant = "no fence"
	// mutantBlindResend sends an unanswered row again until an answer comes.
	mutantBlindResend simMutant = "blind resend"
	// mutantIndexFirst deletes the entry before the row.
	mutantIndexFirst simMutant = "index-first delete"
	// mutantEarlyPurge removes fences while a row may still be on its way.
	mutantEarlyPurge simMutant = "early purge"
	// mutantUnconfirmed believes a negative that the key cache led to.
	mutantUnconfirmed simMutant = "unconfirmed 404"
	// mutantClaimed takes a delete that finds nothing when it is sent again for one that came through before.
	mutantClaimed simMutant = "claimed delete"
	// mutantUnburied takes the entry of an expired row over without removing the row.
	mutantUnburied simMutant = "unburied"
	// mutantRevive changes rows without looking whether they have expired.
	mutantRevive simMutant = "revive"
	// mutantHasty takes records for expired a little too early.
	mutantHasty simMutant = "hasty"
	// mutantStale reads rows without looking whether they have expired.
	mutantStale simMutant = "stale"
	// mutantUnlisted inserts rows of groups though the directory did not take the range.
	mutantUnlisted simMutant = "unlisted"
)

// maxSimSteps is far above what a simulation takes; one that gets there does not end (I8).
const maxSimSteps = 20_000

// simWorld is one simulation: everything that happens in it follows from its seed.
type simWorld struct {
	rng    *rand.Rand
	mutant simMutant
	db     *simDatabases

	// What kind of world it is. nodes is 1 or 2; atomic says how a multi-row insert treats duplicates; cached turns the key
	// cache on; faults is the share of calls that go wrong.
	nodes  int
	atomic bool
	cached bool
	faults float64
	// mortal: some records have an expiry.
	mortal bool
	// grouped: the records of each key are in a group of the same name.
	grouped bool
	keys    []string
	// lateWeight and startWeight are how likely an overdue effect lands, and the next operation starts, compared with a
	// waiting call being answered.
	lateWeight, startWeight int
	// impatient: clients may go away before they have an answer.
	impatient bool
	// calm ends all faults, for the look at what is left.
	calm bool

	gateways []*simGateway
	started  int // gateways
	kills    int // that may still happen
	clients  []*simClient
	// operations are all that were called, in order. clock counts calls and returns.
	operations []*simOperation
	clock      int64
	late       []simEffect

	birth   time.Time
	trace   []string
	tracing bool
	stats   simStats
	// violations are what was found wrong, the first being the most telling.
	violations []string

	// arrived says that a call has come to wait, or an operation has ended.
	arrived chan struct{}
	// mu guards what goroutines other than the controller's write.
	mu       sync.Mutex
	parked   []*simCall
	arrivals int
	finished []*simOperation
	leased   map[int64]int64 // by range
	alarms   []string
}

// simEffect is a write that has not landed yet.
type simEffect struct {
	label string
	land  func()
}

// simStats counts what simulations did.
type simStats struct {
	operations, unknown, refused, calls, faults, landed, kills, merged, expired int
}

func (s *simStats) add(o simStats) {
	s.operations += o.operations
	s.unknown += o.unknown
	s.refused += o.refused
	s.calls += o.calls
	s.faults += o.faults
	s.landed += o.landed
	s.kills += o.kills
	s.merged += o.merged
	s.expired += o.expired
}

// String is for the log.
func (s simStats) String() string {
	return fmt.Sprintf("%d operations (%d outcomes unknown, %d refused), %d gateways killed, %d calls to databases (%d went wrong, "+
		"%d landed late, %d carried several requests), %d expired rows removed", s.operations, s.unknown, s.refused, s.kills, s.calls, s.faults,
		s.landed, s.merged, s.expired)
}

// newSimWorld draws a world from a seed. It must be called within a bubble.
func newSimWorld(seed uint64, mutant simMutant, tracing bool) *simWorld {
	w := &simWorld{
		rng: rand.New(rand.NewPCG(seed, 0)), mutant: mutant, birth: time.Now(), tracing: tracing,
		arrived: make(chan struct{}, 1), leased: map[int64]int64{},
	}
	w.db = newSimDatabases(w.violate)
	w.nodes = 1 + w.rng.IntN(2)
	w.atomic = w.rng.IntN(2) == 0
	w.cached = w.rng.IntN(2) == 0 || mutant == mutantUnconfirmed
	w.faults = []float64{0, 0.05, 0.15, 0.3, 0.5}[w.rng.IntN(5)]
	w.keys = []string{"a", "b", "c"}[:1+w.rng.IntN(3)*w.rng.IntN(2)]
	w.lateWeight = []int{1, 4, 16}[w.rng.IntN(3)]
	w.startWeight = []int{2, 8, 32}[w.rng.IntN(3)]
	w.impatient = w.rng.IntN(4) == 0
	w.kills = max(0, w.rng.IntN(5)-2)
	w.mortal = w.rng.IntN(2) == 0
	w.grouped = w.rng.IntN(2) == 0
	w.db.mutant = mutant
	for range 2 {
		g := w.startGateway()
		for range 1 + w.rng.IntN(4) {
			w.clients = append(w.clients, &simClient{number: len(w.clients) + 1, gateway: g, left: 1 + w.rng.IntN(4)})
		}
	}
	w.tracef("%d nodes, atomic inserts %v, cache %v, faults %v, keys %v, %d clients", w.nodes, w.atomic, w.cached, w.faults, w.keys, len(w.clients))
	return w
}

// run plays the simulation to its end and looks at what is left.
func (w *simWorld) run() {
	steps := 0
	for w.settleDown(); w.step(); w.settleDown() {
		if steps++; steps > maxSimSteps {
			w.violate("I8: no end after %d steps", steps)
			break
		}
	}
	if len(w.violations) == 0 {
		w.lookAtTheEnd()
	}
	w.shutDown()
	for _, alarm := range w.alarms {
		w.violate("I1: alarm of %s", alarm)
	}
}

// step lets one thing happen, of all that could; false when nothing is left to do. Only time is not worth waiting for.
func (w *simWorld) step() bool {
	type choice struct {
		weight int
		do     func()
	}
	var choices []choice
	for _, c := range w.waiting() {
		if !c.stalled {
			choices = append(choices, choice{8, func() { w.answer(c) }})
		}
	}
	for _, c := range w.clients {
		if c.current == nil && c.left > 0 {
			choices = append(choices, choice{w.startWeight, func() { w.startNext(c) }})
		}
	}
	running := w.running()
	if len(choices) == 0 && len(running) == 0 {
		return false
	}
	if len(running) > 0 {
		choices = append(choices, choice{4, w.wait})
	}
	for _, op := range running {
		if op.ctx.Err() == nil && w.impatient {
			choices = append(choices, choice{1, func() { w.giveUp(op) }})
		}
	}
	for i := range w.late {
		choices = append(choices, choice{w.lateWeight, func() { w.land(i) }})
	}
	for _, g := range w.gateways {
		if !g.dead && w.kills > 0 && len(running) > 0 {
			choices = append(choices, choice{1, func() { w.replaceGateway(g) }})
		}
		if !g.dead && g.broken() {
			choices = append(choices, choice{2, g.mend})
		}
	}
	for _, id := range w.db.expired() {
		choices = append(choices, choice{1, func() { w.sweepExpired(id) }})
	}
	if w.mutant == mutantEarlyPurge {
		for _, id := range w.db.fences() {
			choices = append(choices, choice{2, func() { w.purge(id) }})
		}
	}
	total := 0
	for _, c := range choices {
		total += c.weight
	}
	at := w.rng.IntN(total)
	for _, c := range choices {
		if at -= c.weight; at < 0 {
			c.do()
			break
		}
	}
	return len(w.violations) == 0
}

// answer decides what becomes of a call.
func (w *simWorld) answer(c *simCall) {
	switch {
	case w.calm || w.rng.Float64() >= w.faults:
		w.release(c, fateDone)
	case w.rng.IntN(4) == 0:
		w.tracef("%s: stalls", c.label)
		c.stalled = true
	case !c.write:
		w.stats.faults++
		w.release(c, fateRefused)
	default:
		w.stats.faults++
		w.release(c, []simFate{fateRefused, fateLost, fateLost, fateLate, fateLate, fateNever}[w.rng.IntN(6)])
	}
}

// fateAtDeadline decides what becomes of a call whose caller has stopped to wait.
func (w *simWorld) fateAtDeadline(c *simCall) simFate {
	if !c.write {
		return fateRefused
	}
	w.stats.faults++
	return []simFate{fateLost, fateLate, fateLate, fateNever}[w.rng.IntN(4)]
}

// itemFate decides what becomes of one of n items that fail one by one, in a batch with a fate.
func (w *simWorld) itemFate(of simFate, n int) simFate {
	switch {
	case n == 1:
		return of
	case of == fateDone && !w.calm && w.rng.Float64() < w.faults/4:
		return fateRefused
	case of == fateLate || of == fateNever:
		return []simFate{fateLost, fateLate, fateNever}[w.rng.IntN(3)]
	}
	return of
}

// later keeps an effect for later.
func (w *simWorld) later(label string, land func()) { w.late = append(w.late, simEffect{label, land}) }

// land lets an effect take place.
func (w *simWorld) land(i int) {
	e := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	w.stats.landed++
	w.tracef("lands: %s", e.label)
	e.land()
}

// wait lets time pass: mostly a little or a poll of a take-over, sometimes its grace, seldom the patience of a lane, the
// pause of a breaker, or more.
func (w *simWorld) wait() {
	long := time.Millisecond
	switch n := w.rng.IntN(40); {
	case n < 20:
		long = takeOverPoll
	case n < 24:
		long = takeOverGrace
	case n < 27:
		long = []time.Duration{patience, breakerPause, 5 * time.Second}[n-24]
	}
	w.advance(long)
}

// giveUp lets the client of an operation go away.
func (w *simWorld) giveUp(op *simOperation) {
	w.tracef("operation %d: the client goes away", op.number)
	op.cancel()
}

// replaceGateway kills a gateway and starts another one for its clients.
func (w *simWorld) replaceGateway(g *simGateway) {
	w.kills--
	w.stats.kills++
	w.kill(g)
	next := w.startGateway()
	for _, c := range w.clients {
		if c.gateway == g {
			c.gateway = next
		}
	}
}

// purge removes a fence, which the real sweeper does only when no write can be on its way any more.
func (w *simWorld) purge(id int64) {
	w.tracef("the fence at %d is purged", id)
	delete(w.db.rows, id)
}

// sweepExpired removes an expired row as the sweeper does: its entry goes later, or never.
func (w *simWorld) sweepExpired(id int64) {
	r := w.db.rows[id]
	w.tracef("the expired row at %d is removed", id)
	w.db.removeRow(id, r.key)
	w.stats.expired++
	if w.rng.IntN(4) > 0 {
		w.later(fmt.Sprintf("sweeper: remove {%s %d}", r.key, id), func() { w.db.removeEntry(index.Entry{Key: r.key, ID: id}) })
	}
}

// shutDown ends all goroutines, which the bubble demands.
func (w *simWorld) shutDown() {
	for _, g := range w.gateways {
		if !g.dead {
			w.kill(g)
		}
		g.store.stop()
	}
	time.Sleep(time.Minute) // above all deadlines
	w.settleDown()
}

func (w *simWorld) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.violations = append(w.violations, text)
	w.tracef("VIOLATION: %s", text)
}

func (w *simWorld) tracef(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%12s  ", time.Since(w.birth))+fmt.Sprintf(format, args...))
	}
}

// operationKey finds the operation in the context of its goroutine.
type operationKey struct{}

// operationOf is the operation that a goroutine works for.
func operationOf(ctx context.Context) *simOperation {
	return ctx.Value(operationKey{}).(*simOperation)
}
