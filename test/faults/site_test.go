// Package faults runs the built gateway on real servers while things go wrong: processes are killed and halted, the network
// refuses, resets, stalls and delays, disks fill up. Clients go on all the while. Afterwards everything that is stored is
// compared with everything that clients were told.
package faults

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

func TestMain(m *testing.M) { os.Exit(runAndTidy(m)) }

// runAndTidy returns the exit code.
func runAndTidy(m *testing.M) int {
	defer servers.RemoveTemplates()
	return gateway.Main(m)
}

const (
	// requestTimeout is the gateways' own limit for one request.
	requestTimeout = time.Second
	// answerSlack is what an answer may take beyond that on a busy machine (I8).
	answerSlack = 2 * time.Second
	// backWithin bounds how long service may be away after a fault has ended.
	backWithin = 5 * time.Second
	// retryPause is how long a client waits before it repeats what was refused.
	retryPause = 100 * time.Millisecond
	// rangeSize leaves no range full.
	rangeSize = 1_000_000
	// mostRead bounds how many records of single clients are read back through the gateway; all are looked up in the databases.
	mostRead = 5_000
)

// site is one deployment under load, with a proxy on every link.
type site struct {
	*load
	// direct leads past the proxies.
	direct   gateway.Stack
	proxies  map[string]*servers.Proxy
	folder   string
	env      []string
	gateways []*gateway.Process
	// canaries are keys of records that nobody else writes, one for each node in turn.
	canaries []string
	random   *rand.Rand
	tries    int
}

// plan is what a site is to be. The zero value of a field stands for a choice that is good for most tests.
type plan struct {
	kind     string // of the stack: MySQL nodes and a MongoDB-protocol index
	gateways int    // one
	nodes    int    // two; all take new records
	clients  int    // 16
	pinned   bool   // each client keeps to one gateway
	hotKeys  int    // 8
	hotShare int    // 30 percent
	coldKeys int    // as many as there is time for
	seed     uint64
	env      []string
	// change makes changes to the stack before proxies are put on its links.
	change func(s *gateway.Stack)
	// index leads to the index from the gateways when that is another way than the stack's.
	index string
}

