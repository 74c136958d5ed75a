package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
)

// phase is what one load on one side gave.
type phase struct {
	// completed requests, of which failed had an error; inTime were completed before the phase was to end.
	completed, failed, inTime int64
	duration                  time.Duration
	// latencies of all requests, sorted.
	latencies []time.Duration
	// err is one of the errors.
	err error
}

// rate is the throughput in requests per second.
func (p *phase) rate() float64 { return float64(p.inTime) / p.duration.Seconds() }

// maxFailedShare is the share of failed requests above which a phase says nothing.
const maxFailedShare = 0.01

// check makes an error of a phase that failed too often.
func (p *phase) check() error {
	if float64(p.failed) > maxFailedShare*float64(p.completed) {
		return fmt.Errorf("%d of %d requests failed, for instance: %w", p.failed, p.completed, p.err)
	}
	return nil
}

// percentile is the latency that the share q of all requests does not exceed (nearest rank); 0 without requests.
func (p *phase) percentile(q float64) time.Duration { return percentile(p.latencies, q) }

func percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// merge adds the requests of another phase of the same kind.
func (p *phase) merge(other *phase) {
	p.completed += other.completed
	p.failed += other.failed
	p.inTime += other.inTime
	p.duration += other.duration
	p.latencies = append(p.latencies, other.latencies...)
	slices.Sort(p.latencies)
	if p.err == nil {
		p.err = other.err
	}
}

// gather runs one goroutine per worker and merges what each of them saw.
func gather(workers []*worker, duration time.Duration, work func(k *worker, own *phase)) *phase {
	own := make([]phase, len(workers))
	var wg sync.WaitGroup
	for i, k := range workers {
		wg.Go(func() { work(k, &own[i]) })
	}
	wg.Wait()
	all := &phase{duration: duration}
	for i := range own {
		all.completed += own[i].completed
		all.failed += own[i].failed
		all.inTime += own[i].inTime
		all.latencies = append(all.latencies, own[i].latencies...)
		if all.err == nil {
			all.err = own[i].err
		}
	}
	slices.Sort(all.latencies)
	return all
}

// record notes one request that was due at a time and has been answered.
func (p *phase) record(due, end time.Time, err error) {
	now := time.Now()
	p.completed++
	p.latencies = append(p.latencies, now.Sub(due))
	if err != nil {
		p.failed++
		p.err = err
	} else if !now.After(end) {
		p.inTime++
	}
}

// closedLoad has each worker send its next request as soon as the one before is answered.
func closedLoad(ctx context.Context, workers []*worker, duration time.Duration) (*phase, error) {
	end := time.Now().Add(duration)
	all := gather(workers, duration, func(k *worker, own *phase) {
		for started := time.Now(); started.Before(end) && ctx.Err() == nil; started = time.Now() {
			own.record(started, end, k.request(ctx))
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return all, all.check()
}

// openLoad sends requests at a fixed rate per second, whether or not those before have been answered: the workers take
// them in turn, and what waits for a free worker waits on the clock of its own latency. A side that falls hopelessly
// behind is let off: the requests that are left are not sent, and count with the time that they have waited.
func openLoad(ctx context.Context, workers []*worker, rate float64, duration time.Duration) (*phase, error) {
	count := max(1, int(rate*duration.Seconds()))
	arrivals := make(chan time.Time, count) // holds all, so that the schedule never waits
	start := time.Now()
	end, hopeless := start.Add(duration), start.Add(patienceFactor*duration)
	go func() {
		// A thread of its own sleeps in the kernel, within 0.1 ms; Go's timers are up to 1 ms late.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(arrivals)
		for i := range count {
			due := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
			if ctx.Err() == nil {
				pause(time.Until(due))
			}
			arrivals <- due
		}
	}()
	all := gather(workers, duration, func(k *worker, own *phase) {
		for due := range arrivals {
			var err error
			if ctx.Err() == nil && time.Now().Before(hopeless) {
				err = k.request(ctx)
			}
			own.record(due, end, err)
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return all, all.check()
}

// patienceFactor is how many times its duration an open load may take.
const patienceFactor = 4

// spread is the least, the median and the greatest of some figures.
type spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// spreadOf summarises figures, at least one; the median of an even number is the mean of the two in the middle.
func spreadOf(figures []float64) spread {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return spread{sorted[0], (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[n-1]}
}
