// Package integration runs the built gateway as its users do: as a process with a config file, over HTTP, on embedded
// databases and on the real servers that package servers names.
package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
	// patience bounds every wait for something that should come within moments.
	patience = 30 * time.Second
	// pollInterval is the pause between two looks at something that is waited for.
	pollInterval = 10 * time.Millisecond
	// tailBytes is how much of a gateway's output a failed test shows.
	tailBytes = 6 << 10
	// configName is the name that the gateway looks for in its working directory.
	configName = "config.yaml"
)

// binary is the path of the gateway under test, built once for the whole run.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

// buildAndRun returns the exit code of the run, so that its deferred clean-up happens before the process ends.
func buildAndRun(m *testing.M) int {
	folder, err := os.MkdirTemp("", "gateway-integration-")
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
	return m.Run()
}

// output gathers what a process prints and finds the line that says where it serves. It is safe for concurrent use.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	line    []byte         // the unfinished last line
	serving chan [2]string // gets the addresses of both listeners, once
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	o.line = append(o.line, p...)
	for {
		line, rest, whole := bytes.Cut(o.line, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		o.line = rest
		var entry struct{ Msg, Server, Admin string }
		if json.Unmarshal(line, &entry) == nil && entry.Msg == "serving" {
			o.serving <- [2]string{entry.Server, entry.Admin}
		}
	}
}

// String is all that was printed so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// gateway is a running `gateway serve`.
type gateway struct {
	// url and admin are the base URLs of the two listeners, without a slash at the end.
	url, admin string
	output     *output
	command    *exec.Cmd
	exited     chan struct{} // closed when the process has ended and its output is complete
}

// writeConfig puts a config file into a folder of its own and returns the folder.
func writeConfig(t *testing.T, config string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, configName), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// startGateway serves with a config, given as YAML, until the test ends at the latest. env adds NAME=value pairs.
func startGateway(t *testing.T, config string, env ...string) *gateway {
	t.Helper()
	return startIn(t, writeConfig(t, config), env...)
}

// startIn serves with the config.yaml of a folder, which becomes the working directory.
func startIn(t *testing.T, folder string, env ...string) *gateway {
	t.Helper()
	g := launch(t, folder, env, "serve")
	select {
	case at := <-g.output.serving:
		g.url, g.admin = "http://"+at[0], "http://"+at[1]
	case <-g.exited:
		t.Fatalf("the gateway did not start: exit code %d\n%s", g.command.ProcessState.ExitCode(), tail(g.output))
	case <-time.After(patience):
		t.Fatalf("the gateway did not start within %s\n%s", patience, tail(g.output))
	}
	return g
}

// launch starts the binary and makes sure that it is gone when the test ends.
func launch(t *testing.T, folder string, env []string, args ...string) *gateway {
	t.Helper()
	g := &gateway{output: &output{serving: make(chan [2]string, 1)}, command: exec.Command(binary, args...), exited: make(chan struct{})}
	g.command.Dir = folder
	g.command.Env = append(plainEnviron(), env...)
	g.command.Stdout, g.command.Stderr = g.output, g.output
	if err := g.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(g.exited)
		_ = g.command.Wait() // ProcessState keeps the result
	}()
	t.Cleanup(func() {
		_ = g.command.Process.Kill() // it may be gone already
		<-g.exited
		if t.Failed() {
			t.Logf("output of gateway %s (%s):\n%s", strings.Join(args, " "), g.url, tail(g.output))
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

// tail is the end of an output, after the first of its log lines that say that something is wrong.
func tail(o *output) string {
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

// wait returns the exit code of the process once it has ended; -1 means that a signal ended it.
func (g *gateway) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-g.exited:
	case <-time.After(patience):
		t.Fatalf("the gateway did not end within %s\n%s", patience, tail(g.output))
	}
	return g.command.ProcessState.ExitCode()
}

// stop asks the gateway to end, as service managers do, and checks that it does so in order.
func (g *gateway) stop(t *testing.T) {
	t.Helper()
	client.CloseIdleConnections() // net/http waits 5 s for one that was opened and not used yet
	g.terminate(t)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code after SIGTERM: got %d, want 0", code)
	}
}

// terminate sends SIGTERM and does not wait.
func (g *gateway) terminate(t *testing.T) {
	t.Helper()
	if err := g.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// kill ends the gateway without a chance to tidy up.
func (g *gateway) kill(t *testing.T) {
	t.Helper()
	if err := g.command.Process.Kill(); err != nil {
		t.Error(err)
	}
	g.wait(t)
}

// run runs a command of the gateway to its end, in a folder, and returns what it printed and its exit code.
func run(t *testing.T, folder string, env []string, args ...string) (printed string, code int) {
	t.Helper()
	g := launch(t, folder, env, args...)
	select {
	case <-g.output.serving:
		g.kill(t)
		t.Fatalf("gateway %s began to serve", strings.Join(args, " "))
	case <-g.exited:
	case <-time.After(2 * patience):
		t.Fatalf("gateway %s did not end\n%s", strings.Join(args, " "), tail(g.output))
	}
	return g.output.String(), g.wait(t)
}

// answer is a response that has been read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// etag is the ETag of the answer without its quotes.
func (a answer) etag() string { return strings.Trim(a.header.Get("ETag"), `"`) }

// code is the code of a problem document; empty when the body is none.
func (a answer) code() string {
	var problem struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &problem) // no problem document, no code
	return problem.Code
}

// client keeps a connection for each of the concurrent callers of a test.
var client = &http.Client{
	Timeout:       patience,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 128, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// call sends one request. The path is sent byte for byte; headers are of the form "Name: value". A body is JSON unless
// a header says otherwise.
func (g *gateway) call(method, path, body string, headers ...string) (answer, error) {
	return callAt(g.url, method, path, body, headers...)
}

// callAt is call for any listener.
func callAt(base, method, path, body string, headers ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, base, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.URL = &url.URL{Scheme: request.URL.Scheme, Host: request.URL.Host, Opaque: path}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(content)}, err
}

// do is call for the goroutine of the test, which ends when no answer comes.
func (g *gateway) do(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	a, err := g.call(method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %.80s: %v", method, path, err)
	}
	return a
}

// expect is do with a look at the status.
func (g *gateway) expect(t *testing.T, status int, method, path, body string, headers ...string) answer {
	t.Helper()
	a := g.do(t, method, path, body, headers...)
	if a.status != status {
		t.Errorf("%s %.80s %.80s: got %d %s, want %d", method, path, body, a.status, strings.TrimSpace(a.body), status)
	}
	return a
}

// poll waits until the condition holds.
func poll(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	timeout := time.After(patience)
	for !condition() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// together runs the work of n clients at once and joins their errors.
func together(n int, work func(client int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = work(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
