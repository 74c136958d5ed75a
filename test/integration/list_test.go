package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

const (
	exportCount     = 20_000
	exportRangeSize = 7500 // three ranges for exportCount
	exportDocBytes  = 1000 // on average
)

// recordLines makes records with keys, numbers and texts that a careless program would change.
func recordLines(n int) []string {
	rng := rand.New(rand.NewPCG(1, 2))
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"n": %d.10, "key":"k\u00e9/%d %016x" ,"big":9007199254740993, "t":"%s\u0000 \"é"}`,
			i, i, rng.Uint64(), strings.Repeat("x<&", rng.IntN(2*exportDocBytes/3)))
	}
	return lines
}

// sortedLines reads a file.
func sortedLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(text, []byte("\n")) {
		t.Errorf("%s ends within a line", path)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	slices.Sort(lines)
	return lines
}

// TestExportImport: an export that was killed and goes on through another gateway has every record once, byte for byte,
// and so has the gateway that it is imported into.
func TestExportImport(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	lines := recordLines(exportCount)
	if err := os.WriteFile(path("in.ndjson"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	created := fmt.Sprintf("created %d  existed 0  failed 0", exportCount)

	s := gateway.NewStack(t, servers.MySQLKind, 3, exportRangeSize)
	g := gateway.Start(t, s.Config())
	wantImport(t, g, path("in.ndjson"), created)
	proxy, through := servers.NewProxyFor(t, g.URL)
	args := func(url, out string) []string {
		return []string{"export", "--server", url, "--collection", "records", "--out", path(out)}
	}
	progress := func() (known struct{ Records, Bytes int64 }) {
		text, err := os.ReadFile(path("out.ndjson.progress"))
		if err == nil {
			err = json.Unmarshal(text, &known)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return known
	}
	export := gateway.Launch(t, folder, nil, args(through, "out.ndjson")...)
	gateway.Poll(t, "the export is on its way", func() bool { return progress().Records > 0 })
	proxy.Stall()
	export.Kill(t)
	proxy.Resume()
	before := progress()
	if before.Records == 0 || before.Records >= exportCount {
		t.Fatalf("killed after %d records", before.Records)
	}
	g.Stop(t)

	g = gateway.Start(t, s.Config())
	printed, code := gateway.Run(t, folder, nil, args(g.URL, "out.ndjson")...)
	if want := fmt.Sprintf("exported %d records", exportCount); code != 0 || !strings.Contains(printed, want) ||
		!strings.Contains(printed, fmt.Sprintf("%d of them by this run", exportCount-before.Records)) {
		t.Fatalf("exit code %d: %s", code, printed)
	}
	t.Logf("killed after %d records; %s", before.Records, strings.TrimSpace(printed))
	if got := sortedLines(t, path("out.ndjson")); !slices.Equal(got, lines) {
		t.Errorf("the export has %d lines that differ from the %d imported", len(got), len(lines))
	}
	g.Stop(t)

	g = gateway.Start(t, gateway.NewStack(t, gateway.Embedded, 1, 10*exportCount).Config())
	wantImport(t, g, path("out.ndjson"), created)
	if printed, code := gateway.Run(t, folder, nil, args(g.URL, "again.ndjson")...); code != 0 {
		t.Fatalf("exit code %d: %s", code, printed)
	}
	if got := sortedLines(t, path("again.ndjson")); !slices.Equal(got, lines) {
		t.Errorf("the second export has %d lines that differ from the %d imported", len(got), len(lines))
	}
	g.Stop(t)
}

// TestList: a cursor goes on after a restart and on another gateway; a node that is down is never left out.
func TestList(t *testing.T) {
	for _, kind := range gateway.Kinds(t) {
		t.Run(kind, func(t *testing.T) {
			s := gateway.NewStack(t, kind, 2, 60)
			config := s.Config()
			g := gateway.Start(t, config)
			var body strings.Builder
			for i := range 100 {
				fmt.Fprintf(&body, `{"key":"k%02d"}`+"\n", i)
			}
			g.Expect(t, http.StatusOK, "POST", "/v1/records", body.String(), "Content-Type: application/x-ndjson")
			var keys []string
			next := "/v1/records?limit=15"
			for page := 0; next != "" && page < 10; page++ {
				if page == 3 {
					g.Stop(t)
					g = gateway.Start(t, config)
				}
				a := g.Expect(t, http.StatusOK, "GET", next, "")
				var list struct {
					Items []struct{ Key string }
					Next  string
				}
				if err := json.Unmarshal([]byte(a.Body), &list); err != nil {
					t.Fatal(err)
				}
				for _, item := range list.Items {
					keys = append(keys, item.Key)
				}
				next = ""
				if list.Next != "" {
					next = "/v1/records?limit=15&cursor=" + url.QueryEscape(list.Next)
				}
			}
			slices.Sort(keys)
			if len(keys) != 100 || len(slices.Compact(keys)) != 100 {
				t.Errorf("%d keys in all pages: %v", len(keys), keys)
			}
			stream := g.Expect(t, http.StatusOK, "GET", "/v1/records?order=desc", "", "Accept: application/x-ndjson")
			if n := strings.Count(stream.Body, "\n"); n != 100 {
				t.Errorf("the stream has %d lines", n)
			}
			g.Stop(t)
		})
	}
}

// TestListNodeDown: pages before the node that is down are served, the others are refused, and a stream breaks off.
func TestListNodeDown(t *testing.T) {
	s := gateway.NewStack(t, servers.MySQLKind, 2, 60)
	s.Nodes = slices.Clone(s.Nodes)
	proxy, dsn := servers.NewProxyFor(t, s.Nodes[1].DSN)
	s.Nodes[1].DSN = dsn
	g := gateway.Start(t, s.Config())
	for i := range 100 {
		g.Expect(t, http.StatusCreated, "PUT", fmt.Sprintf("/v1/records/k%02d", i), "{}")
	}
	proxy.Refuse(true)
	g.Expect(t, http.StatusOK, "GET", "/v1/records?limit=20", "")
	part := g.Expect(t, http.StatusOK, "GET", "/v1/records?limit=90", "")
	if n := strings.Count(part.Body, `"key"`); n == 0 || n > 60 || !strings.Contains(part.Body, `"next":`) {
		t.Errorf("a page before the node that is down has %d records: %s", n, part.Body)
	}
	link := strings.TrimPrefix(part.Header.Get("Link"), "<")
	target, _, _ := strings.Cut(link, ">")
	g.Expect(t, http.StatusServiceUnavailable, "GET", target, "")
	g.Expect(t, http.StatusServiceUnavailable, "GET", "/v1/records?order=desc", "")
	if a, err := g.Call("GET", "/v1/records", "", "Accept: application/x-ndjson"); err == nil {
		t.Errorf("the stream ended well: %d, %d lines", a.Status, strings.Count(a.Body, "\n"))
	}
	proxy.Refuse(false)
	gateway.Poll(t, "the node is up again", func() bool {
		a, err := g.Call("GET", "/v1/records?limit=1000", "")
		return err == nil && strings.Count(a.Body, `"key"`) == 100
	})
	g.Stop(t)
}
