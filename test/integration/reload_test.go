package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// reloadPath asks for a reload, on the operators' listener.
const (
	reloadPath = "/admin/reload"
	// halfFile is how long half of a file is there to be seen.
	halfFile = 10 * time.Millisecond
)

// rewrite replaces the text of a config file in place, as an editor may: cut to nothing, then written in two parts.
func rewrite(t *testing.T, folder, text string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(folder, gateway.ConfigName), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, part := range []string{text[:len(text)*3/4], text[len(text)*3/4:]} {
		if _, err := file.WriteString(part); err != nil {
			t.Fatal(err)
		}
		time.Sleep(halfFile) // so that there is half a file to be seen
	}
}

// logged waits until a gateway has logged a text so many times.
func logged(t *testing.T, g *gateway.Process, text string, times int) {
	t.Helper()
	gateway.Poll(t, fmt.Sprintf("%q logged %d times", text, times), func() bool { return strings.Count(g.Output.String(), text) >= times })
}

// reload asks for a reload and looks for the status and for texts in the answer.
func reload(t *testing.T, g *gateway.Process, status int, wants ...string) {
	t.Helper()
	a, err := gateway.CallAt(g.Admin, "POST", reloadPath, "")
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != status {
		t.Errorf("reload: %d %s, want %d", a.Status, a.Body, status)
	}
	for _, want := range wants {
		if !strings.Contains(a.Body, want) {
			t.Errorf("reload: %s, want %q in it", a.Body, want)
		}
	}
}

// wantMetric checks one line of the metrics.
func wantMetric(t *testing.T, g *gateway.Process, line string) {
	t.Helper()
	a, err := gateway.CallAt(g.Admin, "GET", "/metrics", "")
	if err != nil || !strings.Contains(a.Body, "\n"+line+"\n") {
		t.Errorf("metrics without %q: %v", line, err)
	}
}

// wantReady checks that a gateway is ready and stands on so many nodes.
func wantReady(t *testing.T, g *gateway.Process, nodes int) {
	t.Helper()
	a := g.Expect(t, http.StatusOK, "GET", "/readyz", "")
	if !strings.HasPrefix(a.Body, `{"status":"ready"`) || strings.Count(a.Body, `"kind":"node"`) != nodes {
		t.Errorf("readyz: %s, want %d nodes", a.Body, nodes)
	}
}

// TestReloadAppendsNode: a node is appended by editing the file under load: no request fails, no row moves, and new IDs
// land on the new node (CASES 36, I5, I7).
func TestReloadAppendsNode(t *testing.T) {
	const size, editAt, creates = 250, 500, 950
	s := gateway.NewStack(t, servers.MySQLKind, 4, size)
	folder := gateway.WriteConfig(t, s.With(func(s *gateway.Stack) { s.Nodes = s.Nodes[:3] }).Config())
	g := gateway.StartIn(t, folder)
	load := startTraffic(t, g)
	load.reached(t, editAt)
	before := ownedIDs(t, s, "records")
	rewrite(t, folder, s.Config())
	logged(t, g, `"config applied","instance"`, 1)
	load.reached(t, creates)
	load.stop(t)
	wantReady(t, g, 4)
	after := ownedIDs(t, s, "records")
	for key, id := range before {
		if after[key] != id {
			t.Errorf("%s was row %d and is row %d", key, id, after[key])
		}
	}
	onNew := 0
	for id, key := range load.made.keys {
		if fmt.Sprint(after[key]) != id {
			t.Errorf("%s was acknowledged as %s, its row is at %d", key, id, after[key])
		}
		if after[key] > 3*size {
			onNew++
		}
	}
	if onNew < creates-3*size {
		t.Errorf("%d records are on the new node, want %d", onNew, creates-3*size)
	}
	if strings.Contains(g.Output.String(), "config refused") {
		t.Error("half a file was judged")
	}
	load.made.readBack(t, g)
	g.Stop(t)
	g = gateway.StartIn(t, folder)
	load.made.readBack(t, g)
	g.Stop(t)
}

