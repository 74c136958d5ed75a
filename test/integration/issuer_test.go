package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// post creates records with keys of a prefix until so many were acknowledged, or one is refused.
func (k *acknowledged) post(t *testing.T, g *gateway.Process, prefix string, count int) (refused gateway.Answer) {
	t.Helper()
	for i := range count {
		key := fmt.Sprintf("%s-%d", prefix, i)
		a := g.Do(t, "POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
		if a.Status != http.StatusCreated {
			return a
		}
		if err := k.add(key, a); err != nil {
			t.Fatal(err)
		}
	}
	return gateway.Answer{}
}

// refusedByIssuer posts records until one is refused, and checks that the gateway said why.
func (k *acknowledged) refusedByIssuer(t *testing.T, g *gateway.Process, prefix string) {
	t.Helper()
	const atHand = 25_000 // more than two segments of the largest size
	a := k.post(t, g, prefix, atHand)
	if a.Status != http.StatusServiceUnavailable {
		t.Errorf("create with an issuer that cannot be trusted: %d %s", a.Status, a.Body)
	}
	gateway.Poll(t, "an alarm", func() bool { return strings.Contains(g.Output.String(), `"level":"ERROR"`) })
}

// resumed waits until records can be created again.
func (k *acknowledged) resumed(t *testing.T, g *gateway.Process, prefix string) {
	t.Helper()
	tries := 0
	gateway.Poll(t, "creates go on", func() bool {
		tries++
		return k.post(t, g, fmt.Sprintf("%s-%d", prefix, tries), 1).Status == 0
	})
}

// TestIssuerSetBack: an issuer that forgot 5,000 IDs, while gateways run or while they are stopped, gives none and alarms;
// nothing is overwritten. The issuers command says what is wrong and mends it, while a gateway runs (I1).
func TestIssuerSetBack(t *testing.T) {
	for name, damage := range map[string]string{
		"by 5000": "UPDATE id_segment SET next_id = next_id - 5000",
		"emptied": "DELETE FROM id_segment",
	} {
		t.Run(name, func(t *testing.T) {
			s := gateway.NewStack(t, servers.MySQLKind, 1, 10_000_000)
			s.IDs = ", step: {min: 10, max: 100}"
			folder := gateway.WriteConfig(t, s.Config())
			made, issuer := newAcknowledged(), gateway.OpenSQL(t, s.Issuer)
			spoil := func() {
				t.Helper()
				if _, err := issuer.Exec(damage); err != nil {
					t.Fatal(err)
				}
			}
			mend := func(g *gateway.Process, prefix string) {
				t.Helper()
				if printed, code := gateway.Run(t, folder, nil, "issuers"); code == 0 || !strings.Contains(printed, "BEHIND") {
					t.Errorf("issuers: exit code %d\n%s", code, printed)
				}
				if printed, code := gateway.Run(t, folder, nil, "issuers", "repair"); code != 0 || !strings.Contains(printed, "mended: 1\n") {
					t.Errorf("issuers repair: exit code %d\n%s", code, printed)
				}
				made.resumed(t, g, prefix)
			}
			g := gateway.StartIn(t, folder)
			err := gateway.Together(16, func(c int) error {
				for i := range 400 {
					if err := made.create(g, fmt.Sprintf("first-%d-%d", c, i)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			spoil()
			made.refusedByIssuer(t, g, "running")
			mend(g, "mended")
			g.Stop(t)
			spoil()
			g = gateway.StartIn(t, folder)
			made.refusedByIssuer(t, g, "stopped")
			g.Expect(t, http.StatusOK, "PUT", "/v1/records/first-0-0", `{"key":"first-0-0"}`)
			mend(g, "mended-again")
			if printed, code := gateway.Run(t, folder, nil, "issuers"); code != 0 || strings.Contains(printed, "BEHIND") {
				t.Errorf("issuers: exit code %d\n%s", code, printed)
			}
			made.readBack(t, g)
			g.Stop(t)
		})
	}
}

// TestGatewayPaused: a gateway that is stopped over several leases of another one, and goes on, issues no ID twice (I1).
func TestGatewayPaused(t *testing.T) {
	s := gateway.NewStack(t, servers.MySQLKind, 1, 10_000_000)
	s.IDs = ", step: {min: 10, max: 10}"
	first, second := gateway.Start(t, s.Config()), gateway.Start(t, s.Config())
	made := newAcknowledged()
	both := func(round string, gateways ...*gateway.Process) {
		t.Helper()
		err := gateway.Together(8*len(gateways), func(c int) error {
			for i := range 20 {
				if err := made.create(gateways[c%len(gateways)], fmt.Sprintf("%s-%d-%d", round, c, i)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	both("before", first, second)
	underWay := make(chan error, 1)
	if err := first.Command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	go func() { underWay <- made.create(first, "sent-to-the-paused-one") }()
	both("meanwhile", second)
	if err := first.Command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-underWay; err != nil {
		t.Error(err)
	}
	both("after", first, second)
	made.readBack(t, first)
	first.Stop(t)
	second.Stop(t)
}

// TestThreeIssuers: of three issuers two are killed in turn under load: no create fails, all IDs are distinct (I1). Their
// number and order are part of what is stored.
func TestThreeIssuers(t *testing.T) {
	s := gateway.NewStack(t, servers.MySQLKind, 3, 10_000_000)
	s.MoreIssuers = servers.Nodes(t, 2)
	plain := s
	proxies := make([]*servers.Proxy, 3)
	s.MoreIssuers = make([]string, 2)
	proxies[0], s.Issuer = servers.NewProxyFor(t, plain.Issuer)
	for i, dsn := range plain.MoreIssuers {
		proxies[i+1], s.MoreIssuers[i] = servers.NewProxyFor(t, dsn)
	}
	s.IDs = ", step: {min: 10, max: 100}"
	g := gateway.Start(t, s.Config())
	load := startTraffic(t, g)
	const each = 150
	load.reached(t, each)
	for round := range 3 {
		one, other := proxies[round], proxies[(round+1)%3]
		one.Refuse(true)
		load.reached(t, int(load.made.count.Load())+each)
		other.Refuse(true)
		load.reached(t, int(load.made.count.Load())+each)
		one.Refuse(false)
		other.Refuse(false)
		load.reached(t, int(load.made.count.Load())+each)
	}
	load.stop(t)
	load.made.readBack(t, g)
	gateway.Poll(t, "all issuers in use", func() bool {
		a := g.Do(t, "GET", "/readyz", "")
		return strings.Contains(a.Body, `"status":"ready"`) && strings.Contains(a.Body, `"name":"issuer-3"`)
	})
	g.Stop(t)
	swapped := s.With(func(s *gateway.Stack) { s.MoreIssuers = []string{s.MoreIssuers[1], s.MoreIssuers[0]} })
	printed, code := gateway.Run(t, gateway.WriteConfig(t, swapped.Config()), nil, "serve")
	wantRefusal(t, printed, code, "ids.issuers[1]", "it is issuer 3, but config lists it as number 2")
	fewer := s.With(func(s *gateway.Stack) { s.MoreIssuers = s.MoreIssuers[:1] })
	fewerFolder := gateway.WriteConfig(t, fewer.Config())
	printed, code = gateway.Run(t, fewerFolder, nil, "serve")
	wantRefusal(t, printed, code, "issuer 1 of 3, but config lists 2", "gateway issuers rebuild")
	printed, code = gateway.Run(t, fewerFolder, nil, "issuers", "rebuild")
	wantRefusal(t, printed, code, "stop every gateway first")
	if printed, code := gateway.Run(t, fewerFolder, nil, "issuers", "rebuild", "--stopped"); code != 0 || !strings.Contains(printed, "issuer-2, 2 of 2") {
		t.Errorf("issuers rebuild: exit code %d\n%s", code, printed)
	}
	g = gateway.StartIn(t, fewerFolder)
	if a := load.made.post(t, g, "with-two-issuers", 100); a.Status != 0 {
		t.Errorf("create with another number of issuers: %d %s", a.Status, a.Body)
	}
	load.made.readBack(t, g)
	g.Stop(t)
}

// TestIssuerLost: a lost issuer is made anew while the gateway runs on the others.
func TestIssuerLost(t *testing.T) {
	s := gateway.NewStack(t, servers.MySQLKind, 1, 10_000_000)
	s.MoreIssuers = servers.Nodes(t, 1)
	g := gateway.Start(t, s.Config())
	made := newAcknowledged()
	made.post(t, g, "before", 50)
	g.Stop(t)
	s.MoreIssuers = servers.Nodes(t, 1) // an empty database in its place
	folder := gateway.WriteConfig(t, s.Config())
	printed, code := gateway.Run(t, folder, nil, "serve")
	wantRefusal(t, printed, code, "ids.issuers[1]", "is empty", "gateway issuers rebuild")
	if printed, code := gateway.Run(t, folder, nil, "issuers", "rebuild", "--issuer", "2"); code != 0 || !strings.Contains(printed, "rebuilt: issuer-2") {
		t.Errorf("issuers rebuild: exit code %d\n%s", code, printed)
	}
	g = gateway.StartIn(t, folder)
	made.post(t, g, "after", 50)
	made.readBack(t, g)
	g.Stop(t)
}

// TestStartWithoutIssuer: with the issuer down a gateway starts, reads, updates and deletes; it creates once the issuer is
// back, without a restart.
func TestStartWithoutIssuer(t *testing.T) {
	s := gateway.NewStack(t, servers.MySQLKind, 1, 10_000_000)
	var proxy *servers.Proxy
	proxy, s.Issuer = servers.NewProxyFor(t, s.Issuer)
	folder := gateway.WriteConfig(t, s.Config())
	g := gateway.StartIn(t, folder)
	for _, key := range []string{"a", "b"} {
		g.Expect(t, http.StatusCreated, "POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
	}
	g.Stop(t)
	proxy.Refuse(true)
	g = gateway.StartIn(t, folder)
	if a := g.Expect(t, http.StatusOK, "GET", "/readyz", ""); !strings.Contains(a.Body, `"status":"degraded"`) {
		t.Errorf("readyz: %s", a.Body)
	}
	g.Expect(t, http.StatusOK, "GET", "/v1/records/a", "")
	g.Expect(t, http.StatusOK, "PUT", "/v1/records/a", `{"n":1}`)
	g.Expect(t, http.StatusNoContent, "DELETE", "/v1/records/b", "")
	if a := g.Expect(t, http.StatusServiceUnavailable, "POST", "/v1/records", `{"key":"c"}`); a.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %s", a.Body)
	}
	proxy.Refuse(false)
	gateway.Poll(t, "creates go on", func() bool { return g.Do(t, "POST", "/v1/records", `{"key":"c"}`).Status == http.StatusCreated })
	wantReady(t, g, 1)
	g.Stop(t)
}

// TestSpreadNodeKilled: creates spread over three nodes evenly. With one node killed they go on without an error after the
// first second, and none that was acknowledged is lost; reads of the node's records say so, all others go on. When it is
// back it takes part again.
func TestSpreadNodeKilled(t *testing.T) {
	s := gateway.NewStack(t, servers.MySQLKind, 3, 10_000_000)
	s.IDs = ", order: spread, open_ranges: 3"
	direct := s.With(func(*gateway.Stack) {})
	var proxy *servers.Proxy
	s = s.With(func(s *gateway.Stack) { proxy, s.Nodes[1].DSN = servers.NewProxyFor(t, s.Nodes[1].DSN) })
	g := gateway.Start(t, s.Config())
	load := startTraffic(t, g)
	load.reached(t, 600)
	load.stop(t)
	perNode := map[int64]int{}
	onSecond, elsewhere := "", ""
	for key, id := range ownedIDs(t, direct, "records") {
		node := (id - 1) / s.RangeSize
		perNode[node]++
		if node == 1 {
			onSecond = key
		} else {
			elsewhere = key
		}
	}
	for node, count := range perNode {
		if count < 180 || count > 220 {
			t.Errorf("node-%d has %d of 600 rows", node+1, count)
		}
	}
	proxy.Refuse(true)
	made := load.made
	killed := time.Now()
	var late atomic.Int64
	err := gateway.Together(8, func(c int) error {
		for i := range 60 {
			key := fmt.Sprintf("down-%d-%d", c, i)
			a, err := g.Call("POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
			switch {
			case err != nil:
				return err
			case a.Status == http.StatusCreated:
				if err := made.add(key, a); err != nil {
					return err
				}
			case time.Since(killed) > time.Second:
				late.Add(1)
			}
			time.Sleep(25 * time.Millisecond)
		}
		return nil
	})
	if err != nil || late.Load() > 0 {
		t.Errorf("%d creates failed after the first second; %v", late.Load(), err)
	}
	if a := g.Do(t, "GET", "/v1/records/"+onSecond, ""); a.Status != http.StatusServiceUnavailable {
		t.Errorf("read of a record on the killed node: %d %s", a.Status, a.Body)
	}
	g.Expect(t, http.StatusOK, "GET", "/v1/records/"+elsewhere, "")
	proxy.Refuse(false)
	gateway.Poll(t, "the node takes part again", func() bool {
		a := g.Do(t, "POST", "/v1/records", "{}")
		var id int64
		_, _ = fmt.Sscanf(a.ETag(), "%d-", &id)
		return (id-1)/s.RangeSize == 1
	})
	made.readBack(t, g)
	g.Stop(t)
}

// TestSmallStep: with segments of ten IDs, a thousand creates at once get their IDs without an error.
func TestSmallStep(t *testing.T) {
	const creates = 1000
	stacks(t, func(t *testing.T, kind string) {
		s := gateway.NewStack(t, kind, 1, 10_000_000)
		s.IDs = ", step: {min: 10, max: 10}"
		g, made := gateway.Start(t, s.Config()), newAcknowledged()
		if err := gateway.Together(creates, func(c int) error { return made.create(g, fmt.Sprintf("record-%d", c)) }); err != nil {
			t.Error(err)
		}
		made.readBack(t, g)
		g.Stop(t)
	})
}

// TestIDsAtTheEdges: the first and the last ID of ranges, and one beyond 32 bits, are stored on the node that owns them and
// found there (I5).
func TestIDsAtTheEdges(t *testing.T) {
	const size, far = 10_000_000, 1 << 31
	for _, kind := range gateway.Kinds(t)[1:] {
		t.Run(kind, func(t *testing.T) {
			s := gateway.NewStack(t, kind, 3, size)
			s.Nodes[2].Ranges = fmt.Sprintf("3-%d", far/size+1)
			s.IDs = ", step: {min: 1, max: 1}"
			g, made := gateway.Start(t, s.Config()), newAcknowledged()
			made.post(t, g, "first", 1)
			g.Stop(t)
			issuer := gateway.OpenSQL(t, s.Issuer)
			exec := func(query string, args ...any) {
				t.Helper()
				if _, err := issuer.Exec(query, args...); err != nil {
					t.Fatal(err)
				}
			}
			exec("UPDATE id_segment SET next_id = ? WHERE range_no = 1", size)
			g = gateway.Start(t, s.Config())
			made.post(t, g, "edge", 2)
			g.Stop(t)
			exec("UPDATE id_segment SET next_id = hi WHERE range_no = 2")
			for number := int64(3); number <= far/size; number++ {
				exec("INSERT INTO id_segment (collection, range_no, lo, hi, stride, next_id) VALUES ('records', ?, ?, ?, 1, ?)",
					number, (number-1)*size+1, number*size+1, number*size+1)
			}
			exec("INSERT INTO id_segment (collection, range_no, lo, hi, stride, next_id) VALUES ('records', ?, ?, ?, 1, ?)",
				far/size+1, far/size*size+1, (far/size+1)*size+1, far)
			g = gateway.Start(t, s.Config())
			made.post(t, g, "far", 1)
			for _, id := range []int64{1, size, size + 1, far} {
				if made.keys[fmt.Sprint(id)] == "" {
					t.Errorf("no record has the ID %d: %v", id, made.keys)
				}
			}
			made.readBack(t, g)
			for node, ids := range map[int][]int64{0: {1, size}, 1: {size + 1}, 2: {far}} {
				db := gateway.OpenSQL(t, s.Nodes[node].DSN)
				for _, id := range ids {
					table := fmt.Sprintf("records_r%05d", (id-1)/size+1)
					if n := gateway.Column[int](t, db, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE id = %d", table, id)); n[0] != 1 {
						t.Errorf("row %d is not in %s of %s", id, table, s.Nodes[node].Name)
					}
				}
			}
			g.Stop(t)
		})
	}
}
