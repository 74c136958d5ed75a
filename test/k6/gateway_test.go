package k6

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for something that should come within moments.
const patience = 30 * time.Second

// binary is the gateway under test, built once for the whole run.
var binary string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "k6-test-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(folder, "gateway")
	build := exec.Command("go", "build", "-o", binary, "./cmd/gateway")
	build.Dir = "../.."
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the gateway: %v\n%s", err, output)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder) // the system's temporary folder takes care of the rest
	os.Exit(code)
}

// gateway is one that runs, embedded.
type gateway struct {
	// url and admin are the base URLs of the listeners.
	url, admin string
	// config is the path of its config file.
	config string
}

// configOf is an embedded gateway with a number of nodes, one range each. New records go to two of them at a time, so that an
// appended node gets some at once.
func configOf(nodes int) string {
	text := `server: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
ids: {order: spread}
ranges: {size: 100000}
nodes:
`
	for i := range nodes {
		text += fmt.Sprintf("  - {name: node-%d, dsn: \"sqlite://data/node-%[1]d.db\", ranges: \"%[1]d\"}\n", i+1)
	}
	return text
}

// start serves with a config until the test ends.
func start(t *testing.T, config string) gateway {
	t.Helper()
	folder := t.TempDir()
	g := gateway{config: filepath.Join(folder, "config.yaml")}
	write(t, g.config, config)
	command := exec.Command(binary, "serve")
	command.Dir = folder
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	serving, ended := make(chan [2]string, 1), make(chan string, 1)
	go follow(bufio.NewScanner(output), serving, ended)
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM) // it may be gone already
		select {
		case printed := <-ended:
			if t.Failed() {
				t.Logf("the gateway's output:\n%s", printed)
			}
		case <-time.After(patience):
			_ = command.Process.Kill()
			t.Error("the gateway does not stop")
		}
		_ = command.Wait()
	})
	select {
	case at := <-serving:
		g.url, g.admin = "http://"+at[0], "http://"+at[1]
	case printed := <-ended:
		ended <- printed
		t.Fatal("the gateway did not start")
	case <-time.After(patience):
		t.Fatal("the gateway did not start in time")
	}
	return g
}

// follow reads what a gateway prints: where it serves, and at its end the last lines.
func follow(lines *bufio.Scanner, serving chan<- [2]string, ended chan<- string) {
	var printed []string
	for lines.Scan() {
		printed = append(printed, lines.Text())
		if len(printed) > 200 {
			printed = printed[100:]
		}
		var entry struct{ Msg, Server, Admin string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "serving" {
			serving <- [2]string{entry.Server, entry.Admin}
		}
	}
	ended <- strings.Join(printed, "\n")
}

// reload puts another config in force.
func (g gateway) reload(t *testing.T, config string) {
	t.Helper()
	write(t, g.config, config)
	answer, err := http.Post(g.admin+"/admin/reload", "", nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("the config was not taken: %s", answer.Status)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Error(err)
	}
}
