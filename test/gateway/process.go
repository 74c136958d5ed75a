// Package gateway runs the built gateway for tests, as its users do: as a process with a config file, over HTTP, on
// embedded databases and on the real servers that package servers names.
package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// Patience bounds every wait for something that should come within moments.
	Patience = 30 * time.Second
	// pollInterval is the pause between two looks at something that is waited for.
	pollInterval = 10 * time.Millisecond
	// tailBytes is how much of a gateway's output a failed test shows.
	tailBytes = 6 << 10
	// outputBytes bounds how much of a gateway's output is kept: the end of it.
	outputBytes = 64 << 20
	// ConfigName is the name that the gateway looks for in its working directory.
	ConfigName = "config.yaml"
)

// binary is the path of the gateway under test, built once for the whole run.
var binary string

// Main builds the gateway, runs the tests of a package and returns their exit code. Every package that starts gateways
// calls it from TestMain.
func Main(m *testing.M) int {
	folder, err := os.MkdirTemp("", "gateway-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "gateway")
	build := exec.Command("go", "build", "-o", binary, "keyrange/cmd/gateway")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the gateway: %v\n%s", err, output)
		return 1
	}
	return reported(m.Run())
}

// Output gathers what a process prints and finds the line that says where it serves. It is safe for concurrent use.
type Output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	line    []byte         // the unfinished last line
	Serving chan [2]string // gets the addresses of both listeners, once
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if o.text.Len() > outputBytes {
		o.text.Next(outputBytes / 2)
	}
	o.line = append(o.line, p...)
	for {
		line, rest, whole := bytes.Cut(o.line, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		o.line = rest
		var entry struct{ Msg, Server, Admin string }
		if json.Unmarshal(line, &entry) == nil && entry.Msg == "serving" {
			o.Serving <- [2]string{entry.Server, entry.Admin}
		}
	}
}

// String is what was printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Process is a running `gateway serve`.
type Process struct {
	// URL and Admin are the base URLs of the two listeners, without a slash at the end.
	URL, Admin string
	Output     *Output
	Command    *exec.Cmd
	// Exited is closed when the process has ended and its output is complete.
	Exited chan struct{}
}

// WriteConfig puts a config file into a folder of its own and returns the folder.
func WriteConfig(t *testing.T, config string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, ConfigName), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// Start serves with a config, given as YAML, until the test ends at the latest. env adds NAME=value pairs.
func Start(t *testing.T, config string, env ...string) *Process {
	t.Helper()
	return StartIn(t, WriteConfig(t, config), env...)
}

// StartIn serves with the config.yaml of a folder, which becomes the working directory.
func StartIn(t *testing.T, folder string, env ...string) *Process {
	t.Helper()
	return StartWith(t, binary, folder, env...)
}

// StartWith is StartIn with another binary.
func StartWith(t *testing.T, binary, folder string, env ...string) *Process {
	t.Helper()
	g := launch(t, binary, folder, env, "serve")
	select {
	case at := <-g.Output.Serving:
		g.URL, g.Admin = "http://"+at[0], "http://"+at[1]
	case <-g.Exited:
		t.Fatalf("the gateway did not start: exit code %d\n%s", g.Command.ProcessState.ExitCode(), Tail(g.Output))
	case <-time.After(Patience):
		t.Fatalf("the gateway did not start within %s\n%s", Patience, Tail(g.Output))
	}
	return g
}

// Launch starts the binary and makes sure that it is gone when the test ends.
func Launch(t *testing.T, folder string, env []string, args ...string) *Process {
	t.Helper()
	return launch(t, binary, folder, env, args...)
}

// launch is Launch for any binary.
func launch(t *testing.T, binary, folder string, env []string, args ...string) *Process {
	t.Helper()
	g := &Process{Output: &Output{Serving: make(chan [2]string, 1)}, Command: exec.Command(binary, args...), Exited: make(chan struct{})}
	g.Command.Dir = folder
	g.Command.Env = append(plainEnviron(), env...)
	g.Command.Stdout, g.Command.Stderr = g.Output, g.Output
	if err := g.Command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(g.Exited)
		_ = g.Command.Wait() // ProcessState keeps the result
	}()
	t.Cleanup(func() {
		_ = g.Command.Process.Kill() // it may be gone already
		<-g.Exited
		if t.Failed() {
			t.Logf("output of gateway %s (%s):\n%s", strings.Join(args, " "), g.URL, Tail(g.Output))
		}
	})
	return g
}

// plainEnviron is the environment without overrides of the gateway's config.
func plainEnviron() []string {
	var env []string
	for _, one := range os.Environ() {
		if !strings.HasPrefix(one, "GATEWAY__") {
			env = append(env, one)
		}
	}
	return env
}

// Tail is the end of an output, after the first of its log lines that say that something is wrong.
func Tail(o *Output) string {
	text := o.String()
	end := text[max(0, len(text)-tailBytes):]
	wrong := ""
	for line := range strings.Lines(text[:len(text)-len(end)]) {
		if isWrong := strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`); isWrong && len(wrong) < tailBytes {
			wrong += line
		}
	}
	return wrong + "(...)\n" + end
}

// Wait returns the exit code of the process once it has ended; -1 means that a signal ended it.
func (g *Process) Wait(t *testing.T) int {
	t.Helper()
	select {
	case <-g.Exited:
	case <-time.After(Patience):
		t.Fatalf("the gateway did not end within %s\n%s", Patience, Tail(g.Output))
	}
	return g.Command.ProcessState.ExitCode()
}

// Stop asks the gateway to end, as service managers do, and checks that it does so in order.
func (g *Process) Stop(t *testing.T) {
	t.Helper()
	Client.CloseIdleConnections() // net/http waits 5 s for one that was opened and not used yet
	g.Terminate(t)
	if code := g.Wait(t); code != 0 {
		t.Errorf("exit code after SIGTERM: got %d, want 0", code)
	}
}

// Terminate sends SIGTERM and does not wait.
func (g *Process) Terminate(t *testing.T) {
	t.Helper()
	if err := g.Command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// Kill ends the gateway without a chance to tidy up.
func (g *Process) Kill(t *testing.T) {
	t.Helper()
	if err := g.Command.Process.Kill(); err != nil {
		t.Error(err)
	}
	g.Wait(t)
}

// Run runs a command of the gateway to its end, in a folder, and returns what it printed and its exit code.
func Run(t *testing.T, folder string, env []string, args ...string) (printed string, code int) {
	t.Helper()
	g := Launch(t, folder, env, args...)
	select {
	case <-g.Output.Serving:
		g.Kill(t)
		t.Fatalf("gateway %s began to serve", strings.Join(args, " "))
	case <-g.Exited:
	case <-time.After(2 * Patience):
		t.Fatalf("gateway %s did not end\n%s", strings.Join(args, " "), Tail(g.Output))
	}
	return g.Output.String(), g.Wait(t)
}
