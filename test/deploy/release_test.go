package deploy

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// releaseTimeout bounds one release of one platform, the tools of which are compiled the first time.
const releaseTimeout = 5 * time.Minute

// clone makes a repository with one commit of the files as they are now, without those that .gitignore names.
func clone(t *testing.T) string {
	t.Helper()
	bare, folder := filepath.Join(t.TempDir(), "git"), filepath.Join(t.TempDir(), "keyrange")
	work, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	at := []string{"git", "--git-dir=" + bare, "--work-tree=" + work}
	for _, command := range [][]string{
		{"git", "init", "--quiet", "--bare", bare},
		append(at, "add", "--all"),
		append(at, "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false", "commit", "--quiet", "--message=test"),
		{"git", "clone", "--quiet", bare, folder},
	} {
		if out, err := run(t, work, time.Minute, command...); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	return folder
}

// run runs a command for so long at the most.
func run(t *testing.T, folder string, limit time.Duration, command ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Dir, c.Env = folder, append(os.Environ(), "PLATFORMS="+runtime.GOOS+"/"+runtime.GOARCH)
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestRelease: a release has an archive with all that it should have, a list of modules and sums. With GATEWAY_TEST_LONG it is
// made twice, and the same commit gives the same files.
func TestRelease(t *testing.T) {
	const version = "v1.2.3"
	folder := clone(t)
	refused := func(want string, args ...string) {
		t.Helper()
		out, err := run(t, folder, time.Minute, append([]string{"scripts/release.sh"}, args...)...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("release.sh %q: %v, %q; want %q", args, err, out, want)
		}
	}
	refused("usage")
	refused("is no version", "1.2")
	changed := filepath.Join(folder, "changed")
	write(t, changed, "not committed")
	refused("not committed", version)
	if err := os.Remove(changed); err != nil {
		t.Fatal(err)
	}

	release := func() string {
		out, err := run(t, folder, releaseTimeout, "scripts/release.sh", version)
		if err != nil {
			t.Fatalf("release.sh: %v\n%s", err, out)
		}
		sums, err := os.ReadFile(filepath.Join(folder, "dist/SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return string(sums)
	}
	sums := release()
	if os.Getenv("GATEWAY_TEST_LONG") != "" {
		if again := release(); again != sums {
			t.Errorf("the same commit gave\n%sand then\n%s", sums, again)
		}
	}

	dist := filepath.Join(folder, "dist")
	name := "keyrange_" + version + "_" + runtime.GOOS + "_" + runtime.GOARCH
	if out, err := run(t, dist, time.Minute, "sha256sum", "--check", "--strict", "SHA256SUMS"); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	files, err := filepath.Glob(dist + "/*")
	if err != nil || len(files) != 3 {
		t.Errorf("dist has %q, want an archive, its modules and SHA256SUMS", files)
	}
	checkArchive(t, filepath.Join(dist, name), version)
	checkModules(t, filepath.Join(dist, name+".sbom.json"))
}

// checkArchive unpacks an archive and looks into it.
func checkArchive(t *testing.T, path, version string) {
	t.Helper()
	folder := t.TempDir()
	if out, err := run(t, folder, time.Minute, "tar", "--extract", "--gzip", "--file", path+".tar.gz"); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	folder = filepath.Join(folder, filepath.Base(path))
	for _, file := range []string{"README.md", "LICENSE", "CHANGELOG.md", "config.yaml", unitFile, "deploy/compose/compose.yaml", "docs/operations.md"} {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil || string(text) != read(t, file) {
			t.Errorf("the archive has another %s (%v)", file, err)
		}
	}
	out, err := run(t, folder, time.Minute, "./gateway", "version")
	if err != nil || !strings.HasPrefix(out, "gateway "+version+" (") {
		t.Errorf("gateway version: %v, %q", err, out)
	}
	if out, err := run(t, folder, time.Minute, "./gateway", "check", "--offline"); err != nil {
		t.Errorf("gateway check --offline: %v\n%s", err, out)
	}
}

// checkModules looks into a list of modules.
func checkModules(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		BOMFormat  string
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, c := range list.Components {
		versions[c.Name] = c.Version
	}
	if list.BOMFormat != "CycloneDX" {
		t.Errorf("the format is %q, want CycloneDX", list.BOMFormat)
	}
	for _, name := range []string{"github.com/labstack/echo/v4", "github.com/go-sql-driver/mysql", "go.mongodb.org/mongo-driver/v2"} {
		if versions[name] == "" || !strings.Contains(read(t, "go.mod"), name+" "+versions[name]) {
			t.Errorf("%s has the version %q, not that of go.mod", name, versions[name])
		}
	}
}
