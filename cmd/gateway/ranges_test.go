package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"keyrange/handlers"
	"keyrange/store"
)

// runRanges runs gateway ranges with flags and returns what it printed to both outputs.
func runRanges(t *testing.T, flags ...string) (printed, notes string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	root := rootCommand()
	root.SetArgs(append([]string{"ranges"}, flags...))
	root.SetOut(&out)
	root.SetErr(&errOut)
	err = root.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}

// TestRangesOfEmbedded: the command reads the databases of a gateway that was stopped, and leaves them as they were.
func TestRangesOfEmbedded(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "config.yaml")
	text := "collections: [{name: records}, {name: orders}]\n" + embeddedConfig(folder, 3)
	writeFile(t, path, text)
	if _, _, err := runRanges(t, "--config", path); err == nil || !strings.Contains(err.Error(), "no gateway has been started with this config yet") {
		t.Errorf("before the first start: %v", err)
	}
	if files := filesIn(t, folder); !slices.Equal(files, []string{"config.yaml"}) {
		t.Errorf("the command has made files: %v", files)
	}
	cfg := mustLoad(t, text)
	p, err := openParts(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 14 {
		if _, err := p.store.Create(t.Context(), "records", fmt.Sprintf("key-%02d", i), store.Content{Document: []byte(`{"v":"twenty bytes"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.store.Delete(t.Context(), "records", "key-00", store.Condition{}); err != nil {
		t.Fatal(err)
	}
	if err := p.close(context.Background()); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, strings.Replace(text, `ranges: "2"`, `ranges: "2", drain: true`, 1)+nodeLine("node-4", "sqlite://"+folder+"/node-4.db", "4")[1:])
	before := filesIn(t, folder)
	printed, notes, err := runRanges(t, "--config", path)
	const want = `records: ok, 14 of 40 IDs issued, 20 left, growth not known yet
  range  issued                                     records  size   node
  1      [##############################]  100.0 %  9        234 B  node-1
  2      [############..................]  40.0 %   4        104 B  node-2, drained

orders: ok, 0 of 40 IDs issued, 30 left, growth not known yet
  range  issued                                   records  size  node
  1      [..............................]  0.0 %  0        0 B   node-1
`
	if err != nil || printed != want || notes != "" {
		t.Errorf("%v, %s\ngot\n%s\nwant\n%s", err, notes, printed, want)
	}
	exact, _, err := runRanges(t, "--config", path, "--exact", "--json")
	var got handlers.Ranges
	if err := json.Unmarshal([]byte(exact), &got); err != nil || len(got.Ranges) != 3 || *got.Ranges[0].LiveRows != 9 || !got.Ranges[0].Exact {
		t.Errorf("%s, %v", exact, err)
	}
	if err != nil {
		t.Error(err)
	}
	if after := filesIn(t, folder); !slices.Equal(after, before) {
		t.Errorf("files %v, then %v", before, after)
	}
}

// filesIn lists a folder, without the lock and the journals that come and go.
func filesIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); !strings.HasSuffix(name, ".lock") && !strings.HasSuffix(name, "-wal") && !strings.HasSuffix(name, "-shm") {
			names = append(names, name)
		}
	}
	return names
}

// TestRangesReport: how each kind of number is printed.
func TestRangesReport(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	float := func(f float64) *float64 { return &f }
	var out bytes.Buffer
	err := printRanges(&out, handlers.Ranges{
		Collections: []handlers.CollectionRanges{
			{Collection: "a", State: "alarm", OwnedIDs: 3_000_000, IssuedIDs: 2_700_001, LeftIDs: 299_999, GrowthIDsPerDay: float(123_456.7), DaysLeft: float(2.43), Complete: true},
			{Collection: "b", State: "ok", OwnedIDs: 1000, IssuedIDs: 10, LeftIDs: 990, GrowthIDsPerDay: float(0)},
			{Collection: "c", State: "ok", OwnedIDs: 90_000_000, LeftIDs: 90_000_000, GrowthIDsPerDay: float(1000), DaysLeft: float(90_000), Complete: true},
		},
		Ranges: []handlers.RangeLevel{
			{Collection: "a", Range: 1, Node: "node-1", FirstID: 1, LastID: 1_000_000, IssuedIDs: 1_000_000, Complete: true, LiveRows: number(950_000), Bytes: number(5 << 30), Drained: true},
			{Collection: "a", Range: 2, Node: "mysql-2", FirstID: 1_000_001, LastID: 2_000_000, IssuedIDs: 999_999, Complete: true, LiveRows: number(12), Bytes: number(900), Exact: true},
			{Collection: "a", Range: 13, Node: "node-3", FirstID: 2_000_001, LastID: 3_000_000, IssuedIDs: 700_002, Complete: true, Open: true},
			{Collection: "b", Range: 1, Node: "node-1", FirstID: 1, LastID: 1000, IssuedIDs: 10, LiveRows: number(7), Bytes: number(70)},
		},
	})
	const want = `a: alarm, 2,700,001 of 3,000,000 IDs issued, 299,999 left, 123,457 a day, enough for 2.4 days
  range  issued                                     records   size      node
  1      [##############################]  100.0 %  ~950,000  ~5.0 GiB  node-1, drained
  2      [#############################.]  99.9 %   12        900 B     mysql-2
  13     [#####################.........]  70.0 %   unknown   unknown   node-3, open

b: ok, at least 10 of 1,000 IDs issued, 990 left, none issued in the last 24 hours
  range  issued                                     records  size   node
  1      [..............................]  >=1.0 %  ~7       ~70 B  node-1

c: ok, 0 of 90,000,000 IDs issued, 90,000,000 left, 1,000 a day, enough for 90,000 days
  no range has been opened yet
`
	if err != nil || out.String() != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, &out, want)
	}
}

// TestRangesOfServer: a running gateway is asked over HTTP, and what is no gateway is said to be none.
func TestRangesOfServer(t *testing.T) {
	r, _ := newEmbeddedRig(t)
	for i := range 10 { // the whole range, so that none is leased in advance
		if _, err := r.create(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	admin := httptest.NewServer(r.server.Admin())
	defer admin.Close()
	for _, flags := range [][]string{nil, {"--exact"}} {
		printed, _, err := runRanges(t, append(flags, "--server", admin.URL+"/")...)
		const want = `records: ok, 10 of 20 IDs issued, 10 left, growth not known yet
  range  issued                                     records  size  node
  1      [##############################]  100.0 %  10       30 B  node-1, open
`
		if err != nil || printed != want {
			t.Errorf("%v, got\n%s\nwant\n%s", err, printed, want)
		}
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken/admin/ranges" {
			_, _ = io.WriteString(w, "<html>")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"unavailable","detail":"A database cannot be reached."}`)
	}))
	defer elsewhere.Close()
	public := httptest.NewServer(r.server.Public())
	defer public.Close()
	for server, want := range map[string]string{
		"127.0.0.1:9090":          "--server: an http or https URL",
		public.URL:                "answered 404 Not Found: is this the admin listener of a gateway?",
		elsewhere.URL:             "answered 503 Service Unavailable: A database cannot be reached.",
		elsewhere.URL + "/broken": "not a gateway's answer",
		"http://127.0.0.1:1":      "connection refused",
	} {
		if _, _, err := runRanges(t, "--server", server); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", server, err, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestRangesOfSwappedNodes: numbers from databases that are not what config says would be worse than none.
func TestRangesOfSwappedNodes(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	if _, err := r.create("k"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "swapped.yaml")
	writeFile(t, path, strings.NewReplacer("node-1.db", "node-2.db", "node-2.db", "node-1.db").Replace(embeddedConfig(folder, 2)))
	if printed, _, err := runRanges(t, "--config", path); err == nil || !strings.Contains(err.Error(), "nodes[0] (node-1)") || printed != "" {
		t.Errorf("%v, %s", err, printed)
	}
}

// TestAlarmPercents: their rules, and that they change while the gateway runs.
func TestAlarmPercents(t *testing.T) {
	runFaultCases(t, []faultCase{
		{name: "bounds", text: "ranges: {warn_percent: 1, alarm_percent: 1}"},
		{name: "both 100", text: "ranges: {warn_percent: 100, alarm_percent: 100}"},
		{name: "out of bounds", text: "ranges:\n  warn_percent: 0\n  alarm_percent: 101", want: []string{
			"config.yaml:2: ranges.warn_percent: must be 1 to 100 (got 0)", "config.yaml:3: ranges.alarm_percent: must be 1 to 100 (got 101)"}},
		{name: "crossed", text: "ranges: {alarm_percent: 74}", want: []string{
			"config.yaml:1: ranges.alarm_percent: must be at least ranges.warn_percent, 75 (got 74)"}},
	})
	r, folder := newEmbeddedRig(t)
	for i := range 8 {
		if _, err := r.create(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	state := func() string {
		levels, err := r.parts.store.Levels(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		return levels.Collections[0].State
	}
	if got := state(); got != store.StateOK {
		t.Errorf("at first: %s", got)
	}
	got, err := r.write(triggerAdmin, strings.Replace(embeddedConfig(folder, 2), "size: 10", "size: 10, warn_percent: 20, alarm_percent: 30", 1))
	if want := []string{"ranges.warn_percent: 75 -> 20", "ranges.alarm_percent: 90 -> 30"}; err != nil || !slices.Equal(got.Changes, want) {
		t.Errorf("%v, %v; want %v", got.Changes, err, want)
	}
	if got := state(); got != store.StateAlarm {
		t.Errorf("after the change: %s", got)
	}
}
