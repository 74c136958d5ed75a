package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// packageCount is how many records of the package index the tests take: enough for three ranges of packageRangeSize.
const (
	packageCount     = 3000
	packageRangeSize = 1250
)

// root is the folder of the repository.
const root = "../.."

// packageIndex writes records of the machine's package index to a file, and returns it with the lines by key.
func packageIndex(t *testing.T) (file string, lines map[string]string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "debian-packages.sh"), fmt.Sprint(packageCount))
	command.Stderr = os.Stderr
	content, err := command.Output()
	if err != nil {
		t.Fatalf("scripts/debian-packages.sh: %v", err)
	}
	lines = map[string]string{}
	for line := range strings.Lines(string(content)) {
		var doc struct{ Key, Package string }
		line = strings.TrimSuffix(line, "\n")
		if err := json.Unmarshal([]byte(line), &doc); err != nil || len(doc.Key) != 64 || doc.Package == "" {
			t.Fatalf("%.200s: not a record: %v", line, err)
		}
		lines[doc.Key] = line
	}
	if len(lines) != packageCount {
		t.Fatalf("scripts/debian-packages.sh %d: %d records with different keys", packageCount, len(lines))
	}
	file = filepath.Join(t.TempDir(), "packages.ndjson")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, lines
}

// report is the last line of an import.
var report = regexp.MustCompile(`created (\d+)  existed (\d+)  failed (\d+)`)

// wantImport imports a file and checks the report.
func wantImport(t *testing.T, g *gateway.Process, file, want string) {
	t.Helper()
	printed, code := gateway.Run(t, t.TempDir(), nil, "import", "--server", g.URL, "--collection", "records", file)
	if got := report.FindString(printed); code != 0 || got != want {
		t.Fatalf("import: got %q and exit code %d, want %q\n%s", got, code, want, printed)
	}
	t.Log(strings.TrimSpace(printed))
}

// readBackLines checks that each record comes back byte for byte.
func readBackLines(t *testing.T, g *gateway.Process, lines map[string]string) {
	t.Helper()
	var keys []string
	for key := range lines {
		keys = append(keys, key)
	}
	const readers = 16
	err := gateway.Together(readers, func(reader int) error {
		var errs []error
		for i := reader; i < len(keys); i += readers {
			a, err := g.Call("GET", "/v1/records/"+keys[i], "")
			if err != nil || a.Body != lines[keys[i]] {
				errs = append(errs, fmt.Errorf("read %s: %d %.200q, want %.200q, %w", keys[i], a.Status, a.Body, lines[keys[i]], err))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPackageIndex: real records with random keys are imported over three nodes; each node holds exactly the IDs that it
// owns, and each record comes back as it was (I4, I5).
func TestPackageIndex(t *testing.T) {
	file, lines := packageIndex(t)
	created, existed := fmt.Sprintf("created %d  existed 0  failed 0", packageCount), fmt.Sprintf("created 0  existed %d  failed 0", packageCount)

	t.Run("three nodes", func(t *testing.T) {
		s := gateway.NewStack(t, servers.MySQLKind, 3, packageRangeSize)
		g := gateway.Start(t, s.Config())
		wantImport(t, g, file, created)
		wantImport(t, g, file, existed)
		readBackLines(t, g, lines)
		ids := ownedIDs(t, s, "records")
		for key := range lines {
			if ids[key] == 0 {
				t.Errorf("no node has a row of %s", key)
			}
		}
		if len(ids) != packageCount {
			t.Errorf("the nodes hold %d records, want %d", len(ids), packageCount)
		}
		wantEntries(t, s, ids)
		g.Stop(t)
	})

	t.Run("shipped config", func(t *testing.T) {
		config, err := os.ReadFile(filepath.Join(root, gateway.ConfigName))
		if err != nil {
			t.Fatal(err)
		}
		folder := gateway.WriteConfig(t, string(config))
		ports := []string{"GATEWAY__SERVER__LISTEN=127.0.0.1:0", "GATEWAY__ADMIN__LISTEN=127.0.0.1:0"}
		g := gateway.StartIn(t, folder, ports...)
		wantImport(t, g, file, created)
		g.Stop(t)
		g = gateway.StartIn(t, folder, ports...)
		wantImport(t, g, file, existed)
		readBackLines(t, g, lines)
		db := gateway.OpenSQL(t, "sqlite://"+filepath.Join(folder, "data", "node-1.db"))
		if ids := liveRows(t, db, "records_r00001"); len(ids) != packageCount {
			t.Errorf("node-1 holds %d records, want %d", len(ids), packageCount)
		}
		g.Stop(t)
	})
}

// wantEntries checks that the index has exactly one entry for each live row, and that it points at the row (I3).
func wantEntries(t *testing.T, s gateway.Stack, ids map[string]int64) {
	t.Helper()
	all := slices.DeleteFunc(gateway.Entries(t, s.Index), func(e gateway.Entry) bool {
		return e.Key == "" || e.Collection == gateway.StampCollection
	})
	if len(all) != len(ids) {
		t.Errorf("the index has %d entries, the nodes %d live rows", len(all), len(ids))
	}
	wrong := 0
	for _, e := range all {
		if ids[e.Key] != e.ID {
			if wrong++; wrong <= 10 {
				t.Errorf("the entry of %q points at %d, its row is at %d (0: nowhere)", e.Key, e.ID, ids[e.Key])
			}
		}
	}
}
