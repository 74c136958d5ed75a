package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// wantRefusal checks that a command refused to go on, and said why.
func wantRefusal(t *testing.T, printed string, code int, words ...string) {
	t.Helper()
	if code != 1 {
		t.Errorf("exit code: got %d, want 1\n%s", code, printed)
	}
	for _, word := range words {
		if !strings.Contains(printed, word) {
			t.Errorf("the message does not say %q:\n%s", word, printed)
		}
	}
	if strings.Contains(printed, "goroutine ") {
		t.Errorf("it panicked:\n%s", printed)
	}
}

// tiny is a config file with what matters replaced; what is empty has its default.
func tiny(collections, size, nodes string) string {
	return fmt.Sprintf("server: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\ncollections: [%s]\nranges: {size: %s}\nnodes:\n%s", collections, size, nodes)
}

// good parts of a tiny config.
const (
	goodCollections = "{name: records, key: key}"
	goodSize        = "1000"
	goodNodes       = "  - {name: node-1, dsn: sqlite://data/node-1.db, ranges: \"1\"}\n  - {name: node-2, dsn: sqlite://data/node-2.db, ranges: \"2\"}\n"
)

// nodeLines is goodNodes with other databases and ranges.
func nodeLines(dsn1, ranges1, dsn2, ranges2 string) string {
	return fmt.Sprintf("  - {name: node-1, dsn: %s, ranges: %s}\n  - {name: node-2, dsn: %s, ranges: %s}\n", dsn1, ranges1, dsn2, ranges2)
}

// TestConfigRefused: a config file that cannot be right is refused by serve and by check with the key, the line and
// both sides of a contradiction, and nothing is made.
func TestConfigRefused(t *testing.T) {
	t.Parallel()
	const one, two = "sqlite://data/node-1.db", "sqlite://data/node-2.db"
	cases := []struct {
		name, config string
		words        []string
	}{
		{"unknown key with capitals", tiny(goodCollections, goodSize, goodNodes) + "serverName: x\n", []string{"config.yaml:8", "serverName"}},
		{"known key with capitals", tiny("{name: records, Key: key}", goodSize, goodNodes), []string{"config.yaml:3", "collections[0].Key", "did you mean key?"}},
		{"octal size", tiny(goodCollections, "010", goodNodes), []string{"config.yaml:4", "ranges.size", "010"}},
		{"octal range", tiny(goodCollections, goodSize, nodeLines(one, `"01"`, two, `"2"`)), []string{"config.yaml:6", "nodes[0].ranges", "01"}},
		{"unquoted octal range", tiny(goodCollections, goodSize, nodeLines(one, "010", two, `"2"`)), []string{"config.yaml:6", "nodes[0].ranges", "quotes"}},
		{"range zero", tiny(goodCollections, goodSize, nodeLines(one, `"0-1"`, two, `"2"`)), []string{"nodes[0].ranges", "0-1"}},
		{"gap", tiny(goodCollections, goodSize, nodeLines(one, `"1"`, two, `"3"`)), []string{"config.yaml:7", "nodes[1].ranges", "range 2 is missing"}},
		{"gap at the start", tiny(goodCollections, goodSize, nodeLines(one, `"2"`, two, `"3"`)), []string{"nodes[0].ranges", "range 1 is missing"}},
		{"overlap", tiny(goodCollections, goodSize, nodeLines(one, `"1-2"`, two, `"2-3"`)), []string{"config.yaml:7", "nodes[1].ranges", "range 2", "nodes[0].ranges"}},
		{"same database twice", tiny(goodCollections, goodSize, nodeLines(one, `"1"`, one, `"2"`)), []string{"config.yaml:7", "nodes[1].dsn", "nodes[0].dsn"}},
		{"same database by another path", tiny(goodCollections, goodSize, nodeLines(one, `"1"`, "sqlite://./data/../data/node-1.db", `"2"`)), []string{"nodes[1].dsn", "nodes[0].dsn"}},
		{"same MySQL database twice", tiny(goodCollections, goodSize, nodeLines("mysql://a@Host/db", `"1"`, "mysql://b:c@host:3306/db", `"2"`)), []string{"nodes[1].dsn", "nodes[0].dsn"}},
		{"backtick in a collection", tiny(`{name: "rec`+"`"+`ords"}`, goodSize, goodNodes), []string{"config.yaml:3", "collections[0].name", "rec`ords"}},
		{"backtick in a key member", tiny(`{name: records, key: "a`+"`"+`b"}`, goodSize, goodNodes), []string{"collections[0].key", "a`b"}},
		{"collections that differ in case", tiny("{name: records}, {name: Records}", goodSize, goodNodes), []string{"collections[1].name", "collections[0].name"}},
		{"all at once", tiny(`{name: "a b"}`, "010", nodeLines(one, `"x"`, two, `"2"`)), []string{"collections[0].name", "ranges.size", "nodes[0].ranges"}},
		{"cut off", "server: {listen: \"127.0.0.1:0\"}\nnodes:\n  - {name: node-1, dsn: ", []string{"not YAML"}},
		{"empty", "", []string{"empty"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, command := range []string{"serve", "check"} {
				folder := gateway.WriteConfig(t, c.config)
				printed, code := gateway.Run(t, folder, nil, command)
				wantRefusal(t, printed, code, c.words...)
				if files, err := os.ReadDir(folder); err != nil || len(files) != 1 {
					t.Errorf("a refused %s left files: %v, %v", command, files, err)
				}
			}
		})
	}
}

