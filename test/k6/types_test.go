package k6

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTypes checks every script against the types of k6.
func TestTypes(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), folder+"/types.sh").CombinedOutput()
	if err != nil {
		t.Fatalf("types.sh: %v\n%s", err, output)
	}
	scripts, err := filepath.Glob(folder + "/*.js")
	if err != nil || len(scripts) == 0 {
		t.Fatal("there are no scripts", err)
	}
	for _, file := range append(scripts, "/@types/k6/http/index.d.ts") {
		if !strings.Contains(string(output), strings.TrimPrefix(file, "../..")+"\n") {
			t.Errorf("%s was not looked at", file)
		}
	}
}
