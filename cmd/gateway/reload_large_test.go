package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// largeConfig has nodes of 10 ranges each.
func largeConfig(folder string, nodes int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "index: {uri: sqlite://%s/index.db}\nids: {issuers: [{dsn: sqlite://%[1]s/ids.db}]}\nranges: {size: 1000}\nnodes:\n", folder)
	for n := range nodes {
		fmt.Fprintf(&b, "  - {name: node-%d, dsn: sqlite://%s/node-%d.db, ranges: \"%d-%d\"}\n", n+1, folder, n+1, 10*n+1, 10*n+10)
	}
	return b.String()
}

// TestReloadLarge: a node is appended to a hundred others, or to a thousand with GATEWAY_TEST_LONG set. How long that
// takes is logged.
func TestReloadLarge(t *testing.T) {
	nodes := 99
	if os.Getenv("GATEWAY_TEST_LONG") != "" {
		nodes = 999
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "config.yaml")
	writeFile(t, path, largeConfig(folder, nodes))
	start := time.Now()
	r := newReloadRig(t, path)
	started := time.Since(start)
	if _, err := r.create("before"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(largeConfig(folder, nodes+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	got, err := r.reload(t.Context(), triggerAdmin)
	took := time.Since(start)
	if err != nil || len(got.Changes) != 1 || !strings.Contains(got.Changes[0], fmt.Sprintf("node-%d, ranges %d-%d", nodes+1, 10*nodes+1, 10*nodes+10)) {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := r.create("after"); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes started in %v; one was appended in %v, of which the file came to rest in %v", nodes, started.Round(time.Millisecond), took.Round(time.Millisecond), r.pause)
}