// TestConfigKeepsCase: names with capitals reach the HTTP API as they were written.
func TestConfigKeepsCase(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, tiny("{name: Orders, key: orderNo}", goodSize, goodNodes))
	g.Expect(t, http.StatusCreated, "POST", "/v1/Orders", `{"orderNo":"A-1"}`)
	if a := g.Expect(t, http.StatusOK, "GET", "/v1/Orders/A-1", ""); a.Body != `{"orderNo":"A-1"}` {
		t.Errorf("got %s", a.Body)
	}
	g.Expect(t, http.StatusNotFound, "GET", "/v1/orders/A-1", "")
	g.Expect(t, http.StatusNotFound, "GET", "/v1/Orders/a-1", "")
}

// stampedCase is a config that contradicts what is stored.
type stampedCase struct {
	name   string
	change func(s *gateway.Stack)
	// words of the message: both sides.
	words []string
}

// stamped is a stack of three nodes that hold IDs of all their ranges, and what it could be confused with.
type stamped struct {
	gateway.Stack
	// other is another cluster with one node, fresh has databases that nobody has used.
	other, fresh gateway.Stack
	made         *acknowledged
}

// newStamped fills the stack and stops its gateway.
func newStamped(t *testing.T) *stamped {
	t.Helper()
	const records, size = 25, 10
	s := &stamped{gateway.NewStack(t, servers.MySQLKind, 3, size), gateway.NewStack(t, servers.MySQLKind, 1, size), gateway.NewStack(t, servers.MySQLKind, 1, size), newAcknowledged()}
	gateway.Start(t, s.other.Config()).Stop(t)
	g := gateway.Start(t, s.Config())
	for i := range records {
		if err := s.made.create(g, fmt.Sprintf("record-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	g.Stop(t)
	return s
}

// dumpAll is everything in all databases.
func (s *stamped) dumpAll(t *testing.T) string {
	t.Helper()
	return dump(t, s.Stack) + dump(t, s.other) + dump(t, s.fresh)
}

// TestStampedDatabasesRefused: databases that hold something else than the config says are refused, with both sides
// named, and a refused start writes nothing (I7).
func TestStampedDatabasesRefused(t *testing.T) {
	s := newStamped(t)
	before := s.dumpAll(t)
	for _, c := range stampedCases(s) {
		t.Run(c.name, func(t *testing.T) {
			folder := gateway.WriteConfig(t, s.With(c.change).Config())
			g := gateway.Launch(t, folder, nil, "serve")
			select {
			case <-g.Output.Serving:
				g.Kill(t)
				t.Error("the gateway began to serve")
			case <-g.Exited:
				wantRefusal(t, g.Output.String(), g.Wait(t), c.words...)
			}
			printed, code := gateway.Run(t, folder, nil, "check")
			wantRefusal(t, printed, code, append(c.words, "FAULT")...)
			if after := s.dumpAll(t); after != before {
				t.Error("a refused start changed the databases")
				compareLines(t, after, before)
			}
		})
		if s.dumpAll(t) != before {
			*s = *newStamped(t) // the other cases are not to suffer; their changes read s
			before = s.dumpAll(t)
		}
	}
	g := gateway.Start(t, s.Config())
	s.made.readBack(t, g)
	g.Stop(t)
}

// stampedCases lists what can go wrong between a config and its databases.
func stampedCases(st *stamped) []stampedCase {
	return []stampedCase{
		{"swapped DSNs", func(s *gateway.Stack) { s.Nodes[0].DSN, s.Nodes[1].DSN = s.Nodes[1].DSN, s.Nodes[0].DSN },
			[]string{"config wants node node-1", "database says: node node-2", "config wants node node-2", "database says: node node-1"}},
		{"reordered ranges", func(s *gateway.Stack) { s.Nodes[0].Ranges, s.Nodes[1].Ranges = s.Nodes[1].Ranges, s.Nodes[0].Ranges },
			[]string{"node-1 of cluster", "ranges 2 of 10 IDs", "ranges 1 of 10 IDs"}},
		{"a range moved to a new node", func(s *gateway.Stack) {
			s.Nodes[2].Ranges = "4"
			s.Nodes = append(s.Nodes, gateway.Node{Name: "node-4", DSN: st.fresh.Nodes[0].DSN, Ranges: "3"})
		}, []string{"node node-3", "ranges 4 of", "ranges 3 of"}},
		{"a node's range given to its neighbour", func(s *gateway.Stack) { s.Nodes = s.Nodes[:2]; s.Nodes[1].Ranges = "2-3" }, []string{"node-2"}},
		{"renamed node", func(s *gateway.Stack) { s.Nodes[1].Name = "node-b" },
			[]string{"config wants node node-b", "database says: node node-2"}},
		{"other range size", func(s *gateway.Stack) { s.RangeSize = 20 }, []string{"of 20 IDs", "of 10 IDs", "can never change"}},
		{"a node dropped that has rows", func(s *gateway.Stack) { s.Nodes = s.Nodes[:2] }, []string{"range 3 of records", "no node owns it"}},
		{"another cluster's node appended", func(s *gateway.Stack) {
			s.Nodes = append(s.Nodes, gateway.Node{Name: "node-1b", DSN: st.other.Nodes[0].DSN, Ranges: "4"})
		},
			[]string{"node node-1b of cluster", "another cluster"}},
		{"another cluster's node in place of one", func(s *gateway.Stack) { s.Nodes[0].DSN = st.other.Nodes[0].DSN },
			[]string{"of cluster", "another cluster"}},
		{"an empty database in place of a node that has rows", func(s *gateway.Stack) { s.Nodes[1].DSN = st.fresh.Nodes[0].DSN }, []string{"node-2"}},
		{"an empty issuer", func(s *gateway.Stack) { s.Issuer = st.fresh.Issuer }, []string{"the issuer is empty", "is empty", "node-1 belongs to the cluster"}},
		{"another cluster's issuer", func(s *gateway.Stack) { s.Issuer = st.other.Issuer }, []string{"node node-1 of cluster", "another cluster"}},
	}
}

// TestCheck: check reports on every database and changes none of them.
func TestCheck(t *testing.T) {
	t.Parallel()
	s := gateway.NewStack(t, servers.MySQLKind, 3, 1000)
	before := dump(t, s)
	folder := gateway.WriteConfig(t, s.Config())
	wantReport(t, folder, 0, "index", "issuer", "node-1 reachable no stamp yet", "node-2 reachable no stamp yet", "node-3 reachable no stamp yet", "no fault")
	if after := dump(t, s); after != before {
		t.Errorf("check changed fresh databases:\n%s", after)
	}
	gateway.Start(t, s.Config()).Stop(t)
	before = dump(t, s)
	wantReport(t, folder, 0, "index reachable", "issuer reachable mysql",
		"node-1 reachable mysql ranges 1, stamp fits", "node-2 reachable mysql ranges 2, stamp fits", "node-3 reachable ranges 3, stamp fits", "no fault")

	proxy, through := servers.NewProxyFor(t, s.Nodes[1].DSN)
	away := gateway.WriteConfig(t, s.With(func(s *gateway.Stack) { s.Nodes[1].DSN = through }).Config())
	for name, fault := range map[string]func(){"refuses": func() { proxy.Refuse(true) }, "stalls": func() { proxy.Refuse(false); proxy.Stall() }} {
		t.Run(name, func(t *testing.T) {
			proxy.Resume()
			fault()
			wantReport(t, away, 1, "index reachable", "issuer reachable", "node-1 reachable", "node-2 FAULT", "node-3 reachable")
		})
	}
	if after := dump(t, s); after != before {
		t.Error("check changed the databases")
		compareLines(t, after, before)
	}

	t.Run(gateway.Embedded, func(t *testing.T) {
		folder := gateway.WriteConfig(t, tiny(goodCollections, goodSize, goodNodes))
		wantReport(t, folder, 0, "index new", "issuer new", "node-1 new", "node-2 new", "no fault")
		if _, err := os.Stat(filepath.Join(folder, "data")); err == nil {
			t.Error("check made the data folder")
		}
		gateway.StartIn(t, folder).Stop(t)
		wantReport(t, folder, 0, "index reachable", "node-1 reachable stamp fits", "node-2 reachable stamp fits", "no fault")
	})
}

// wantReport runs check in a folder and looks for lines that have all words of one of wants, in their order.
func wantReport(t *testing.T, folder string, wantCode int, wants ...string) {
	t.Helper()
	printed, code := gateway.Run(t, folder, nil, "check")
	if code != wantCode {
		t.Errorf("exit code of check: got %d, want %d", code, wantCode)
	}
	for _, want := range wants {
		found := false
		for _, line := range strings.Split(printed, "\n") {
			found = found || hasInOrder(line, strings.Fields(want))
		}
		if !found {
			t.Errorf("check has no line with %q:\n%s", want, printed)
		}
	}
}

// hasInOrder reports whether a text has the words in their order, the first at its start unless it is "no".
func hasInOrder(text string, words []string) bool {
	for i, word := range words {
		at := strings.Index(text, word)
		if at < 0 || i == 0 && at > 0 && word != "no" {
			return false
		}
		text = text[at+len(word):]
	}
	return true
}