// TestReloadAfterExhaustion: creates that were refused because the last range is full go on when one is appended (CASES 34).
func TestReloadAfterExhaustion(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		const size = 20
		s := gateway.NewStack(t, kind, 2, size)
		folder := gateway.WriteConfig(t, s.With(func(s *gateway.Stack) { s.Nodes = s.Nodes[:1] }).Config())
		g := gateway.StartIn(t, folder)
		made := newAcknowledged()
		for i := range size {
			if err := made.create(g, fmt.Sprint("record-", i)); err != nil {
				t.Fatal(err)
			}
		}
		g.Expect(t, http.StatusInsufficientStorage, "POST", "/v1/records", `{"key":"more"}`)
		rewrite(t, folder, s.Config())
		gateway.Poll(t, "a create that is not refused", func() bool {
			a := g.Do(t, "POST", "/v1/records", `{"key":"more"}`)
			if a.Status != http.StatusCreated && a.Code() != "range_exhausted" {
				t.Errorf("create: %d %s", a.Status, a.Body)
			}
			return a.Status == http.StatusCreated
		})
		if err := made.create(g, "and-more"); err != nil {
			t.Error(err)
		}
		made.readBack(t, g)
		g.Stop(t)
	})
}

// withBodyLimit is a config with another server.max_body_bytes.
func withBodyLimit(config, limit string) string {
	return strings.Replace(config, "server: {", "server: {max_body_bytes: "+limit+", ", 1)
}

// TestReloadRewrites: fifty rewrites in place and five broken files under load. No request fails, no half of a file is
// judged, each refusal is logged once, and what was in force stays in force (CASES 38).
func TestReloadRewrites(t *testing.T) {
	const rounds, rewrites = 5, 10
	s := gateway.NewStack(t, servers.MySQLKind, 3, 1_000_000)
	config := s.Config()
	contents := []string{withBodyLimit(config, "2KiB"), withBodyLimit(config, "4KiB")}
	body := fmt.Sprintf(`{"v":%q}`, strings.Repeat("x", 3<<10)) // between the two limits
	broken := []string{
		"",
		contents[1][:len(contents[1])-20],
		contents[1] + "sever: {}\n",
		s.With(func(s *gateway.Stack) { s.Nodes = s.Nodes[:2] }).Config(),
		strings.Replace(contents[1], `listen: "127.0.0.1:0"`, `listen: "127.0.0.1:1"`, 1),
	}
	folder := gateway.WriteConfig(t, contents[1])
	g := gateway.StartIn(t, folder)
	load := startTraffic(t, g)
	limit := func(i int) func() bool { // whether contents[i] is in force
		return func() bool {
			a := g.Do(t, "PUT", "/v1/records/large", body)
			return a.Status == http.StatusRequestEntityTooLarge == (i == 0)
		}
	}
	for round := range rounds {
		for i := range rewrites {
			rewrite(t, folder, contents[i%2])
			if i < 2 {
				gateway.Poll(t, "the content is in force", limit(i))
			}
		}
		gateway.Poll(t, "the last content is in force", limit(1))
		rewrite(t, folder, broken[round])
		logged(t, g, "config refused", round+1)
		wantMetric(t, g, "gateway_config_last_reload_ok 0")
		wantReady(t, g, 3)
		if !limit(1)() {
			t.Errorf("a broken file has changed what is in force: %q", broken[round])
		}
	}
	rewrite(t, folder, contents[0])
	gateway.Poll(t, "the last content is in force", limit(0))
	load.stop(t)
	if n := strings.Count(g.Output.String(), `"config refused"`); n != rounds {
		t.Errorf("%d refusals were logged, want %d", n, rounds)
	}
	wantMetric(t, g, `gateway_config_reloads_total{result="refused"} 5`)
	wantMetric(t, g, "gateway_config_last_reload_ok 1")
	load.made.readBack(t, g)
	g.Stop(t)
}

