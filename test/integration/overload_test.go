package integration

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// TestOverload: a node that answers slowly meets far more clients than the gateway takes. It answers all of them in time, most
// with 503 at once, its memory stays flat, and when the node is quick again so is the gateway (I8).
func TestOverload(t *testing.T) {
	const maxRequests, clients, storm = 100, 1000, 3 * time.Second
	s := gateway.NewStack(t, servers.MySQLKind, 1, 10_000_000)
	var proxy *servers.Proxy
	proxy, s.Nodes[0].DSN = servers.NewProxyFor(t, s.Nodes[0].DSN)
	g := gateway.Start(t, s.Config(), fmt.Sprintf("GATEWAY__SERVER__MAX_REQUESTS=%d", maxRequests), "GATEWAY__SERVER__REQUEST_TIMEOUT=1s")
	g.Expect(t, http.StatusCreated, "PUT", "/v1/records/before", `{"n":1}`)
	before := g.Metric(t, "process_resident_memory_bytes")
	proxy.Stall()
	var refused, others atomic.Int64
	var slowest atomic.Int64
	end := time.Now().Add(storm)
	err := gateway.Together(clients, func(c int) error {
		for i := 0; time.Now().Before(end); i++ {
			start := time.Now()
			a, err := g.Call("PUT", fmt.Sprintf("/v1/records/storm-%d-%d", c, i), `{"n":1}`)
			if err != nil {
				return err
			}
			took := int64(time.Since(start))
			for seen := slowest.Load(); took > seen && !slowest.CompareAndSwap(seen, took); seen = slowest.Load() {
			}
			switch a.Code() {
			case "overloaded", "unavailable":
				refused.Add(1)
				if a.Header.Get("Retry-After") == "" {
					return fmt.Errorf("%d %s without Retry-After", a.Status, a.Body)
				}
				time.Sleep(20 * time.Millisecond) // a client that obeys a little
			case "outcome_unknown", "deadline_exceeded":
				others.Add(1)
			default:
				return fmt.Errorf("%d %s", a.Status, a.Body)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	after := g.Metric(t, "process_resident_memory_bytes")
	proxy.Resume()
	recovery := time.Now()
	gateway.Poll(t, "a record can be written again", func() bool {
		return g.Do(t, "PUT", "/v1/records/after", `{"n":1}`).Status < http.StatusBadRequest
	})
	t.Logf("%d clients for %s: %d refused at once, %d in doubt, the slowest answer took %s; memory %.0f -> %.0f MB; recovered in %s",
		clients, storm, refused.Load(), others.Load(), time.Duration(slowest.Load()).Round(time.Millisecond), before/1e6, after/1e6, time.Since(recovery).Round(time.Millisecond))
	if slowest := time.Duration(slowest.Load()); slowest > time.Second+2*answerSlack {
		t.Errorf("an answer took %s", slowest)
	}
	if refused.Load() == 0 || g.Metric(t, "gateway_handlers_overloaded_total") == 0 {
		t.Error("nobody was refused")
	}
	if after > before+200e6 {
		t.Errorf("memory grew from %.0f to %.0f MB", before/1e6, after/1e6)
	}
	g.Stop(t)
}
