// Package structure holds the shape of the code: which package may import which, and where each driver stays.
package structure

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "keyrange"

// allowed lists which packages of this module each package may import. cmd/gateway wires everything; test/ may look at
// everything; what is not listed may import none.
var allowed = map[string][]string{
	"handlers":    {"store", "handlers/access", "handlers/apidoc"},
	"store":       {"idsegment", "index", "rangeshard", "store/sqldb", "store/typed"},
	"idsegment":   {"store/sqldb"},
	"index":       {"store/sqldb"},
	"rangeshard":  {"store/sqldb"},
	"store/sqldb": {},

	"handlers/access": {},
	"store/typed":     {},
	"handlers/apidoc": {},
}

// owners lists the packages that a third-party module stays in.
var owners = map[string][]string{
	"github.com/spf13/viper":         {"cmd/gateway"},
	"github.com/spf13/cobra":         {"cmd/gateway"},
	"github.com/fsnotify/fsnotify":   {"cmd/gateway"},
	"github.com/labstack/echo/v4":    {"handlers"},
	"github.com/klauspost/compress":  {"handlers"},
	"go.mongodb.org/mongo-driver/v2": {"index"},
	"github.com/go-sql-driver/mysql": {"store/sqldb"},
	"modernc.org/sqlite":             {"store/sqldb"},
	"github.com/sony/sonyflake":      {"store"},
	"github.com/maypok86/otter/v2":   {"store"},
	"github.com/prometheus":          {"store", "cmd/gateway"},
	"github.com/golang-jwt/jwt/v5":   {"handlers/access"},
	"github.com/MicahParks":          {"handlers/access"},
	"golang.org/x/time":              {"handlers/access"},
	// The SDK and the exporter are cmd/gateway's: the others only know spans.
	"go.opentelemetry.io/otel":           {"store", "handlers", "cmd/gateway"},
	"go.opentelemetry.io/otel/sdk":       {"cmd/gateway"},
	"go.opentelemetry.io/otel/exporters": {"cmd/gateway"},
	// Only tests use these.
	"github.com/santhosh-tekuri/jsonschema/v6": {},
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T) []goPackage {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"/...")
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestImportDirection(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		seen[from] = true
		for _, path := range p.Imports {
			to, own := strings.CutPrefix(path, module+"/")
			if own && from != "cmd/gateway" && !strings.HasPrefix(from, "test/") && !slices.Contains(allowed[from], to) {
				t.Errorf("%s must not import %s", from, to)
			}
			for third, homes := range owners {
				if (path == third || strings.HasPrefix(path, third+"/")) && !slices.Contains(homes, from) && !strings.HasPrefix(from, "test/") {
					t.Errorf("%s must not import %s, which stays in %v", from, path, homes)
				}
			}
		}
	}
	for name := range allowed {
		if !seen[name] {
			t.Errorf("there is no package %s: mend this list", name)
		}
	}
}