// TestReloadAsked: operators can ask for a reload and get the changes, or all faults; SIGHUP asks as well.
func TestReloadAsked(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		s := gateway.NewStack(t, kind, 3, 1000)
		two := s.With(func(s *gateway.Stack) { s.Nodes = s.Nodes[:2] }).Config()
		folder := gateway.WriteConfig(t, two)
		path := filepath.Join(folder, gateway.ConfigName)
		g := gateway.StartIn(t, folder)
		g.Expect(t, http.StatusNotFound, "POST", reloadPath, "")
		reload(t, g, http.StatusOK, `{"result":"unchanged","changes":[]}`)
		write := func(text string) { // as a whole, and reloaded by whoever comes first
			t.Helper()
			if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}
		write(withBodyLimit(two, "10") + "nods: []\n")
		reload(t, g, http.StatusUnprocessableEntity, `"code":"config_refused"`, "server.max_body_bytes: must be", "nods: unknown key; did you mean nodes?")
		wantReady(t, g, 2)
		write(withBodyLimit(s.Config(), "2KiB") + "log: {level: debug}\n")
		reload(t, g, http.StatusOK, `"result":"`)
		wantReady(t, g, 3)
		logged(t, g, `"changes":["server.max_body_bytes: 1MiB -> 2KiB","log.level: info -> debug","nodes[2]: appended (node-3, ranges 3)"]`, 1)
		write(withBodyLimit(s.Config(), "3KiB"))
		if err := g.Command.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		logged(t, g, "server.max_body_bytes: 2KiB -> 3KiB", 1)
		if err := g.Command.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		logged(t, g, `"trigger":"SIGHUP"`, 1)
		g.Stop(t)
	})
}

// TestReloadRefused: a file that contradicts the running config or the databases is refused as a whole, with both sides
// named, and the gateway stays as it is (CASES 35, I7).
func TestReloadRefused(t *testing.T) {
	s := gateway.NewStack(t, servers.MySQLKind, 4, 1000)
	other := gateway.NewStack(t, servers.MySQLKind, 1, 1000)
	gateway.Start(t, other.Config()).Stop(t)
	running := s.With(func(s *gateway.Stack) { s.Nodes = s.Nodes[:3] })
	folder := gateway.WriteConfig(t, running.Config())
	g := gateway.StartIn(t, folder)
	g.Expect(t, http.StatusCreated, "POST", "/v1/records", `{"key":"there"}`)
	cases := []struct {
		name   string
		change func(s *gateway.Stack)
		edit   func(config string) string
		words  []string
	}{
		{name: "node dropped", change: func(s *gateway.Stack) { s.Nodes = s.Nodes[:2] }, words: []string{"nodes[2]: a node can not be dropped", "running node-3"}},
		{name: "DSNs swapped", change: func(s *gateway.Stack) { s.Nodes[0].DSN, s.Nodes[1].DSN = s.Nodes[1].DSN, s.Nodes[0].DSN },
			words: []string{"nodes[0] (node-1) at", "are two DSNs swapped"}},
		{name: "node renamed", change: func(s *gateway.Stack) { s.Nodes[1].Name = "node-b" }, words: []string{"nodes[1].name", "running node-2, config says node-b"}},
		{name: "nodes reordered", change: func(s *gateway.Stack) { s.Nodes[0], s.Nodes[1] = s.Nodes[1], s.Nodes[0] }, words: []string{"nodes[0].name", "running node-1, config says node-2"}},
		{name: "range given away", change: func(s *gateway.Stack) { s.Nodes[0].Ranges, s.Nodes[1].Ranges = "1-2", "4" }, words: []string{"nodes[1].ranges: a node never gives ranges away", "running 2, config says 4"}},
		{name: "ranges overlap", change: func(s *gateway.Stack) { s.Nodes[0].Ranges = "1-2" }, words: []string{"nodes[1].ranges", "overlaps"}},
		{name: "other range size", change: func(s *gateway.Stack) { s.RangeSize = 2000 }, words: []string{"ranges.size: can never change", "running 1000, config says 2000"}},
		{name: "listener moved and a node appended", change: func(r *gateway.Stack) { r.Nodes = append(r.Nodes, s.Nodes[3]) },
			edit:  func(config string) string { return strings.Replace(config, "127.0.0.1:0", "127.0.0.1:1", 1) },
			words: []string{"server.listen: needs a restart (running 127.0.0.1:0, config says 127.0.0.1:1)"}},
		{name: "another cluster's node appended", change: func(s *gateway.Stack) {
			s.Nodes = append(s.Nodes, gateway.Node{Name: "node-4", DSN: other.Nodes[0].DSN, Ranges: "4"})
		},
			words: []string{"node-4", "another cluster"}},
		{name: "a node that is away appended", change: func(s *gateway.Stack) {
			s.Nodes = append(s.Nodes, gateway.Node{Name: "node-4", DSN: "mysql://root:hidden-word@127.0.0.1:1/none", Ranges: "4"})
		},
			words: []string{"nodes[3] (node-4)"}},
	}
	// Without the issuer, because the gateway may be fetching its next segment from it.
	stored := s.With(func(s *gateway.Stack) { s.Issuer = s.Nodes[0].DSN })
	before := dump(t, stored)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			config := running.With(c.change).Config()
			if c.edit != nil {
				config = c.edit(config)
			}
			rewrite(t, folder, config)
			reload(t, g, http.StatusUnprocessableEntity, append(c.words, `"code":"config_refused"`)...)
			wantMetric(t, g, "gateway_config_last_reload_ok 0")
			wantReady(t, g, 3)
			g.Expect(t, http.StatusOK, "GET", "/v1/records/there", "")
			if after := dump(t, stored); after != before {
				t.Error("a refused reload changed the databases")
				compareLines(t, after, before)
			}
		})
	}
	if strings.Contains(g.Output.String(), "hidden-word") {
		t.Error("a password is in the log")
	}
	rewrite(t, folder, s.Config())
	logged(t, g, "nodes[3]: appended (node-4, ranges 4)", 1)
	wantReady(t, g, 4)
	wantMetric(t, g, "gateway_config_last_reload_ok 1")
	g.Stop(t)
}

