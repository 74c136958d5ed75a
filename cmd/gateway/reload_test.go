package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"keyrange/handlers"
	"keyrange/store"
)

// testPause is the pause of a reloader in tests whose files change as a whole.
const testPause = 50 * time.Millisecond

// logText is a log that may be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count is how often a text was logged.
func (l *logText) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// reloadRig is a reloader on an embedded gateway that listens nowhere.
type reloadRig struct {
	*reloader
	t    *testing.T
	log  *logText
	path string
}

// embeddedConfig is a config of embedded databases in a folder, with nodes that own a range of ten IDs each.
func embeddedConfig(folder string, nodes int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "index: {uri: sqlite://%s/index.db}\nids: {issuers: [{dsn: sqlite://%[1]s/ids.db}]}\nranges: {size: 10}\nnodes:\n", folder)
	for n := 1; n <= nodes; n++ {
		fmt.Fprintf(&b, "  - {name: node-%d, dsn: sqlite://%s/node-%d.db, ranges: \"%d\"}\n", n, folder, n, n)
	}
	return b.String()
}

// newReloadRig opens a gateway on a config file at path and closes it when the test ends; no goroutine may be left then.
func newReloadRig(t *testing.T, path string) *reloadRig {
	t.Helper()
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	core, err := newReloader(newConfigSource(path, nil))
	if err != nil {
		t.Fatal(err)
	}
	r := &reloadRig{reloader: core, t: t, log: new(logText), path: path}
	r.pause = testPause
	logger := newLogger(r.log, &r.level)
	p, err := openParts(t.Context(), r.running, logger)
	if err != nil {
		t.Fatal(err)
	}
	r.attach(p, handlers.New(p.store, handlerOptions(r.running, p, logger)), logger)
	t.Cleanup(func() {
		r.close()
		if err := p.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// newEmbeddedRig is newReloadRig with two nodes, on config.yaml in a fresh folder.
func newEmbeddedRig(t *testing.T) (r *reloadRig, folder string) {
	t.Helper()
	folder = t.TempDir()
	path := filepath.Join(folder, "config.yaml")
	writeFile(t, path, embeddedConfig(folder, 2))
	return newReloadRig(t, path), folder
}

// write replaces the config file and asks for a reload.
func (r *reloadRig) write(trigger, text string) (handlers.Reloaded, error) {
	r.t.Helper()
	writeFile(r.t, r.path, text)
	return r.reload(r.t.Context(), trigger)
}

// wantResults checks the counters of results and the state of the last reload.
func (r *reloadRig) wantResults(applied, unchanged, refused int, ok float64) {
	r.t.Helper()
	got := r.gather()
	for name, want := range map[string]float64{
		"gateway_config_reloads_total applied":   float64(applied),
		"gateway_config_reloads_total unchanged": float64(unchanged),
		"gateway_config_reloads_total refused":   float64(refused),
		"gateway_config_last_reload_ok":          ok,
	} {
		if value, found := got[name]; value != want || !found {
			r.t.Errorf("%s is %v, %v; want %v", name, value, found, want)
		}
	}
}

// gather returns the metrics by name and label values.
func (r *reloadRig) gather() map[string]float64 {
	r.t.Helper()
	families, err := r.parts.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return got
}

// create stores a record and returns its ID, or 0 with the error.
func (r *reloadRig) create(key string) (int64, error) {
	rec, err := r.parts.store.Create(r.t.Context(), "records", key, store.Content{Document: []byte(`{}`)})
	return rec.Tag.ID, err
}

// TestReloadApplies: limits, log level and a node take effect at once, and the answer names each change.
func TestReloadApplies(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	got, err := r.write(triggerAdmin, embeddedConfig(folder, 3)+"server: {max_body_bytes: 2KiB}\nlog: {level: debug}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"server.max_body_bytes: 1MiB -> 2KiB", "log.level: info -> debug", "nodes[2]: appended (node-3, ranges 3)"}
	if got.Result != resultApplied || strings.Join(got.Changes, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %+v, want %q", got, want)
	}
	if r.level.Level() != slog.LevelDebug {
		t.Errorf("log level %s", r.level.Level())
	}
	if n := len(r.parts.nodes); n != 3 {
		t.Errorf("%d nodes are open", n)
	}
	for i := range 25 {
		if _, err := r.create(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if id, err := r.create("last"); err != nil || id <= 20 {
		t.Errorf("a create past the first two nodes: %d, %v", id, err)
	}
	if got, err := r.reload(t.Context(), triggerAdmin); err != nil || got.Result != resultUnchanged || len(got.Changes) > 0 {
		t.Errorf("again: %+v, %v", got, err)
	}
	r.wantResults(1, 1, 0, 1)
}

// TestReloadAfterExhaustion: a create that was refused because all ranges are full passes once one is appended.
func TestReloadAfterExhaustion(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	for i := range 20 {
		if _, err := r.create(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.create("more"); err == nil {
		t.Fatal("21 records in 20 IDs")
	}
	text := strings.Replace(embeddedConfig(folder, 2), `ranges: "1"`, `ranges: "1,3"`, 1)
	if got, err := r.write(triggerSignal, text); err != nil || len(got.Changes) != 1 || got.Changes[0] != "nodes[0].ranges: 1 -> 1,3" {
		t.Fatalf("%+v, %v", got, err)
	}
	if id, err := r.create("more"); err != nil || id != 21 {
		t.Errorf("ID %d, %v", id, err)
	}
}

// TestReloadRefuses: one fault stands in the way of all changes, every fault is named, and nothing of the file is in force.
func TestReloadRefuses(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	good, grown := embeddedConfig(folder, 2), embeddedConfig(folder, 3)
	writeFile(t, filepath.Join(folder, "node-9.db"), "this is no database, and it is longer than the header of one would be, by far")
	tests := []struct {
		name, text string
		want       []string
	}{
		{"empty", "", []string{"empty"}},
		{"not YAML", grown + "server: {", []string{"not YAML"}},
		{"cut off", grown[:len(grown)-40], []string{"config.yaml:"}},
		{"unknown key", grown + "server: {max_body: 1KiB}\nlog: {level: loud}\n", []string{"server.max_body: unknown key", "log.level: must be"}},
		{"needs a restart", grown + "server: {listen: \"127.0.0.1:1\", max_body_bytes: 2KiB}\ncache: {max_bytes: 0}\n",
			[]string{"server.listen: needs a restart (running 127.0.0.1:8080, config says 127.0.0.1:1)", "cache.max_bytes: needs a restart (running 64MiB, config says 0)"}},
		{"a node dropped", embeddedConfig(folder, 1) + "log: {level: debug}\n", []string{"nodes[1]: a node can not be dropped"}},
		{"swapped", strings.NewReplacer("node-1.db", "node-2.db", "node-2.db", "node-1.db").Replace(good), []string{"nodes[0] (node-1)", "nodes[1] (node-2)", "two DSNs swapped"}},
		{"a gap", strings.Replace(grown, `ranges: "3"`, `ranges: "4"`, 1) + "log: {level: debug}\n", []string{"range 3 is missing"}},
		{"a new node that does not open", strings.Replace(grown, "node-3.db", "node-9.db", 1) + "log: {level: debug}\n", []string{"nodes[2] (node-3)"}},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := r.write(triggerFile, tt.text)
			if err == nil {
				t.Fatal("not refused")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q", err, want)
				}
			}
			if r.level.Level() != slog.LevelInfo || len(r.parts.nodes) != 2 || len(r.running.Nodes) != 2 {
				t.Errorf("half of it is in force: level %s, %d nodes open, %d in the config", r.level.Level(), len(r.parts.nodes), len(r.running.Nodes))
			}
			r.wantResults(0, 0, i+1, 0)
			if n := r.log.count("config refused"); n != i+1 {
				t.Errorf("%d refusals were logged, want %d", n, i+1)
			}
		})
	}
	if _, err := r.create("still"); err != nil {
		t.Error(err)
	}
	if got, err := r.write(triggerFile, good); err != nil || got.Result != resultUnchanged {
		t.Errorf("back: %+v, %v", got, err)
	}
	r.wantResults(0, 1, len(tests), 1)
}

// TestReloadForeignNode: a database that is stamped as another cluster's is refused with the map unchanged (I5).
func TestReloadForeignNode(t *testing.T) {
	foreign, foreignFolder := newEmbeddedRig(t)
	if _, err := foreign.create("x"); err != nil {
		t.Fatal(err)
	}
	foreign.reloader.close()
	if err := foreign.parts.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, folder := newEmbeddedRig(t)
	text := strings.Replace(embeddedConfig(folder, 3), folder+"/node-3.db", foreignFolder+"/node-1.db", 1)
	if _, err := r.write(triggerFile, text); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("error %v", err)
	}
	if len(r.parts.nodes) != 2 {
		t.Errorf("%d nodes are open", len(r.parts.nodes))
	}
}

// TestReloadReportsOnce: the periodic look tries a refused file again, reports it once, and notices when what it lacked
// has come.
func TestReloadReportsOnce(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	text := embeddedConfig(folder, 2) + fmt.Sprintf("  - {name: node-3, dsn_file: %s/node-3-dsn, ranges: \"3\"}\n", folder)
	if _, err := r.write(triggerFile, text); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Fatalf("error %v", err)
	}
	for range 3 {
		if _, err := r.reload(t.Context(), triggerInterval); err == nil {
			t.Error("not refused")
		}
		if _, err := r.reload(t.Context(), triggerFile); err != nil {
			t.Errorf("an event that changed nothing: %v", err)
		}
	}
	r.wantResults(0, 0, 1, 0)
	if n := r.log.count("config refused"); n != 1 {
		t.Errorf("%d refusals were logged", n)
	}
	writeFile(t, filepath.Join(folder, "node-3-dsn"), "sqlite://"+folder+"/node-3.db")
	if got, err := r.reload(t.Context(), triggerInterval); err != nil || got.Result != resultApplied {
		t.Errorf("%+v, %v", got, err)
	}
	r.wantResults(1, 0, 1, 1)
	if _, err := r.reload(t.Context(), triggerInterval); err != nil {
		t.Error(err)
	}
	r.wantResults(1, 0, 1, 1)
}

// TestReloadWaitsForWhole: a file is judged once it has come to rest.
func TestReloadWaitsForWhole(t *testing.T) {
	r, folder := newEmbeddedRig(t)
	r.pause = 500 * time.Millisecond
	whole := embeddedConfig(folder, 3)
	writeFile(t, r.path, whole[:40])
	ended := make(chan error, 1)
	go func() {
		_, err := r.reload(t.Context(), triggerSignal)
		ended <- err
	}()
	for part := 80; part < len(whole); part += 40 { // in all longer than the pause
		time.Sleep(testPause)
		select {
		case err := <-ended:
			t.Fatalf("judged at %d of %d bytes: %v", part, len(whole), err)
		default:
		}
		writeFile(t, r.path, whole[:part])
	}
	writeFile(t, r.path, whole)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	r.wantResults(1, 0, 0, 1)
}

// TestReloadStops: a reload whose caller went away judges nothing, and none begins once the gateway closes.
func TestReloadStops(t *testing.T) {
	r, _ := newEmbeddedRig(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	writeFile(t, r.path, "broken: [")
	if _, err := r.reload(gone, triggerFile); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	r.wantResults(0, 0, 0, 1)
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.reload(t.Context(), triggerFile); err == nil || !strings.Contains(err.Error(), "cannot read the config file") {
		t.Errorf("error %v", err)
	}
	r.reloader.close()
	if _, err := r.reload(t.Context(), triggerAdmin); !errors.Is(err, errStopping) {
		t.Errorf("error %v", err)
	}
	r.wantResults(0, 0, 1, 0)
}
