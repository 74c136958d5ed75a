package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// bulk creates records with keys from lo on, all in one request.
func bulk(t *testing.T, g *gateway.Process, lo, count int) {
	t.Helper()
	var body strings.Builder
	for i := range count {
		fmt.Fprintf(&body, "{\"key\":\"bulk-%d\",\"n\":%d}\n", lo+i, lo+i)
	}
	a := g.Expect(t, http.StatusOK, "POST", "/v1/records", body.String(), "Content-Type: application/x-ndjson")
	if n := strings.Count(a.Body, `"status":201`); n != count {
		t.Fatalf("created %d of %d: %.300s", n, count, a.Body)
	}
}

// readBulk checks that each of the records that bulk has made is there.
func readBulk(t *testing.T, g *gateway.Process, count int) {
	t.Helper()
	const readers = 16
	err := gateway.Together(readers, func(reader int) error {
		for i := reader; i < count; i += readers {
			a, err := g.Call("GET", fmt.Sprintf("/v1/records/bulk-%d", i), "")
			if want := fmt.Sprintf(`{"key":"bulk-%d","n":%d}`, i, i); err != nil || a.Status != http.StatusOK || a.Body != want {
				return fmt.Errorf("record bulk-%d: %d %s, %w", i, a.Status, a.Body, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// wantFsck runs gateway fsck and checks its exit code and that its report has each of the texts.
func wantFsck(t *testing.T, folder string, code int, flags []string, texts ...string) (printed string) {
	t.Helper()
	printed, got := gateway.Run(t, folder, nil, append([]string{"fsck"}, flags...)...)
	if got != code {
		t.Errorf("gateway fsck %v: exit code %d, want %d\n%s", flags, got, code, printed)
	}
	for _, text := range texts {
		if !strings.Contains(printed, text) {
			t.Errorf("gateway fsck %v does not say %q:\n%s", flags, text, printed)
		}
	}
	return printed
}

// loseIndex puts an empty index in the place of the one that a stack has.
func loseIndex(t *testing.T, s gateway.Stack, kind string) gateway.Stack {
	t.Helper()
	if kind != gateway.Embedded {
		return s.With(func(s *gateway.Stack) { s.Index = servers.FreshMongo(t) })
	}
	files, err := filepath.Glob(strings.TrimPrefix(s.Index, "sqlite://") + "*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no index at %s: %v", s.Index, err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestFsckRebuildsIndex: the index is lost as a whole. Fsck says so, and with --repair makes it again from the nodes, so
// that every record is readable (I3).
func TestFsckRebuildsIndex(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		const count = 5000
		s := gateway.NewStack(t, kind, 3, 2000)
		g := gateway.Start(t, s.Config())
		bulk(t, g, 0, count)
		g.Expect(t, http.StatusNoContent, "DELETE", "/v1/records/bulk-0", "")
		g.Expect(t, http.StatusCreated, "POST", "/v1/records", `{"key":"bulk-0","n":0}`)
		g.Stop(t)
		folder := gateway.WriteConfig(t, s.Config())
		wantFsck(t, folder, 0, []string{"--grace", "0s"}, "looked at 5,000 entries, 5,000 records and ", "no damage is left")

		s = loseIndex(t, s, kind)
		folder = gateway.WriteConfig(t, s.Config())
		printed := wantFsck(t, folder, 1, nil, "looked at 0 entries, 5,000 records", "5,000 stray records\n", " on node-", "and 4,980 more", "--repair")
		if strings.Contains(printed, "bulk-") {
			t.Errorf("keys were printed:\n%s", printed)
		}
		printed = wantFsck(t, folder, 0, []string{"--repair"}, "looked at 5,000 entries, 5,000 records", "5,000 stray records, 5,000 have their entries again", "no damage is left")
		t.Log(strings.Split(printed, "\n")[0])
		g = gateway.StartIn(t, folder)
		readBulk(t, g, count)
		g.Expect(t, http.StatusConflict, "POST", "/v1/records", `{"key":"bulk-7"}`)
		g.Stop(t)
	})
}

// TestFsckBesideGateways: entries are lost and made again while gateways serve: their requests notice nothing but that
// records which were not found are.
func TestFsckBesideGateways(t *testing.T) {
	for _, kind := range gateway.Kinds(t) {
		if kind == gateway.Embedded {
			continue // belongs to one process
		}
		t.Run(kind, func(t *testing.T) {
			const count = 3000
			s := gateway.NewStack(t, kind, 2, 10_000_000)
			folder := gateway.WriteConfig(t, s.Config())
			gateways := []*gateway.Process{gateway.StartIn(t, folder), gateway.StartIn(t, folder)}
			bulk(t, gateways[0], 0, count)
			load := startTraffic(t, gateways...)
			load.reached(t, 50)
			gateway.LoseEntries(t, s.Index, "records", "bulk-")
			gateways[1].Expect(t, http.StatusNotFound, "GET", "/v1/records/bulk-1", "")
			wantFsck(t, folder, 0, []string{"--repair", "--grace", "0s"}, "3,000 stray records, 3,000 have their entries again", "no damage is left")
			load.stop(t)
			readBulk(t, gateways[1], count)
			load.made.readBack(t, gateways[0])
			for _, g := range gateways {
				g.Stop(t)
			}
			wantFsck(t, folder, 0, []string{"--grace", "0s"}, "no damage is left")
		})
	}
}

// TestIndexDropped: gateways notice that the index was dropped under them and stop using it, so that no key is used a second
// time; a start is refused. Once fsck has made it again they go on, without a restart, with every record (I3, I4).
func TestIndexDropped(t *testing.T) {
	for _, kind := range gateway.Kinds(t) {
		if kind == gateway.Embedded {
			continue // its file belongs to the gateway while it runs
		}
		t.Run(kind, func(t *testing.T) {
			const count = 1000
			s := gateway.NewStack(t, kind, 2, 10_000_000)
			folder := gateway.WriteConfig(t, s.Config())
			g := gateway.StartIn(t, folder)
			bulk(t, g, 0, count)
			gateway.DropIndex(t, s.Index)
			gateway.Poll(t, "the gateway stops using the index", func() bool {
				return g.Do(t, "GET", "/readyz", "").Status == http.StatusServiceUnavailable
			})
			g.Expect(t, http.StatusServiceUnavailable, "POST", "/v1/records", `{"key":"bulk-1"}`)
			for _, command := range []string{"serve", "check"} {
				printed, code := gateway.Run(t, folder, nil, command)
				wantRefusal(t, printed, code, "index at", "has never been used, but the cluster", "gateway fsck --repair")
			}
			wantFsck(t, folder, 0, []string{"--repair", "--grace", "0s"}, "1,000 stray records, 1,000 have their entries again", "no damage is left")
			gateway.Poll(t, "the gateway uses the index again", func() bool {
				return g.Do(t, "GET", "/readyz", "").Status == http.StatusOK
			})
			readBulk(t, g, count)
			g.Expect(t, http.StatusConflict, "POST", "/v1/records", `{"key":"bulk-1"}`)
			g.Stop(t)
			wantFsck(t, folder, 0, []string{"--grace", "0s"}, "no damage is left")
		})
	}
}

// TestFsckAfterKill: what a gateway that was killed under load has left behind dangles at worst, and goes.
func TestFsckAfterKill(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		config := gateway.NewStack(t, kind, 2, 10_000_000).Config()
		g := gateway.Start(t, config)
		made, others := crash(t, g, g.Kill)
		folder := gateway.WriteConfig(t, config)
		wantFsck(t, folder, 0, []string{"--repair", "--grace", "0s"}, "no damage is left")
		if printed := wantFsck(t, folder, 0, []string{"--grace", "0s"}, "no damage is left"); strings.Contains(printed, "dangling") {
			t.Errorf("entries still dangle:\n%s", printed)
		}
		g = gateway.StartIn(t, folder)
		afterCrash(t, g, made, others)
		g.Stop(t)
	})
}

// TestFsckFindsDamage: damage that was made by hand is told, with keys only when asked for, and nothing is deleted that is
// a record.
func TestFsckFindsDamage(t *testing.T) {
	s := gateway.NewStack(t, servers.MySQLKind, 2, 10_000_000)
	folder := gateway.WriteConfig(t, s.Config())
	g := gateway.StartIn(t, folder)
	bulk(t, g, 0, 10)
	g.Stop(t)
	db := gateway.OpenSQL(t, s.Nodes[0].DSN)
	for id, key := range map[int]string{901: "bulk-3", 902: "secret-stray", 10_000_005: "secret-misplaced"} {
		_, err := db.Exec(`INSERT INTO records_r00001 (id, biz_key, state, version, token, created_at, updated_at, document)
			SELECT ?, ?, state, version, token, created_at, updated_at, document FROM records_r00001 WHERE state = 0 LIMIT 1`, id, []byte(key))
		if err != nil {
			t.Fatal(err)
		}
	}
	before := dump(t, s)
	printed := wantFsck(t, folder, 1, nil, "1 stray records\n  ID 902 in records_r00001 on node-1\n", "1 double records\n  ID 901 in records_r00001 on node-1, the other one is ID ",
		"1 misplaced rows\n  ID 10000005 in records_r00001 on node-1\n", "there is damage")
	if strings.Contains(printed, "secret") || strings.Contains(printed, "bulk") {
		t.Errorf("keys were printed:\n%s", printed)
	}
	if dump(t, s) != before {
		t.Error("a look has changed something")
	}
	wantFsck(t, folder, 1, []string{"--show-keys", "--collection", "records"}, `ID 902 in records_r00001 on node-1, key "secret-stray"`)
	wantFsck(t, folder, 1, []string{"--repair"}, "1 stray records, 1 have their entries again", "needs a person")
	g = gateway.StartIn(t, folder)
	g.Expect(t, http.StatusOK, "GET", "/v1/records/secret-stray", "")
	g.Expect(t, http.StatusOK, "GET", "/v1/records/bulk-3", "")
	g.Stop(t)
	if n := gateway.Column[int](t, db, "SELECT COUNT(*) FROM records_r00001 WHERE state = 0"); n[0] != 13 {
		t.Errorf("%d records are left", n[0])
	}
}

// TestSweeperOfFleet: of two gateways one sweeps, and both say which; turned off while it runs, it stops.
func TestSweeperOfFleet(t *testing.T) {
	for _, kind := range gateway.Kinds(t) {
		if kind == gateway.Embedded {
			continue // belongs to one process
		}
		t.Run(kind, func(t *testing.T) {
			config := gateway.NewStack(t, kind, 1, 10_000_000).Config()
			ask := func(g *gateway.Process) (state, holder string, passes bool) {
				a, err := gateway.CallAt(g.Admin, "GET", "/admin/sweeper", "")
				if err != nil || a.Status != http.StatusOK {
					t.Fatalf("%+v, %v", a, err)
				}
				var body struct {
					State, Holder string
					LastPass      *struct{ Counts struct{ Rows int } } `json:"last_pass"`
				}
				if err := json.Unmarshal([]byte(a.Body), &body); err != nil {
					t.Fatal(err)
				}
				return body.State, body.Holder, body.LastPass != nil
			}
			folder := gateway.WriteConfig(t, config)
			first := gateway.StartIn(t, folder)
			gateway.Poll(t, "the first gateway sweeps", func() bool {
				state, _, passes := ask(first)
				return state == "active" && passes
			})
			second := gateway.Start(t, config)
			_, holder, _ := ask(first)
			gateway.Poll(t, "the second one stands by", func() bool {
				state, says, _ := ask(second)
				return state == "standby" && says == holder
			})
			if first.Metric(t, "gateway_sweeper_active") != 1 || second.Metric(t, "gateway_sweeper_active") != 0 || first.Metric(t, "gateway_sweeper_passes_total") < 1 {
				t.Error("the metrics say otherwise")
			}
			if err := os.WriteFile(filepath.Join(folder, "config.yaml"), []byte(config+"sweeper: {rows_per_second: 0}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			gateway.Poll(t, "it is off", func() bool {
				state, _, _ := ask(first)
				return state == "off" && first.Metric(t, "gateway_sweeper_active") == 0
			})
		})
	}
}

// TestFsckRefused: what cannot be looked at is named, and so is what is in use.
func TestFsckRefused(t *testing.T) {
	config := gateway.NewStack(t, gateway.Embedded, 2, 10_000_000).Config()
	folder := gateway.WriteConfig(t, config)
	wantFsck(t, folder, 1, nil, "no gateway has been started with this config yet")
	g := gateway.StartIn(t, folder)
	wantFsck(t, folder, 1, nil, "in use by another gateway process", "one process at a time", "/admin/sweeper")
	g.Stop(t)
	wantFsck(t, folder, 1, []string{"--collection", "orders"}, `there is no collection "orders"; the config has records`)

	s := gateway.NewStack(t, servers.MySQLKind, 2, 10_000_000)
	wantFsck(t, gateway.WriteConfig(t, s.Config()), 1, nil, "has never been started")
	g = gateway.Start(t, s.Config())
	bulk(t, g, 0, 10)
	g.Stop(t)
	for name, away := range map[string]func(s *gateway.Stack) *string{
		"node-2": func(s *gateway.Stack) *string { return &s.Nodes[1].DSN }, "index": func(s *gateway.Stack) *string { return &s.Index },
	} {
		folder := gateway.WriteConfig(t, s.With(func(s *gateway.Stack) {
			u, err := url.Parse(*away(s))
			if err != nil {
				t.Fatal(err)
			}
			u.Host = "127.0.0.1:1" // nobody listens there
			*away(s) = u.String()
		}).Config())
		wantFsck(t, folder, 1, nil, "gateway: ", name)
	}
	wantFsck(t, gateway.WriteConfig(t, s.With(func(s *gateway.Stack) { s.Nodes[0].DSN, s.Nodes[1].DSN = s.Nodes[1].DSN, s.Nodes[0].DSN }).Config()), 1, nil, "are two DSNs swapped")
}
