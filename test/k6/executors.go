package k6

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// pace is how often an arrival-rate executor looks at the clock.
const pace = time.Millisecond

// playing is a scenario under way.
type playing struct {
	scenario
	name  string
	began time.Time
	// started counts iterations.
	started atomic.Int64
}

// play waits for the start time, takes VUs from the pool, and gives them back when the scenario is over.
func (r *run) play(ctx context.Context, pool chan *vu, name string, s scenario) error {
	if err := pause(ctx, time.Duration(s.StartTime)); err != nil {
		return err
	}
	vus := make([]*vu, s.vus())
	for i := range vus {
		select {
		case vus[i] = <-pool:
		default:
			return fmt.Errorf("scenario %s: no VU is free", name)
		}
	}
	p := &playing{scenario: s, name: name, began: time.Now()}
	end, cancelEnd := context.WithTimeout(ctx, s.length())
	defer cancelEnd()
	late, cancelLate := context.WithTimeout(ctx, s.length()+s.grace())
	defer cancelLate()
	var arrivals chan struct{}
	if s.MaxVUs > 0 {
		arrivals = make(chan struct{})
		go r.arrive(end, p, arrivals)
	}
	var wg sync.WaitGroup
	for _, v := range vus {
		v.begin(late, p)
		wg.Go(func() { r.work(end, v, p, arrivals) })
	}
	idle := make(chan struct{})
	go func() { wg.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-late.Done(): // requests end with it; JavaScript has to be told
		for _, v := range vus {
			v.runtime.Interrupt("the scenario is over")
		}
		<-idle
	}
	for _, v := range vus {
		v.runtime.ClearInterrupt()
		pool <- v
	}
	return ctx.Err()
}

// work runs the iterations of one VU. arrivals is nil for executors that wait for nothing.
func (r *run) work(end context.Context, v *vu, p *playing, arrivals chan struct{}) {
	for i := 0; end.Err() == nil && (p.Iterations == 0 || i < p.Iterations); i++ {
		if arrivals != nil {
			if _, ok := <-arrivals; !ok {
				return
			}
		}
		p.started.Add(1)
		began := time.Now()
		err := v.iterate(i)
		tags := map[string]string{"scenario": p.name}
		r.metrics.add("iterations", 1, tags)
		r.metrics.add("iteration_duration", float64(time.Since(began))/float64(time.Millisecond), tags)
		if err != nil && !errors.Is(err, errInterrupted) {
			r.failed(err)
		}
	}
}

// arrive starts iterations at the rate of the scenario. When no VU is free, one is dropped.
func (r *run) arrive(end context.Context, p *playing, arrivals chan struct{}) {
	defer close(arrivals)
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	due, before := 0.0, time.Duration(0)
	for {
		select {
		case <-end.Done():
			return
		case <-ticker.C:
		}
		now := time.Since(p.began)
		due += p.rateAt(now) * (now - before).Seconds()
		before = now
		for range int(math.Floor(due)) {
			due--
			select {
			case arrivals <- struct{}{}:
			default:
				r.metrics.add("dropped_iterations", 1, map[string]string{"scenario": p.name})
			}
		}
	}
}

// pause waits, or returns the error of a context that ends before.
func pause(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
