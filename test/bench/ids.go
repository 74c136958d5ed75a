package main

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"keyrange/idsegment"
)

// idCost is the price of an ID.
type idCost struct {
	Goroutines int `json:"goroutines"`
	// Nanoseconds per ID, over the rounds: the time of all goroutines together, divided by all IDs.
	Nanoseconds spread `json:"ns_per_id"`
	// Counter is the same for a bare counter that as many goroutines share: what no sequence can be below.
	Counter spread `json:"ns_per_atomic_add"`
}

const (
	// idsPerRound takes some tens of milliseconds.
	idsPerRound = 4_000_000
	idRounds    = 7
)

// memoryLeaser is an issuer without a database, so that only the handing out is measured.
type memoryLeaser struct {
	mu   sync.Mutex
	next int64
}

// Lease implements idsegment.Leaser.
func (m *memoryLeaser) Lease(_ context.Context, _ idsegment.Name, count int64) (idsegment.Segment, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next += count
	return idsegment.Segment{Start: m.next - count, End: m.next}, nil
}

// Return implements idsegment.Leaser.
func (m *memoryLeaser) Return(context.Context, idsegment.Name, idsegment.Segment) (bool, error) {
	return false, nil
}

// measureIDs issues IDs from one sequence with one goroutine and with many.
func measureIDs(ctx context.Context) ([]idCost, error) {
	var costs []idCost
	for _, goroutines := range []int{1, 64} {
		var rounds, bare []float64
		for range idRounds {
			took, err := issue(ctx, goroutines)
			if err != nil {
				return nil, err
			}
			rounds = append(rounds, float64(took.Nanoseconds())/idsPerRound)
			bare = append(bare, float64(count(goroutines).Nanoseconds())/idsPerRound)
		}
		costs = append(costs, idCost{goroutines, spreadOf(rounds), spreadOf(bare)})
	}
	return costs, nil
}

// count adds to one counter as often as issue takes IDs.
func count(goroutines int) time.Duration {
	var counter atomic.Int64
	var wg sync.WaitGroup
	started := time.Now()
	for range goroutines {
		wg.Go(func() {
			for range idsPerRound / goroutines {
				counter.Add(1)
			}
		})
	}
	wg.Wait()
	return time.Since(started)
}

// issue takes idsPerRound IDs from a new sequence and returns how long that took.
func issue(ctx context.Context, goroutines int) (time.Duration, error) {
	name := idsegment.Name{Collection: "records", Range: 1}
	sequence := idsegment.NewSequence(&memoryLeaser{next: 1}, name, idsegment.Bounds{Lo: 1, Hi: math.MaxInt64}, 1, idsegment.Options{})
	errs := make(chan error, goroutines)
	started := time.Now()
	for range goroutines {
		go func() {
			for range idsPerRound / goroutines {
				if _, err := sequence.Next(ctx); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range goroutines {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	took := time.Since(started)
	return took, sequence.Close(ctx)
}
