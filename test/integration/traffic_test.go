package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"keyrange/test/gateway"
)

// loadPerSecond is the load under which configs change.
const loadPerSecond = 200

// traffic is a steady load of creates and reads, in turn, spread over gateways. Each read is of a record that was
// acknowledged, by any of the gateways; whatever is not answered as it should be is a fault.
type traffic struct {
	made     *acknowledged
	gateways []*gateway.Process
	started  time.Time
	stopOnce sync.Once
	stopping chan struct{}
	ended    chan struct{} // closed when the last answer is there

	mu     sync.Mutex
	keys   []string
	faults []string
	sent   int
}

// startTraffic sends requests until stop is called, or the test ends.
func startTraffic(t *testing.T, gateways ...*gateway.Process) *traffic {
	t.Helper()
	l := &traffic{made: newAcknowledged(), gateways: gateways, started: time.Now(), stopping: make(chan struct{}), ended: make(chan struct{})}
	go l.run()
	t.Cleanup(l.end)
	return l
}

// run sends the requests on time, however long the answers take.
func (l *traffic) run() {
	defer close(l.ended)
	var underWay sync.WaitGroup
	defer underWay.Wait()
	ticker := time.NewTicker(time.Second / loadPerSecond)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-l.stopping:
			return
		case <-ticker.C:
		}
		underWay.Go(func() {
			if err := l.request(i); err != nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.faults = append(l.faults, err.Error())
			}
		})
	}
}

// request is the i-th request.
func (l *traffic) request(i int) error {
	g := l.gateways[i/2%len(l.gateways)]
	l.mu.Lock()
	l.sent++
	key := fmt.Sprintf("record-%d", i)
	read := i%2 == 1 && len(l.keys) > 0
	if read {
		key = l.keys[rand.N(len(l.keys))]
	}
	l.mu.Unlock()
	if read {
		a, err := g.Call("GET", "/v1/records/"+key, "")
		if want := fmt.Sprintf(`{"key":%q}`, key); err != nil || a.Status != http.StatusOK || a.Body != want {
			return fmt.Errorf("read %s: %d %s %w", key, a.Status, a.Body, err)
		}
		return nil
	}
	if err := l.made.create(g, key); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys = append(l.keys, key)
	return nil
}

// end stops the load and waits for the last answer.
func (l *traffic) end() {
	l.stopOnce.Do(func() { close(l.stopping) })
	<-l.ended
}

// stop ends the load and reports its faults.
func (l *traffic) stop(t *testing.T) {
	t.Helper()
	l.end()
	t.Logf("%d requests, %.0f/s, %d of them creates", l.sent, float64(l.sent)/time.Since(l.started).Seconds(), l.made.count.Load())
	if n := len(l.faults); n > 0 {
		t.Errorf("%d requests failed, the first of them:\n%s", n, strings.Join(l.faults[:min(n, 5)], "\n"))
	}
}

// reached waits until so many creates were acknowledged.
func (l *traffic) reached(t *testing.T, creates int) {
	t.Helper()
	gateway.Poll(t, fmt.Sprintf("%d creates", creates), func() bool { return l.made.count.Load() >= int64(creates) })
}
