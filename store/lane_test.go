package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errTestUnsent  = errors.New("unsent")
	errTestUnknown = errors.New("unknown")
)

// gate is the far end of a lane under test: it records batches, and each waits until the test lets it go.
type gate struct {
	mu      sync.Mutex
	batches [][]int
	open    chan struct{}
}

func (g *gate) run(ctx context.Context, batch []int) []answer[string] {
	g.mu.Lock()
	g.batches = append(g.batches, slices.Clone(batch))
	g.mu.Unlock()
	select {
	case <-g.open:
	case <-ctx.Done():
		return failed[string](len(batch), ctx.Err())
	}
	answers := make([]answer[string], len(batch))
	for i, q := range batch {
		if answers[i].value = fmt.Sprint(q); q < 0 {
			answers[i].err = errors.New("bad item")
		}
	}
	return answers
}

func gatedLane(parallel, limit int) (*lane[int, string], *gate) {
	g := &gate{open: make(chan struct{})}
	return &lane[int, string]{run: g.run, limit: limit, parallel: parallel, unsent: errTestUnsent, unknown: errTestUnknown}, g
}

// askAll asks questions one after the other, each from a goroutine of its own, in order.
func askAll(ctx context.Context, l *lane[int, string], questions ...int) (results map[int]string, wait func()) {
	results = map[int]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, q := range questions {
		wg.Go(func() {
			value, err := l.ask(ctx, q)
			mu.Lock()
			defer mu.Unlock()
			results[q] = fmt.Sprint(value, " ", err)
		})
		synctest.Wait()
	}
	return results, wg.Wait
}

// TestLaneMerges: the first call goes alone and at once, those that arrive meanwhile share the next batches, in order and
// up to the limit, and a bad item fails alone.
func TestLaneMerges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g := gatedLane(1, 3)
		results, wait := askAll(t.Context(), l, 1, 2, -3, 4, 5)
		if got := fmt.Sprint(g.batches); got != "[[1]]" {
			t.Errorf("on their way: %s", got)
		}
		close(g.open)
		wait()
		if got := fmt.Sprint(g.batches); got != "[[1] [2 -3 4] [5]]" {
			t.Errorf("batches %s", got)
		}
		if got := fmt.Sprint(results); got != "map[-3:-3 bad item 1:1 <nil> 2:2 <nil> 4:4 <nil> 5:5 <nil>]" {
			t.Errorf("answers %s", got)
		}
		// When all is quiet, a call goes at once again.
		if value, err := l.ask(t.Context(), 6); value != "6" || err != nil || l.running != 0 {
			t.Errorf("afterwards: %s, %v, %d running", value, err, l.running)
		}
	})
}

func TestLaneParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g := gatedLane(2, 10)
		_, wait := askAll(t.Context(), l, 1, 2, 3, 4)
		if got := fmt.Sprint(g.batches); got != "[[1] [2]]" {
			t.Errorf("on their way: %s", got)
		}
		close(g.open)
		wait()
	})
}

func TestLaneWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g := gatedLane(1, 10)
		l.weight = func(q int) int { return q }
		_, wait := askAll(t.Context(), l, 1, 2*batchBytes, 3, batchBytes-4, 5)
		close(g.open)
		wait()
		if got, want := fmt.Sprint(g.batches), fmt.Sprintf("[[1] [%d] [3 %d] [5]]", 2*batchBytes, batchBytes-4); got != want {
			t.Errorf("batches %s, want %s", got, want)
		}
	})
}

// TestLaneDeadlines is I8 within a lane: each caller keeps its own deadline and learns whether its question was sent, and
// a batch does not end because one of its callers gave up.
func TestLaneDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g := gatedLane(1, 10)
		long, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		short, cancelShort := context.WithCancel(t.Context())
		_, waitFirst := askAll(long, l, 1)
		shortResults, waitShort := askAll(short, l, 2)
		cancelShort()
		waitShort()
		if got := fmt.Sprint(shortResults); got != "map[2: queued: unsent: context canceled]" {
			t.Errorf("gave up in the queue: %s", got)
		}
		short, cancelShort = context.WithCancel(t.Context())
		shortResults, waitShort = askAll(short, l, 3)
		longResults, waitLong := askAll(long, l, 4)
		g.open <- struct{}{} // the first batch ends, the second goes
		waitFirst()
		synctest.Wait()
		cancelShort()
		waitShort()
		if got := fmt.Sprint(shortResults); got != "map[3: under way: unknown: context canceled]" {
			t.Errorf("gave up on the way: %s", got)
		}
		g.open <- struct{}{}
		waitLong()
		if got := fmt.Sprint(longResults); got != "map[4:4 <nil>]" {
			t.Errorf("the one that stayed: %s", got)
		}
		if got := fmt.Sprint(g.batches); got != "[[1] [3 4]]" {
			t.Errorf("batches %s", got)
		}
	})
}

// TestLaneStalled: a batch that nobody answers ends with the last deadline in it, and the lane works on.
func TestLaneStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g := gatedLane(1, 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, wait := askAll(ctx, l, 1, 2, 3)
		wait()
		synctest.Wait()
		if took := time.Since(start); took != time.Second || l.running != 0 || len(l.queue) != 0 {
			t.Errorf("took %v, then %d running, %d queued", took, l.running, len(l.queue))
		}
		close(g.open)
		if _, err := l.ask(t.Context(), 4); err != nil {
			t.Error(err)
		}
	})
}

// TestLaneStuckBatch: those who come while a batch is stuck do not wait for its end.
func TestLaneStuckBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g := gatedLane(1, 10)
		stuck, waitStuck := askAll(t.Context(), l, 1)
		queued, waitQueued := askAll(t.Context(), l, 2)
		time.Sleep(patience + time.Millisecond)
		_, waitNext := askAll(t.Context(), l, 3)
		if got := fmt.Sprint(g.batches); got != "[[1] [2 3]]" {
			t.Fatalf("on their way: %s", got)
		}
		// Batches that are stuck too are followed by others, up to the spare ones.
		var waits []func()
		for q := 4; q < 10; q++ {
			time.Sleep(patience + time.Millisecond)
			_, wait := askAll(t.Context(), l, q)
			waits = append(waits, wait)
		}
		if got := fmt.Sprint(g.batches); got != "[[1] [2 3] [4] [5]]" || l.running != 1+spare {
			t.Errorf("on their way: %s, %d running", got, l.running)
		}
		close(g.open)
		for _, wait := range append(waits, waitStuck, waitQueued, waitNext) {
			wait()
		}
		synctest.Wait()
		if l.running != 0 || len(l.queue) != 0 || stuck[1] != "1 <nil>" || queued[2] != "2 <nil>" {
			t.Errorf("afterwards %d running, %d queued, %v, %v", l.running, len(l.queue), stuck, queued)
		}
	})
}

// TestLaneFairness: behind a bulk request with a full window under way, a single request is in the next batch but one at
// the latest.
func TestLaneFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g := gatedLane(1, maxInserts)
		bulk := make([]int, 1000)
		for i := range bulk {
			bulk[i] = i + 1
		}
		_, waitBulk := askAll(t.Context(), l, bulk[:128]...) // the handlers' window
		_, waitSingle := askAll(t.Context(), l, 5000)
		close(g.open)
		waitBulk()
		waitSingle()
		if len(g.batches) != 2 || !slices.Contains(g.batches[1], 5000) {
			t.Errorf("%d batches before the single request was served", len(g.batches))
		}
	})
}
