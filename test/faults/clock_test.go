package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"keyrange/test/gateway"
)

// clockBack is by how much the clock is set back, and clockRuns how long after the start of the process.
const (
	clockBack = time.Hour
	clockRuns = 3 * time.Second
)

// TestClockSetBack: the clock of a gateway is set back by an hour while it runs, and while it is restarted. IDs, made keys
// and write tokens stay unique, and every request is answered in time (I1, I8). The binary is built with a package time
// whose clock jumps, because nothing else can lie to one process; the first time that takes a minute.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, plan{})
	s.gateways[0].Stop(t)
	binary := buildOnJumpingClock(t)
	for round := range 2 { // the second gateway begins where the clock of the first one was before the jump
		g := gateway.StartWith(t, binary, s.folder, s.env...)
		s.gateways[0] = g
		s.announce()
		s.begin()
		s.makeKeys(t, g, 100, "before the jump")
		<-time.After(clockRuns + clockRuns/3)
		s.makeKeys(t, g, 1000, "after the jump") // more than sonyflake has for one tick (256)
		s.end()
		t.Logf("gateway %d\n  clients saw: %s", round+1, s.takeCounts())
		g.Stop(t)
	}
	s.gateways[0] = gateway.StartIn(t, s.folder, s.env...)
	s.announce()
	s.finish(t)
	s.gateways[0].Stop(t)
}

// makeKeys posts records without a key.
func (s *site) makeKeys(t *testing.T, g *gateway.Process, records int, when string) {
	t.Helper()
	keys := map[string]bool{}
	for range records {
		ctx, cancel := context.WithTimeout(t.Context(), requestTimeout+answerSlack)
		a, err := g.CallWithin(ctx, "POST", "/v1/records", "{}")
		cancel()
		if err != nil || a.Status != http.StatusCreated {
			t.Fatalf("%s: after %d made keys: %d %s, %v", when, len(keys), a.Status, a.Body, err)
		}
		var made struct{ Key string }
		if err := json.Unmarshal([]byte(a.Body), &made); err != nil || keys[made.Key] {
			t.Fatalf("%s: the made key %q came twice (%v)", when, made.Key, err)
		}
		keys[made.Key] = true
	}
}

// buildOnJumpingClock builds the gateway with a changed package time and returns the path of the binary.
func buildOnJumpingClock(t *testing.T) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const read = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	jumping := strings.Replace(string(text), read, strings.Replace(read, "\n", "\n\tsec += jumped()\n", 1), 1)
	if jumping == string(text) {
		t.Fatalf("%s does not read the clock as it used to: mend this test", original)
	}
	jumping += fmt.Sprintf("\nfunc jumped() int64 {\n\tif runtimeNano()-startNano < %d {\n\t\treturn 0\n\t}\n\treturn -%d\n}\n", clockRuns, clockBack/time.Second)
	folder := t.TempDir()
	replacement, binary := filepath.Join(folder, "time.go"), filepath.Join(folder, "gateway")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{replacement: []byte(jumping), filepath.Join(folder, "overlay.json"): overlay} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// All of it is compiled anew, which must neither take long nor hold up the tests beside this one.
	build := exec.CommandContext(t.Context(), "nice", "-n", "19", "go", "build", "-gcflags=all=-N -l",
		"-overlay", filepath.Join(folder, "overlay.json"), "-o", binary, "keyrange/cmd/gateway")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the gateway on another clock: %v\n%s", err, output)
	}
	return binary
}
