package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"keyrange/test/servers"
)

// post creates records with keys of a prefix until so many were acknowledged, or one is refused.
func (k *acknowledged) post(t *testing.T, g *gateway, prefix string, count int) (refused answer) {
	t.Helper()
	for i := range count {
		key := fmt.Sprintf("%s-%d", prefix, i)
		a := g.do(t, "POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
		if a.status != http.StatusCreated {
			return a
		}
		if err := k.add(key, a); err != nil {
			t.Fatal(err)
		}
	}
	return answer{}
}

// refusedByIssuer posts records until one is refused, and checks that the gateway said why.
func (k *acknowledged) refusedByIssuer(t *testing.T, g *gateway, prefix string) {
	t.Helper()
	const atHand = 25_000 // more than two segments of the largest size
	a := k.post(t, g, prefix, atHand)
	if a.status != http.StatusServiceUnavailable {
		t.Errorf("create with an issuer that cannot be trusted: %d %s", a.status, a.body)
	}
	poll(t, "an alarm", func() bool { return strings.Contains(g.output.String(), `"level":"ERROR"`) })
}

// resumed waits until records can be created again.
func (k *acknowledged) resumed(t *testing.T, g *gateway, prefix string) {
	t.Helper()
	tries := 0
	poll(t, "creates go on", func() bool {
		tries++
		return k.post(t, g, fmt.Sprintf("%s-%d", prefix, tries), 1).status == 0
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
			s := newStack(t, servers.MySQLKind, 1, 10_000_000)
			s.ids = ", step: {min: 10, max: 100}"
			folder := writeConfig(t, s.config())
			made, issuer := newAcknowledged(), openSQL(t, s.issuer)
			spoil := func() {
				t.Helper()
				if _, err := issuer.Exec(damage); err != nil {
					t.Fatal(err)
				}
			}
			mend := func(g *gateway, prefix string) {
				t.Helper()
				if printed, code := run(t, folder, nil, "issuers"); code == 0 || !strings.Contains(printed, "BEHIND") {
					t.Errorf("issuers: exit code %d\n%s", code, printed)
				}
				if printed, code := run(t, folder, nil, "issuers", "repair"); code != 0 || !strings.Contains(printed, "mended: 1\n") {
					t.Errorf("issuers repair: exit code %d\n%s", code, printed)
				}
				made.resumed(t, g, prefix)
			}
			g := startIn(t, folder)
			err := together(16, func(c int) error {
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
			g.stop(t)
			spoil()
			g = startIn(t, folder)
			made.refusedByIssuer(t, g, "stopped")
			g.expect(t, http.StatusOK, "PUT", "/v1/records/first-0-0", `{"key":"first-0-0"}`)
			mend(g, "mended-again")
			if printed, code := run(t, folder, nil, "issuers"); code != 0 || strings.Contains(printed, "BEHIND") {
				t.Errorf("issuers: exit code %d\n%s", code, printed)
			}
			made.readBack(t, g)
			g.stop(t)
		})
	}
}

// TestGatewayPaused: a gateway that is stopped over several leases of another one, and goes on, issues no ID twice (I1).
func TestGatewayPaused(t *testing.T) {
	s := newStack(t, servers.MySQLKind, 1, 10_000_000)
	s.ids = ", step: {min: 10, max: 10}"
	first, second := startGateway(t, s.config()), startGateway(t, s.config())
	made := newAcknowledged()
	both := func(round string, gateways ...*gateway) {
		t.Helper()
		err := together(8*len(gateways), func(c int) error {
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
	if err := first.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	go func() { underWay <- made.create(first, "sent-to-the-paused-one") }()
	both("meanwhile", second)
	if err := first.command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-underWay; err != nil {
		t.Error(err)
	}
	both("after", first, second)
	made.readBack(t, first)
	first.stop(t)
	second.stop(t)
}

// TestThreeIssuers: of three issuers two are killed in turn under load: no create fails, all IDs are distinct (I1). Their
// number and order are part of what is stored.
func TestThreeIssuers(t *testing.T) {
	s := newStack(t, servers.MySQLKind, 3, 10_000_000)
	s.moreIssuers = servers.Nodes(t, 2)
	plain := s
	proxies := make([]*servers.Proxy, 3)
	s.moreIssuers = make([]string, 2)
	proxies[0], s.issuer = servers.NewProxyFor(t, plain.issuer)
	for i, dsn := range plain.moreIssuers {
		proxies[i+1], s.moreIssuers[i] = servers.NewProxyFor(t, dsn)
	}
	s.ids = ", step: {min: 10, max: 20}"
	g := startGateway(t, s.config())
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
	poll(t, "all issuers in use", func() bool {
		a := g.do(t, "GET", "/readyz", "")
		return strings.Contains(a.body, `"status":"ready"`) && strings.Contains(a.body, `"name":"issuer-3"`)
	})
	g.stop(t)
	swapped := s.with(func(s *stack) { s.moreIssuers = []string{s.moreIssuers[1], s.moreIssuers[0]} })
	printed, code := run(t, writeConfig(t, swapped.config()), nil, "serve")
	wantRefusal(t, printed, code, "ids.issuers[1]", "it is issuer 3, but config lists it as number 2")
	fewer := s.with(func(s *stack) { s.moreIssuers = s.moreIssuers[:1] })
	fewerFolder := writeConfig(t, fewer.config())
	printed, code = run(t, fewerFolder, nil, "serve")
	wantRefusal(t, printed, code, "issuer 1 of 3, but config lists 2", "gateway issuers rebuild")
	printed, code = run(t, fewerFolder, nil, "issuers", "rebuild")
	wantRefusal(t, printed, code, "stop every gateway first")
	if printed, code := run(t, fewerFolder, nil, "issuers", "rebuild", "--stopped"); code != 0 || !strings.Contains(printed, "issuer-2, 2 of 2") {
		t.Errorf("issuers rebuild: exit code %d\n%s", code, printed)
	}
	g = startIn(t, fewerFolder)
	if a := load.made.post(t, g, "with-two-issuers", 100); a.status != 0 {
		t.Errorf("create with another number of issuers: %d %s", a.status, a.body)
	}
	load.made.readBack(t, g)
	g.stop(t)
}

// TestIssuerLost: a lost issuer is made anew while the gateway runs on the others.
func TestIssuerLost(t *testing.T) {
	s := newStack(t, servers.MySQLKind, 1, 10_000_000)
	s.moreIssuers = servers.Nodes(t, 1)
	g := startGateway(t, s.config())
	made := newAcknowledged()
	made.post(t, g, "before", 50)
	g.stop(t)
	s.moreIssuers = servers.Nodes(t, 1) // an empty database in its place
	folder := writeConfig(t, s.config())
	printed, code := run(t, folder, nil, "serve")
	wantRefusal(t, printed, code, "ids.issuers[1]", "is empty", "gateway issuers rebuild")
	if printed, code := run(t, folder, nil, "issuers", "rebuild", "--issuer", "2"); code != 0 || !strings.Contains(printed, "rebuilt: issuer-2") {
		t.Errorf("issuers rebuild: exit code %d\n%s", code, printed)
	}
	g = startIn(t, folder)
	made.post(t, g, "after", 50)
	made.readBack(t, g)
	g.stop(t)
}

// TestStartWithoutIssuer: with the issuer down a gateway starts, reads, updates and deletes; it creates once the issuer is
// back, without a restart.
func TestStartWithoutIssuer(t *testing.T) {
	s := newStack(t, servers.MySQLKind, 1, 10_000_000)
	var proxy *servers.Proxy
	proxy, s.issuer = servers.NewProxyFor(t, s.issuer)
	folder := writeConfig(t, s.config())
	g := startIn(t, folder)
	for _, key := range []string{"a", "b"} {
		g.expect(t, http.StatusCreated, "POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
	}
	g.stop(t)
	proxy.Refuse(true)
	g = startIn(t, folder)
	if a := g.expect(t, http.StatusOK, "GET", "/readyz", ""); !strings.Contains(a.body, `"status":"degraded"`) {
		t.Errorf("readyz: %s", a.body)
	}
	g.expect(t, http.StatusOK, "GET", "/v1/records/a", "")
	g.expect(t, http.StatusOK, "PUT", "/v1/records/a", `{"n":1}`)
	g.expect(t, http.StatusNoContent, "DELETE", "/v1/records/b", "")
	if a := g.expect(t, http.StatusServiceUnavailable, "POST", "/v1/records", `{"key":"c"}`); a.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %s", a.body)
	}
	proxy.Refuse(false)
	poll(t, "creates go on", func() bool { return g.do(t, "POST", "/v1/records", `{"key":"c"}`).status == http.StatusCreated })
	g.wantReady(t, 1)
	g.stop(t)
}

// TestSpreadNodeKilled: creates spread over three nodes evenly. With one node killed they go on without an error after the
// first second, and none that was acknowledged is lost; reads of the node's records say so, all others go on. When it is
// back it takes part again.
func TestSpreadNodeKilled(t *testing.T) {
	s := newStack(t, servers.MySQLKind, 3, 10_000_000)
	s.ids = ", order: spread, open_ranges: 3"
	direct := s.with(func(*stack) {})
	var proxy *servers.Proxy
	s = s.with(func(s *stack) { proxy, s.nodes[1].dsn = servers.NewProxyFor(t, s.nodes[1].dsn) })
	g := startGateway(t, s.config())
	load := startTraffic(t, g)
	load.reached(t, 600)
	load.stop(t)
	perNode := map[int64]int{}
	onSecond, elsewhere := "", ""
	for key, id := range ownedIDs(t, direct, "records") {
		node := (id - 1) / s.rangeSize
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
	err := together(8, func(c int) error {
		for i := range 60 {
			key := fmt.Sprintf("down-%d-%d", c, i)
			a, err := g.call("POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
			switch {
			case err != nil:
				return err
			case a.status == http.StatusCreated:
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
	if a := g.do(t, "GET", "/v1/records/"+onSecond, ""); a.status != http.StatusServiceUnavailable {
		t.Errorf("read of a record on the killed node: %d %s", a.status, a.body)
	}
	g.expect(t, http.StatusOK, "GET", "/v1/records/"+elsewhere, "")
	proxy.Refuse(false)
	poll(t, "the node takes part again", func() bool {
		a := g.do(t, "POST", "/v1/records", "{}")
		var id int64
		_, _ = fmt.Sscanf(a.etag(), "%d-", &id)
		return (id-1)/s.rangeSize == 1
	})
	made.readBack(t, g)
	g.stop(t)
}

// TestSmallStep: with segments of ten IDs, a thousand creates at once get their IDs without an error.
func TestSmallStep(t *testing.T) {
	const creates = 1000
	stacks(t, func(t *testing.T, kind string) {
		s := newStack(t, kind, 1, 10_000_000)
		s.ids = ", step: {min: 10, max: 10}"
		g, made := startGateway(t, s.config()), newAcknowledged()
		if err := together(creates, func(c int) error { return made.create(g, fmt.Sprintf("record-%d", c)) }); err != nil {
			t.Error(err)
		}
		made.readBack(t, g)
		g.stop(t)
	})
}

// TestIDsAtTheEdges: the first and the last ID of ranges, and one beyond 32 bits, are stored on the node that owns them and
// found there (I5).
func TestIDsAtTheEdges(t *testing.T) {
	const size, far = 10_000_000, 1 << 31
	for _, kind := range stackKinds(t)[1:] {
		t.Run(kind, func(t *testing.T) {
			s := newStack(t, kind, 3, size)
			s.nodes[2].ranges = fmt.Sprintf("3-%d", far/size+1)
			s.ids = ", step: {min: 1, max: 1}"
			g, made := startGateway(t, s.config()), newAcknowledged()
			made.post(t, g, "first", 1)
			g.stop(t)
			issuer := openSQL(t, s.issuer)
			exec := func(query string, args ...any) {
				t.Helper()
				if _, err := issuer.Exec(query, args...); err != nil {
					t.Fatal(err)
				}
			}
			exec("UPDATE id_segment SET next_id = ? WHERE range_no = 1", size)
			g = startGateway(t, s.config())
			made.post(t, g, "edge", 2)
			g.stop(t)
			exec("UPDATE id_segment SET next_id = hi WHERE range_no = 2")
			for number := int64(3); number <= far/size; number++ {
				exec("INSERT INTO id_segment (collection, range_no, lo, hi, stride, next_id) VALUES ('records', ?, ?, ?, 1, ?)",
					number, (number-1)*size+1, number*size+1, number*size+1)
			}
			exec("INSERT INTO id_segment (collection, range_no, lo, hi, stride, next_id) VALUES ('records', ?, ?, ?, 1, ?)",
				far/size+1, far/size*size+1, (far/size+1)*size+1, far)
			g = startGateway(t, s.config())
			made.post(t, g, "far", 1)
			for _, id := range []int64{1, size, size + 1, far} {
				if made.keys[fmt.Sprint(id)] == "" {
					t.Errorf("no record has the ID %d: %v", id, made.keys)
				}
			}
			made.readBack(t, g)
			for node, ids := range map[int][]int64{0: {1, size}, 1: {size + 1}, 2: {far}} {
				db := openSQL(t, s.nodes[node].dsn)
				for _, id := range ids {
					table := fmt.Sprintf("records_r%05d", (id-1)/size+1)
					if n := column[int](t, db, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE id = %d", table, id)); n[0] != 1 {
						t.Errorf("row %d is not in %s of %s", id, table, s.nodes[node].name)
					}
				}
			}
			g.stop(t)
		})
	}
}
