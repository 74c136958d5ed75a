package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"keyrange/test/gateway"
)

// TestGeneratedClient: a client that oapi-codegen makes from the document that a gateway serves makes the README's calls.
// The client is a module of its own (test/client), so that neither it nor its generator is among the gateway's
// dependencies, and it is made anew each time.
func TestGeneratedClient(t *testing.T) {
	g := gateway.Start(t, gateway.NewStack(t, gateway.Embedded, 1, 10_000_000).Config()+documentedCollections)
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(root, "test", "client"))); err != nil {
		t.Fatal(err)
	}
	document := g.Expect(t, 200, "GET", "/openapi.json", "").Body
	if err := os.WriteFile(filepath.Join(folder, "openapi.json"), []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "api"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"go", "tool", "oapi-codegen", "-config", "generate.yaml", "-o", "api/api.gen.go", "openapi.json"},
		{"go", "run", ".", g.URL},
	} {
		run := exec.CommandContext(t.Context(), command[0], command[1:]...)
		run.Dir = folder
		run.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
		if output, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, output)
		}
	}
	g.Stop(t)
}
