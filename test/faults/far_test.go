package faults

import (
	"os"
	"testing"
	"time"
)

// TestSmallPool: two connections to a node 200 ms away, and 50 clients. All waits are bounded, memory is flat, and service is
// as good as before when the node is near again.
func TestSmallPool(t *testing.T) {
	t.Parallel()
	s := newSite(t, plan{clients: 50, env: []string{"GATEWAY__NODES__0__CONNECTIONS=2", "GATEWAY__NODES__1__CONNECTIONS=2"}})
	s.begin()
	<-time.After(downFor)
	before := sizeOf(t, s.gateways[0])
	far := func(delay time.Duration) func() {
		return func() {
			s.proxies["node-1"].Delay(delay)
			s.proxies["node-2"].Delay(delay)
		}
	}
	s.under(t, fault{"200 ms to the nodes with pools of 2", far(200 * time.Millisecond), far(0), haltedFor})
	after := sizeOf(t, s.gateways[0])
	t.Logf("before, after: %v, %v", before, after)
	if after.memory > before.memory+mostMemory || after.goroutines > before.goroutines+mostGoroutines {
		t.Errorf("the gateway grew from %v to %v", before, after)
	}
	s.finish(t)
	s.gateways[0].Stop(t)
}

// TestDelayBeyondDeadline: the index is 300 ms away and a request may take 200 ms, so that nothing that needs it succeeds. That
// is answered in time, connections are not thrown away at a high rate, and all is well afterwards.
func TestDelayBeyondDeadline(t *testing.T) {
	t.Parallel()
	lasts := 2 * haltedFor
	if os.Getenv("GATEWAY_TEST_LONG") != "" {
		lasts = 30 * time.Second
	}
	for _, link := range []string{"index", "node-1"} {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, plan{env: []string{"GATEWAY__SERVER__REQUEST_TIMEOUT=200ms"}})
			p := s.proxies[link]
			s.begin()
			connections := p.Accepted()
			s.under(t, fault{"300 ms to " + link + " with 200 ms for a request", func() { p.Delay(300 * time.Millisecond) }, func() {
				connections = p.Accepted() - connections
				p.Delay(0)
			}, lasts})
			t.Logf("%d new connections in %s", connections, lasts)
			if float64(connections) > mostConnections*lasts.Seconds() {
				t.Errorf("%d connections were opened in %s", connections, lasts)
			}
			s.finish(t)
			s.gateways[0].Stop(t)
		})
	}
}
