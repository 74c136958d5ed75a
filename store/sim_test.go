package store

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The simulation runs stores, made by hand, on databases that are made of maps. Every call to one of those waits until a
// controller lets it go; a random number generator with a known seed decides which goes next and what becomes of it: it
// succeeds, is refused, loses its reply, takes effect long after, or never. Time is faked and passes when the controller
// says so. Thus each run is one interleaving of two gateways, their clients, crashes and lost replies, and a seed plays
// the same one again.
//
// What clients are told is checked to be linearizable, key by key, where a record with an expiry is to be there until then
// and not after; and the databases after each change and at the end: a row lives at most once (I2), a live row's entry
// points at it and it can be read (I3), a key has one live row (I4), a refusal changed nothing (I6), every operation ends in
// time (I8), no alarm is raised (I1), and a row of a group is in a range that the directory lists for it.

const (
	// simSeeds is how many seeds are played by default, SIM_SEEDS another number.
	simSeeds = 2000
	// simTime bounds the default run where a race detector, or a slow machine, makes it take too long.
	simTime = 30 * time.Second
	// simForever is for those who named the number of seeds.
	simForever = time.Duration(math.MaxInt64)
)

// simulate plays one seed. With tracing it writes down every step, which takes time.
func simulate(t *testing.T, seed uint64, mutant simMutant, tracing bool) *simWorld {
	var w *simWorld
	synctest.Test(t, func(*testing.T) {
		w = newSimWorld(seed, mutant, tracing)
		w.run()
	})
	if len(w.violations) == 0 {
		w.checkHistories()
	}
	return w
}

// replay plays a seed that broke something again and tells it as a story.
func replay(t *testing.T, seed uint64) string {
	w := simulate(t, seed, mutantNone, true)
	if len(w.violations) == 0 {
		w.violations = []string{"it did not happen again: something in the simulation does not follow from the seed"}
	}
	return fmt.Sprintf("seed %d: %s\nreplay with: SIM_SEED=%d go test -v -run '^TestSimulation$' ./store\n%s",
		seed, strings.Join(w.violations, "\n\t"), seed, strings.Join(w.trace, "\n"))
}

// playSeeds plays seeds from 1 on, on all processors, until one breaks something or the time is over. It returns how many it
// played, what they did, and the lowest of them that broke something, or 0.
func playSeeds(t *testing.T, mutant simMutant, seeds uint64, limit time.Duration) (played uint64, sum simStats, broken uint64) {
	var next atomic.Uint64
	var mu sync.Mutex
	begin := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1); seed <= seeds && time.Since(begin) < limit; seed = next.Add(1) {
					w := simulate(t, seed, mutant, false)
					mu.Lock()
					played++
					sum.add(w.stats)
					if len(w.violations) > 0 && (broken == 0 || seed < broken) {
						broken = seed
					}
					stop := broken > 0
					mu.Unlock()
					if stop {
						return
					}
				}
			})
		}
	})
	return played, sum, broken
}

// TestSimulation plays many seeds, or the one that SIM_SEED names, with its trace.
func TestSimulation(t *testing.T) {
	if one, err := strconv.ParseUint(os.Getenv("SIM_SEED"), 10, 64); err == nil {
		w := simulate(t, one, mutantNone, true)
		t.Logf("seed %d:\n%s", one, strings.Join(w.trace, "\n"))
		for _, v := range w.violations {
			t.Error(v)
		}
		return
	}
	seeds, limit := uint64(simSeeds), simTime
	if n, err := strconv.ParseUint(os.Getenv("SIM_SEEDS"), 10, 64); err == nil {
		seeds, limit = n, simForever
	}
	begin := time.Now()
	played, sum, broken := playSeeds(t, mutantNone, seeds, limit)
	t.Logf("%d of %d seeds in %s: %s", played, seeds, time.Since(begin).Round(time.Millisecond), sum)
	if broken > 0 {
		t.Error(replay(t, broken))
	}
}

// TestSimulationReplays: a seed plays the same story each time, or a failure could not be looked into.
func TestSimulationReplays(t *testing.T) {
	for seed := range uint64(200) {
		a, b := simulate(t, seed, mutantNone, true), simulate(t, seed, mutantNone, true)
		if !slices.Equal(a.trace, b.trace) {
			for i := range min(len(a.trace), len(b.trace)) {
				if a.trace[i] != b.trace[i] {
					t.Fatalf("seed %d: step %d is %q, then %q, after\n%s", seed, i, a.trace[i], b.trace[i], strings.Join(a.trace[max(0, i-20):i], "\n"))
				}
			}
			t.Fatalf("seed %d: one trace is longer", seed)
		}
	}
}

// TestSimulationCatches breaks the protocol in ways that are known to be wrong: each must show.
func TestSimulationCatches(t *testing.T) {
	mutants := []simMutant{
		mutantNoFence, mutantBlindResend, mutantIndexFirst, mutantEarlyPurge, mutantUnconfirmed, mutantClaimed,
		mutantUnburied, mutantRevive, mutantHasty, mutantStale, mutantUnlisted,
	}
	for _, mutant := range mutants {
		t.Run(strings.ReplaceAll(string(mutant), " ", "_"), func(t *testing.T) {
			played, _, broken := playSeeds(t, mutant, simSeeds, simForever)
			if broken == 0 {
				t.Fatalf("not caught in %d seeds", played)
			}
			t.Logf("caught by seed %d: %s", broken, simulate(t, broken, mutant, false).violations[0])
		})
	}
}
