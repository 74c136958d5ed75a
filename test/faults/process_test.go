package faults

import (
	"syscall"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

const (
	// downFor is how long a killed server stays away.
	downFor = time.Second
	// haltedFor is how long a halted process stays so: several times what a request may take.
	haltedFor = 5 * time.Second
	// mostMemory and mostGoroutines bound what a gateway may grow by while a server is halted.
	mostMemory, mostGoroutines = 64 << 20, 500
	// mostConnections bounds the connections that a gateway opens to a halted server, per second.
	mostConnections = 100
)

// private is a site with one of its servers private, and that server.
type private struct {
	*site
	server *servers.Private
	// link is the name of the proxy to it.
	link string
}

// privateSites build a site for each role, so that a server can be killed in it, with so many clients.
var privateSites = map[string]func(t *testing.T, clients int) private{
	"node": func(t *testing.T, clients int) private {
		t.Helper()
		server := servers.PrivateMariaDB(t, servers.MariaDBOptions{})
		return private{newSite(t, plan{clients: clients, change: func(s *gateway.Stack) { s.Nodes[0].DSN = server.Fresh(t) }}), server, "node-1"}
	},
	"issuer": func(t *testing.T, clients int) private {
		t.Helper()
		server := servers.PrivateMariaDB(t, servers.MariaDBOptions{})
		return private{newSite(t, plan{clients: clients, change: func(s *gateway.Stack) { s.Issuer = server.Fresh(t) }}), server, "issuer"}
	},
	"index": func(t *testing.T, clients int) private {
		t.Helper()
		server := servers.PrivateMongo(t)
		through, direct := server.FreshIndex(t)
		return private{newSite(t, plan{clients: clients, index: through, change: func(s *gateway.Stack) { s.Index = direct }}), server, "index"}
	},
}

// TestServerKilled: a node, the issuer and the index are killed under load and come back, three times.
func TestServerKilled(t *testing.T) {
	for role, build := range privateSites {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			p := build(t, 0)
			p.begin()
			for range 3 {
				p.under(t, fault{"SIGKILL of the " + role, func() { p.server.Kill(t) }, func() { p.server.Restart(t) }, downFor})
			}
			p.finish(t)
			p.gateways[0].Stop(t)
		})
	}
}

// TestServerHalted: a node, the issuer and the index are halted under load: nobody answers, nobody closes. No request
// outlives its deadline, the gateway does not grow, no storm of connections breaks out, and service is back when they go
// on (I8).
func TestServerHalted(t *testing.T) {
	for role, build := range privateSites {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			p := build(t, 64)
			p.begin()
			<-time.After(downFor) // so that the gateway is as large as the load makes it
			before := sizeOf(t, p.gateways[0])
			connections := p.proxies[p.link].Accepted()
			var during size
			p.under(t, fault{"SIGSTOP of the " + role, func() { p.server.Stop(t) }, func() {
				during = sizeOf(t, p.gateways[0])
				connections = p.proxies[p.link].Accepted() - connections
				p.server.Continue(t)
			}, haltedFor})
			after := sizeOf(t, p.gateways[0])
			t.Logf("before, during, after: %v, %v, %v; %d new connections in %s", before, during, after, connections, haltedFor)
			for _, s := range []size{during, after} {
				if s.memory > before.memory+mostMemory || s.goroutines > before.goroutines+mostGoroutines {
					t.Errorf("the gateway grew from %v to %v", before, s)
				}
			}
			if float64(connections) > mostConnections*haltedFor.Seconds() {
				t.Errorf("%d connections were opened in %s", connections, haltedFor)
			}
			p.finish(t)
			p.gateways[0].Stop(t)
		})
	}
}

// size is how large a gateway process is.
type size struct{ goroutines, memory float64 }

func sizeOf(t *testing.T, g *gateway.Process) size {
	t.Helper()
	return size{g.Metric(t, "go_goroutines"), g.Metric(t, "process_resident_memory_bytes")}
}

// TestGatewayHalted: of two gateways one is halted, over several leases of the other one, and goes on with what it had
// begun (I1). Then it is halted again and again for a moment in which the other one takes over the keys that its creates
// had reserved: those must not come through afterwards (I2, I4).
func TestGatewayHalted(t *testing.T) {
	t.Parallel()
	const moments, moment = 20, 400 * time.Millisecond
	s := newSite(t, plan{gateways: 2, pinned: true, clients: 32, hotKeys: 6, hotShare: 80})
	halt := func(lasts time.Duration) {
		for _, step := range []struct {
			signal syscall.Signal
			lasts  time.Duration
		}{{syscall.SIGSTOP, lasts}, {syscall.SIGCONT, 0}} {
			if err := s.gateways[0].Command.Process.Signal(step.signal); err != nil {
				t.Error(err)
			}
			<-time.After(step.lasts)
		}
	}
	s.begin()
	halt(haltedFor)
	back := s.back(t)
	for range moments {
		halt(moment)
		<-time.After(moment / 2)
	}
	t.Logf("SIGSTOP of one of two gateways, once for %s, %d times for %s: service back after %s\n  clients saw: %s",
		haltedFor, moments, moment, back.Round(time.Millisecond), s.takeCounts())
	s.finish(t)
	for _, g := range s.gateways {
		g.Stop(t)
	}
}
