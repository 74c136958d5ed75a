package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

const (
	// soakEnv holds how long the soak takes, seedEnv its seed.
	soakEnv, seedEnv = "SOAK", "SOAK_SEED"
	// soakShort is how long it takes as one of the tests.
	soakShort = 30 * time.Second
	// soakClients, soakHotKeys and soakColdKeys are the load.
	soakClients, soakHotKeys, soakColdKeys = 32, 50, 100_000
	// calmMin to calmMax is the time between two faults, stormMin to stormMax how long one lasts.
	calmMin, calmMax, stormMin, stormMax = 500 * time.Millisecond, 3 * time.Second, 100 * time.Millisecond, 3 * time.Second
	// doubleShare is how many percent of the time two faults happen at once.
	doubleShare = 25
)

// TestSoak: for as long as SOAK says, two gateways on three nodes are under load while faults happen at random, often two at
// a time. The table at the end says what happened and what became of the records. A seed repeats the order of the faults.
func TestSoak(t *testing.T) {
	lasts, seed := soakShort, uint64(time.Now().UnixNano())
	if text := os.Getenv(soakEnv); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakEnv, err)
		}
	} else {
		t.Parallel()
	}
	if text := os.Getenv(seedEnv); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Logf("soak of %s, %s=%d", lasts, seedEnv, seed)
	s := newSoak(t, seed)
	s.begin()
	for end := s.clock() + lasts; s.clock() < end; {
		<-time.After(calmMin + time.Duration(s.random.Int64N(int64(calmMax-calmMin))))
		s.disturb(t)
	}
	v := s.finish(t)
	table := s.table(v, lasts, seed)
	t.Logf("\n%s", table)
	if os.Getenv(soakEnv) != "" {
		fmt.Print(table)
	}
	for _, g := range s.gateways {
		g.Stop(t)
	}
}

// soak is a site with everything that can go wrong in it.
type soak struct {
	*site
	random *rand.Rand
	// targets are faults by what they hit; two that happen at once hit different things.
	targets  map[string][]fault
	happened map[string]int
	longest  time.Duration // until service was back
	slowest  time.Duration
}

// newSoak builds the site: node-1, the issuer and the way to the index can be killed, node-3 has a small disk.
func newSoak(t *testing.T, seed uint64) *soak {
	t.Helper()
	node, issuer, index := servers.PrivateMariaDB(t, servers.MariaDBOptions{}), servers.PrivateMariaDB(t, servers.MariaDBOptions{}), servers.PrivateMongo(t)
	through, direct := index.FreshIndex(t)
	small := smallNode(t)
	s := &soak{
		site: newSite(t, plan{
			gateways: 2, nodes: 3, clients: soakClients, hotKeys: soakHotKeys, coldKeys: soakColdKeys, seed: seed, index: through,
			change: func(s *gateway.Stack) {
				s.Index, s.Issuer, s.Nodes[0].DSN = direct, issuer.Fresh(t), node.Fresh(t)
				if small != nil {
					s.Nodes[2].DSN = small.Fresh(t)
				}
			},
		}),
		random: rand.New(rand.NewPCG(seed, 2)), targets: map[string][]fault{}, happened: map[string]int{},
	}
	for name, server := range map[string]*servers.Private{"node-1": node, "issuer": issuer, "index": index} {
		s.add(name, "SIGKILL of a server", func() { server.Kill(t) }, func() { server.Restart(t) })
		s.add(name, "SIGSTOP of a server", func() { server.Stop(t) }, func() { server.Continue(t) })
	}
	for name, proxy := range s.proxies {
		for _, f := range networkFaults(proxy, 0) {
			s.add(name, f.name, f.begin, f.end)
		}
		s.add(name, "a lost reply", func() { proxy.SwallowReply([]byte("records")) }, func() {})
		s.add(name, "a lost request", func() { proxy.CutBefore([]byte("records")) }, func() {})
	}
	if small != nil {
		ballast := filepath.Join(small.Disk(), "ballast")
		s.add("node-3", "a full disk", func() { fillDisk(t, ballast) }, func() { _ = os.Remove(ballast) }) // the next look at it will tell
	}
	for i := range s.gateways {
		s.addGatewayFaults(t, i)
	}
	return s
}

// smallNode is a server with a small disk, nil where there can be none.
func smallNode(t *testing.T) *servers.Private {
	t.Helper()
	if os.Getenv(servers.EnvMariaDB) == "" || os.Geteuid() != 0 {
		t.Log("no server with a small disk here")
		return nil
	}
	return servers.PrivateMariaDB(t, servers.MariaDBOptions{DiskBytes: 256 << 20})
}