// or returns the first number that is not 0.
func or(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// newSite builds a deployment and starts its gateways; the load is not begun.
func newSite(t *testing.T, p plan) *site {
	t.Helper()
	if p.kind == "" {
		p.kind = servers.MySQLKind
	}
	s := &site{direct: gateway.NewStack(t, p.kind, or(p.nodes, 2), rangeSize), proxies: map[string]*servers.Proxy{}, random: rand.New(rand.NewPCG(p.seed, 1))}
	s.direct.IDs = fmt.Sprintf(", order: spread, open_ranges: %d, step: {min: 10, max: 50}", len(s.direct.Nodes))
	if p.change != nil {
		p.change(&s.direct)
	}
	through := s.direct.With(func(*gateway.Stack) {})
	if p.index != "" {
		through.Index = p.index
	}
	if p.kind != gateway.Embedded {
		s.proxies["index"], through.Index = servers.NewProxyFor(t, through.Index)
		s.proxies["issuer"], through.Issuer = servers.NewProxyFor(t, through.Issuer)
		for i := range through.Nodes {
			s.proxies[through.Nodes[i].Name], through.Nodes[i].DSN = servers.NewProxyFor(t, through.Nodes[i].DSN)
		}
	}
	s.folder = gateway.WriteConfig(t, through.Config()+"collections: [{name: records, group: g}]\n")
	s.env = append([]string{"GATEWAY__SERVER__REQUEST_TIMEOUT=" + requestTimeout.String()}, p.env...)
	s.load = newLoad(t, loadOptions{clients: or(p.clients, 16), pinned: p.pinned, hotKeys: or(p.hotKeys, 8), hotShare: or(p.hotShare, 30), coldKeys: or(p.coldKeys, 1_000_000), seed: p.seed})
	for range or(p.gateways, 1) {
		s.gateways = append(s.gateways, gateway.StartIn(t, s.folder, s.env...))
	}
	s.announce()
	s.makeCanaries(t)
	return s
}

// announce tells the clients where the gateways are.
func (s *site) announce() {
	var bases []string
	for _, g := range s.gateways {
		bases = append(bases, g.URL)
	}
	s.serve(bases...)
}

// makeCanaries creates records until each node has one. Where requests have little time some may fail.
func (s *site) makeCanaries(t *testing.T) {
	t.Helper()
	on := map[int64]string{}
	var tried int
	gateway.Poll(t, "every node has a record", func() bool {
		for len(on) < len(s.direct.Nodes) {
			key := fmt.Sprintf("canary-%d", tried)
			tried++
			a, err := s.gateways[0].Call("POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
			if err != nil || a.Status != http.StatusCreated {
				return false
			}
			var id, version int64
			if _, err := fmt.Sscanf(a.ETag(), "%d-%d", &id, &version); err != nil || tried > 10_000 {
				t.Fatalf("canaries: %s %v", a.ETag(), err)
			}
			on[(id-1)/rangeSize] = key
		}
		return true
	})
	for node := range int64(len(s.direct.Nodes)) {
		s.canaries = append(s.canaries, on[node])
	}
}

// works reports whether a gateway reads and writes on every node and creates.
func (s *site) works(g *gateway.Process) bool {
	for _, key := range s.canaries {
		for _, method := range []string{"GET", "PUT"} {
			body := ""
			if method == "PUT" {
				body = "{}"
			}
			if a, err := g.Call(method, "/v1/records/"+key, body); err != nil || a.Status != http.StatusOK {
				return false
			}
		}
	}
	s.tries++
	a, err := g.Call("POST", "/v1/records", fmt.Sprintf(`{"key":"try-%d"}`, s.tries))
	return err == nil && a.Status == http.StatusCreated
}

// back waits until all gateways do their work on every database, and returns how long that took.
func (s *site) back(t *testing.T) time.Duration {
	t.Helper()
	start := time.Now()
	gateway.Poll(t, "service is back", func() bool {
		return !slices.ContainsFunc(s.gateways, func(g *gateway.Process) bool { return !s.works(g) })
	})
	return time.Since(start)
}

// fault is something that goes wrong for a while.
type fault struct {
	name       string
	begin, end func()
	lasts      time.Duration
}

// under lets a fault happen under the load and says how clients lived through it.
func (s *site) under(t *testing.T, f fault) {
	t.Helper()
	s.takeSlowest()
	s.takeCounts()
	f.begin()
	<-time.After(f.lasts)
	f.end()
	back := s.back(t)
	slowest := s.takeSlowest()
	t.Logf("%s for %s: service back after %s, slowest answer %s\n  clients saw: %s", f.name, f.lasts, back.Round(time.Millisecond), slowest.Round(time.Millisecond), s.takeCounts())
	if back > backWithin {
		t.Errorf("%s: service was back after %s, want %s", f.name, back, backWithin)
	}
	if slowest > requestTimeout+answerSlack {
		t.Errorf("%s: an answer took %s with a request timeout of %s", f.name, slowest, requestTimeout)
	}
}

// verdict is what a look at everything has shown.
type verdict struct {
	*stored
	lost, mixedUp, unlinearizable int
}

// finish ends the load and checks everything that is stored against everything that clients were told.
func (s *site) finish(t *testing.T) verdict {
	t.Helper()
	s.end()
	s.back(t)
	s.readBack(mostRead)
	v := verdict{stored: examine(t, s.direct)}
	v.lost, v.mixedUp = v.compare(s.load)
	v.unlinearizable = s.checkHistories()
	s.checkGroups(v.stored)
	t.Logf("stored: %d live rows, %d fences, %d entries of which %d dangle; %d keys of single clients: %d lost, %d mixed up; %d shared keys: %d not linearizable",
		len(v.live), v.fences, v.entries, v.dangling, len(s.beliefs()), v.lost, v.mixedUp, len(s.histories), v.unlinearizable)
	s.report(t)
	for i, fault := range v.faults {
		if i < shownFaults {
			t.Error(fault)
		}
	}
	if n := len(v.faults); n > shownFaults {
		t.Errorf("and %d more", n-shownFaults)
	}
	return v
}
