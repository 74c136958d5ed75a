package deploy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// root is the repository.
const root = "../.."

// configFolder is where every deployment has the gateway's config.
const configFolder = "/etc/keyrange"

// scratch is a folder for what several tests use; it is gone at the end.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "keyrange-deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// settings is what deployments have to fit of a gateway's config.
type settings struct {
	Server struct {
		Listen        string `json:"listen"`
		ShutdownGrace string `json:"shutdown_grace"`
	} `json:"server"`
	Admin struct {
		Listen string `json:"listen"`
	} `json:"admin"`
	Index struct {
		URI string `json:"uri"`
	} `json:"index"`
	IDs struct {
		Issuers []database `json:"issuers"`
	} `json:"ids"`
	Nodes []database `json:"nodes"`
}

type database struct {
	DSN string `json:"dsn"`
}

// settingsOf reads a config. The grace has its default where the config has none.
func settingsOf(text string) (settings, error) {
	defaults, err := os.ReadFile(filepath.Join(root, "config.yaml"))
	if err != nil {
		return settings{}, err
	}
	var shipped, s settings
	if err := yaml.Unmarshal(defaults, &shipped); err != nil {
		return settings{}, err
	}
	s.Server.ShutdownGrace = shipped.Server.ShutdownGrace
	return s, yaml.Unmarshal([]byte(text), &s)
}

// grace is server.shutdown_grace.
func (s settings) grace() time.Duration {
	d, _ := time.ParseDuration(s.Server.ShutdownGrace) // gateway check has seen it
	return d
}

// port is that of a listener's address.
func port(listen string) string { return listen[strings.LastIndexByte(listen, ':')+1:] }

// urls are those of all databases of a config.
func (s settings) urls() ([]*url.URL, error) {
	texts := []string{s.Index.URI}
	for _, d := range slices.Concat(s.IDs.Issuers, s.Nodes) {
		texts = append(texts, d.DSN)
	}
	var all []*url.URL
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, nil
}

// reference finds the environment variables that a config names.
var reference = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// referenced are the names of those variables, sorted, each once. Comments count for nothing.
func referenced(config string) []string {
	var names []string
	for line := range strings.Lines(config) {
		text, _, _ := strings.Cut(" "+line, " #")
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkConfig lets the gateway check a config, with a value for each variable that it names and for each secret in a file.
func checkConfig(t *testing.T, what, config string) {
	t.Helper()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "config.yaml"), config)
	for _, m := range regexp.MustCompile(`(?m)^[^#\n]*\w_file: (\S+)$`).FindAllStringSubmatch(config, -1) {
		write(t, filepath.Join(folder, m[1]), "mysql://gateway:p%40ss@mysql-9:3306/keyrange\n")
	}
	var environment []string
	for _, name := range referenced(config) {
		environment = append(environment, name+"=p@ss/word")
	}
	out, err := gateway(t, folder, environment, "check", "--offline", "--config", "config.yaml").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "config valid") {
		t.Errorf("%s: gateway check --offline: %v\n%s", what, err, out)
	}
}

// gateway is a command of the image's binary. It sees the given environment and nothing else.
func gateway(t *testing.T, folder string, environment []string, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), built(t).binary, args...)
	command.Dir, command.Env = folder, append([]string{"PATH=" + os.Getenv("PATH")}, environment...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 30 * time.Second
	return command
}

// serving runs the gateway with the arguments of a deployment, on an embedded config instead of that in configFolder, until
// the test is over. It returns the URLs of both listeners.
func serving(t *testing.T, args []string) (server, admin string) {
	t.Helper()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "config.yaml"), "server: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0}\n")
	args = slices.Clone(args)
	for i, a := range args {
		args[i] = strings.Replace(a, configFolder, folder, 1)
	}
	command := gateway(t, folder, nil, args...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = in, in
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close() // the gateway has its own
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, out)
		_ = command.Wait() // it says that the test's context is over
		if !command.ProcessState.Success() {
			t.Errorf("gateway %s, stopped by SIGTERM: %s", strings.Join(args, " "), command.ProcessState)
		}
	})
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var line struct{ Msg, Server, Admin string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			return "http://" + line.Server, "http://" + line.Admin
		}
		said.WriteString(lines.Text() + "\n")
	}
	t.Fatalf("gateway %s does not serve:\n%s", strings.Join(args, " "), said.String())
	return "", ""
}

// checkServed checks that a GET of a URL is answered with 200.
func checkServed(t *testing.T, what, url string) {
	t.Helper()
	client := http.Client{Timeout: 30 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("%s: GET %s is %s", what, url, answer.Status)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// read is the text of a file of the repository.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// change is a mistake that somebody could make in an example, and part of what must be said about it.
type change struct{ from, to, want string }

// checkFaults checks that a text has no fault, and that each change of it has one.
func checkFaults(t *testing.T, text string, faults func(string) []string, changes []change) {
	t.Helper()
	for _, f := range faults(text) {
		t.Error(f)
	}
	for _, c := range changes {
		if !strings.Contains(text, c.from) {
			t.Errorf("the example has no %q any more", c.from)
			continue
		}
		found := faults(strings.Replace(text, c.from, c.to, 1))
		if !strings.Contains(strings.Join(found, "\n"), c.want) {
			t.Errorf("%q instead of %q: got faults %q, want %q", c.to, c.from, found, c.want)
		}
	}
}

// TestProductionConfig: the example for production is valid.
func TestProductionConfig(t *testing.T) {
	checkConfig(t, "deploy/config.mysql-mongo.yaml", read(t, "deploy/config.mysql-mongo.yaml"))
}