func (s *soak) add(target, name string, begin, end func()) {
	s.targets[target] = append(s.targets[target], fault{name: name, begin: begin, end: end})
}

// addGatewayFaults adds what may happen to one gateway.
func (s *soak) addGatewayFaults(t *testing.T, i int) {
	t.Helper()
	start := func() {
		s.gateways[i] = gateway.StartIn(t, s.folder, s.env...)
		s.announce()
	}
	signal := func(which syscall.Signal) func() {
		return func() {
			if err := s.gateways[i].Command.Process.Signal(which); err != nil {
				t.Error(err)
			}
		}
	}
	target := "a gateway"
	s.add(target, "SIGKILL of a gateway", func() { s.gateways[i].Kill(t) }, start)
	s.add(target, "SIGTERM of a gateway", func() { s.gateways[i].Terminate(t) }, func() { s.gateways[i].Wait(t); start() })
	s.add(target, "SIGSTOP of a gateway", signal(syscall.SIGSTOP), signal(syscall.SIGCONT))
}

// disturb lets one or two faults happen and waits until service is back.
func (s *soak) disturb(t *testing.T) {
	t.Helper()
	names := slices.Sorted(maps.Keys(s.targets))
	s.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	count := 1
	if s.random.IntN(100) < doubleShare {
		count = 2
	}
	var faults []fault
	var texts []string
	for _, target := range names[:count] {
		f := s.targets[target][s.random.IntN(len(s.targets[target]))]
		faults, texts = append(faults, f), append(texts, f.name+" ("+target+")")
		s.happened[f.name]++
	}
	lasts := stormMin + time.Duration(s.random.Int64N(int64(stormMax-stormMin)))
	at := s.clock()
	s.takeSlowest()
	for _, f := range faults {
		f.begin()
	}
	<-time.After(lasts)
	for _, f := range faults {
		f.end()
	}
	back, slowest := s.back(t), s.takeSlowest()
	s.longest = max(s.longest, back)
	if !strings.Contains(strings.Join(texts, ""), "SIGSTOP of a gateway") {
		s.slowest = max(s.slowest, slowest)
	}
	t.Logf("%7.1fs: %s for %s: service back after %s", at.Seconds(), strings.Join(texts, " and "), lasts.Round(time.Millisecond), back.Round(time.Millisecond))
	if back > backWithin {
		t.Errorf("service was back after %s, want %s", back, backWithin)
	}
	if s.slowest > requestTimeout+answerSlack {
		t.Errorf("an answer took %s with a request timeout of %s", s.slowest, requestTimeout)
	}
}

// table is the verdict in words.
func (s *soak) table(v verdict, lasts time.Duration, seed uint64) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	byKind, unknowns, all := map[kind][4]int{}, 0, 0 // done, refused, unknown, no answer
	for name, n := range s.totals {
		operation, what, _ := strings.Cut(name, ": ")
		counts, column := byKind[kind(operation)], 0
		switch {
		case strings.HasSuffix(what, "outcome_unknown"):
			column = 2
		case what == "connection lost" || what == "client timeout":
			column = 3
		case what == "no connection" || strings.HasPrefix(what, "5"):
			column = 1
		}
		counts[column] += n
		byKind[kind(operation)] = counts
		all += n
		if column >= 2 && kind(operation) != get {
			unknowns += n
		}
	}
	line("soak of %s: 2 gateways, 3 nodes, %d clients, %d hot keys at a time, %d cold keys (%s=%d)", lasts, soakClients, soakHotKeys, len(s.beliefs()), seedEnv, seed)
	line("")
	line("%-14s %10s %10s %16s %10s", "operation", "done", "refused", "outcome unknown", "no answer")
	for _, k := range []kind{post, put, ifMatch, remove, removeIf, get} {
		c := byKind[k]
		line("%-14s %10d %10d %16d %10d", k, c[0], c[1], c[2], c[3])
	}
	line("%d operations in all, %d writes of unknown outcome", all, unknowns)
	line("")
	faults := 0
	for _, name := range slices.Sorted(maps.Keys(s.happened)) {
		line("%-24s %6d", name, s.happened[name])
		faults += s.happened[name]
	}
	line("%d faults; service back after %s at most; slowest answer of a running gateway %s", faults, s.longest.Round(time.Millisecond), s.slowest.Round(time.Millisecond))
	line("")
	line("stored: %d live rows, %d fences, %d entries of which %d dangle", len(v.live), v.fences, v.entries, v.dangling)
	line("lost: %d", v.lost)
	line("mixed up: %d", v.mixedUp)
	line("hot keys: %d histories, %d not linearizable", len(s.histories), v.unlinearizable)
	line("complaints: %d", len(v.faults)+len(s.load.faults))
	return b.String()
}