// TestReloadRollout: while a larger config is rolled out, a gateway that has it and one that does not serve the same
// records; what only the first knows how to find is 503 on the second, and never a wrong answer (I3, I4, I5).
func TestReloadRollout(t *testing.T) {
	const size = 150
	s := gateway.NewStack(t, servers.MySQLKind, 4, size)
	oldFolder := gateway.WriteConfig(t, s.With(func(s *gateway.Stack) { s.Nodes = s.Nodes[:3] }).Config())
	behind, ahead := gateway.StartIn(t, oldFolder), gateway.Start(t, s.Config())
	load := startTraffic(t, behind, ahead)
	load.reached(t, 2*size)
	load.stop(t)
	made := load.made
	for i := 0; made.count.Load() < 3*size+20; i++ { // past the end of what one of them knows
		if err := made.create(ahead, fmt.Sprint("ahead-", i)); err != nil {
			t.Fatal(err)
		}
	}
	known, beyond := newAcknowledged(), newAcknowledged()
	ids := ownedIDs(t, s, "records")
	for id, key := range made.keys {
		if ids[key] > 3*size {
			beyond.keys[id] = key
		} else {
			known.keys[id] = key
		}
	}
	if len(beyond.keys) < 20 {
		t.Fatalf("%d records are beyond the old config", len(beyond.keys))
	}
	made.readBack(t, ahead)
	known.readBack(t, behind)
	for id, key := range beyond.keys {
		for _, c := range []struct{ method, path, body string }{
			{"GET", "/v1/records/" + key, ""}, {"HEAD", "/v1/records/" + key, ""}, {"DELETE", "/v1/records/" + key, ""},
			{"PUT", "/v1/records/" + key, `{"v":1}`}, {"POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key)},
		} {
			// A create finds no ID left before it looks at the key: that is no answer about the record.
			if a := behind.Do(t, c.method, c.path, c.body); a.Status != http.StatusServiceUnavailable && (c.method != "POST" || a.Code() != "range_exhausted") {
				t.Errorf("%s of row %s on the gateway that is behind: %d %s", c.method, id, a.Status, a.Body)
			}
		}
	}
	for i := range size { // it may have a few IDs of the last range in hand
		key := fmt.Sprint("behind-", i)
		a := behind.Do(t, "POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
		if a.Code() == "range_exhausted" {
			break
		}
		if a.Status != http.StatusCreated || made.add(key, a) != nil {
			t.Errorf("create on the gateway that is behind: %d %s", a.Status, a.Body)
		}
	}
	made.readBack(t, ahead)
	rewrite(t, oldFolder, s.Config())
	logged(t, behind, "nodes[3]: appended (node-4, ranges 4)", 1)
	made.readBack(t, behind)
	if err := made.create(behind, "no-room"); err != nil {
		t.Error(err)
	}
	made.readBack(t, ahead)
	behind.Stop(t)
	ahead.Stop(t)
}
