package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// loadText loads a config file with this text.
func loadText(t *testing.T, text string, environ ...string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadConfig(path, environ)
}

// mustLoad loads a config file with this text that has no fault.
func mustLoad(t *testing.T, text string, environ ...string) *Config {
	t.Helper()
	cfg, err := loadText(t, text, environ...)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// faultsOf loads a config file with this text and returns the lines of its error, without the folder of the file.
func faultsOf(t *testing.T, text string, environ ...string) []string {
	t.Helper()
	_, err := loadText(t, text, environ...)
	if err == nil {
		return nil
	}
	folder := regexp.MustCompile(`(?m)^/\S+/config\.yaml`)
	return strings.Split(folder.ReplaceAllString(err.Error(), "config.yaml"), "\n")
}

// faultCase is a config file with the lines of the error that it causes; none for a file without a fault.
type faultCase struct {
	name string
	text string
	env  []string
	want []string
}

func runFaultCases(t *testing.T, cases []faultCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := faultsOf(t, c.text, c.env...); !slices.Equal(got, c.want) {
				t.Errorf("faults:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestShippedConfigIsTheDefault(t *testing.T) {
	cfg, err := LoadConfig("../../config.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := defaultConfig(); !reflect.DeepEqual(*cfg, want) {
		t.Errorf("config.yaml says\n%+v\nthe defaults are\n%+v", revealed(*cfg), revealed(want))
	}
}

func TestShippedConfigMySQLMongo(t *testing.T) {
	text, err := os.ReadFile("../../deploy/config.mysql-mongo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "config.yaml"), string(text))
	writeFile(t, filepath.Join(folder, "secrets", "mysql-3-dsn"), "mysql://gateway:x@mysql-3.example.net/keyrange?tls=true\n")
	cfg, err := LoadConfig(filepath.Join(folder, "config.yaml"), []string{"MONGO_PASSWORD=p@ss/word", "MYSQL_PASSWORD=50% #?"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cfg.Nodes[0].DSN.Reveal(), "mysql://gateway:50%25%20%23%3F@mysql-1.example.net:3306/keyrange?tls=true"; got != want {
		t.Errorf("nodes[0].dsn = %s, want %s", got, want)
	}
	if got, want := cfg.Nodes[2].DSN.Reveal(), "mysql://gateway:x@mysql-3.example.net/keyrange?tls=true"; got != want {
		t.Errorf("nodes[2].dsn = %s, want %s", got, want)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// revealed is the config with its secrets, to show what a test found.
func revealed(cfg Config) any { return settingsOf(reflect.ValueOf(cfg)) }

func TestConfigFileOverDefaults(t *testing.T) {
	cfg := mustLoad(t, `
server: {request_timeout: 1m30s, max_body_bytes: 2048}
index: {uri: mongodb://h/d}
ids: {issuers: [{dsn: mysql://u@h/i}]}
nodes:
  - {name: a, dsn: mysql://u@h/a, ranges: 2-3}
  - &b {name: b, dsn: "mysql://u@h/b", connections: 4, ranges: "1,4"}
`)
	want := defaultConfig()
	want.Server.RequestTimeout, want.Server.MaxBodyBytes = 90*time.Second, 2048
	want.Index.URI, want.IDs.Issuers = "mongodb://h/d", []IssuerConfig{{DSN: "mysql://u@h/i"}}
	want.Nodes = []NodeConfig{
		{Name: "a", DSN: "mysql://u@h/a", Connections: 32, Ranges: "2-3"},
		{Name: "b", DSN: "mysql://u@h/b", Connections: 4, Ranges: "1,4"},
	}
	if !reflect.DeepEqual(*cfg, want) {
		t.Errorf("got\n%+v\nwant\n%+v", revealed(*cfg), revealed(want))
	}
}

func TestLoadConfigPath(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := LoadConfig("", nil); err == nil || err.Error() != "config.yaml: cannot read the config file: no such file or directory" {
		t.Errorf("without a file: %v", err)
	}
	writeFile(t, "config.yaml", "log: {level: warn}")
	cfg, err := LoadConfig("", nil)
	if err != nil || cfg.Log.Level != "warn" {
		t.Errorf("from the working directory: %+v, %v", cfg, err)
	}
}

// scalarKeys calls visit with each scalar key of a config, those in elements of lists included.
func scalarKeys(v reflect.Value, path string, visit func(key string, typ reflect.Type)) {
	for i := range v.NumField() {
		value := v.Field(i)
		full := joinKey(path, v.Type().Field(i).Tag.Get(keyTag))
		switch value.Kind() {
		case reflect.Struct:
			scalarKeys(value, full, visit)
		case reflect.Slice:
			for j := range value.Len() {
				scalarKeys(value.Index(j), fmt.Sprintf("%s[%d]", full, j), visit)
			}
		default:
			visit(full, value.Type())
		}
	}
}

// valueAt is the value of a key such as nodes[1].ranges.
func valueAt(v reflect.Value, key string) reflect.Value {
	for _, step := range strings.FieldsFunc(key, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		if v.Kind() == reflect.Slice {
			var index int
			_, _ = fmt.Sscan(step, &index)
			v = v.Index(index)
			continue
		}
		field, _ := fieldOf(v.Type(), step)
		v = v.FieldByIndex(field.Index)
	}
	return v
}

func TestEnvironmentOverridesEveryScalarKey(t *testing.T) {
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	root := parseYAML(text, newFaults(""))
	scalarKeys(reflect.ValueOf(defaultConfig()), "", func(key string, typ reflect.Type) {
		t.Run(key, func(t *testing.T) {
			samples := map[reflect.Type]string{durationType: "17s", bytesType: "17KiB", ratioType: "0.17", reflect.TypeFor[bool](): "true"}
			sample, ok := samples[typ]
			if !ok {
				sample = "17" // a number, or text
			}
			f := newFaults("config.yaml")
			cfg, err := mergeSettings(walkYAML(root, f), environment{envName(key): sample}, f)
			if err != nil || f.err() != nil {
				t.Fatal(err, f.err())
			}
			want, _ := parseScalar(typ, sample)
			if got := valueAt(reflect.ValueOf(*cfg), key).Interface(); got != want {
				t.Errorf("%s=%s gives %v", envName(key), sample, got)
			}
			if untouched := defaultConfig(); reflect.DeepEqual(*cfg, untouched) {
				t.Error("the sample is the default and proves nothing")
			}
		})
	})
}

func TestEnvironmentAppendsElements(t *testing.T) {
	var environ []string
	for i := 2; i <= 11; i++ { // two digits: the order is not that of the names
		environ = append(environ,
			fmt.Sprintf("GATEWAY__NODES__%d__NAME=node-%d", i, i+1),
			fmt.Sprintf("GATEWAY__NODES__%d__DSN=sqlite://data/node-%d.db", i, i+1),
			fmt.Sprintf("GATEWAY__NODES__%d__RANGES=%d", i, i+1))
	}
	cfg := mustLoad(t, "log: {level: info}", environ...)
	if len(cfg.Nodes) != 12 {
		t.Fatalf("%d nodes, want 12", len(cfg.Nodes))
	}
	want := NodeConfig{Name: "node-12", DSN: "sqlite://data/node-12.db", Connections: 32, Ranges: "12"}
	if cfg.Nodes[11] != want {
		t.Errorf("the last node is %+v", cfg.Nodes[11])
	}
}

func TestEnvironmentFaults(t *testing.T) {
	const text = "log: {level: info}"
	runFaultCases(t, []faultCase{
		{name: "kubernetes service variables are not ours", text: text, env: []string{"GATEWAY_PORT=tcp://10.0.0.1:80", "GATEWAY_SERVICE_HOST=x"}},
		{name: "unknown level", text: text, env: []string{"GATEWAY__SERVR__LISTEN=x"}, want: []string{
			`GATEWAY__SERVR__LISTEN: no config key has this name: unknown level "SERVR"; did you mean SERVER?`}},
		{name: "unknown key of an element", text: text, env: []string{"GATEWAY__NODES__0__DNS=x"}, want: []string{
			`GATEWAY__NODES__0__DNS: no config key has this name: unknown level "DNS"; did you mean DSN?`}},
		{name: "lower case", text: text, env: []string{"GATEWAY__log__LEVEL=warn"}, want: []string{
			`GATEWAY__log__LEVEL: no config key has this name: unknown level "log"; did you mean LOG?`}},
		{name: "nothing after the prefix", text: text, env: []string{"GATEWAY__=x"}, want: []string{
			`GATEWAY__: no config key has this name: unknown level ""; known here: SERVER, ADMIN, AUTH, LOG, TRACES, COLLECTIONS, INDEX, CACHE, IDS, RANGES, SWEEPER, NODES`}},
		{name: "section", text: text, env: []string{"GATEWAY__LOG=warn"}, want: []string{
			`GATEWAY__LOG: log is a section; name one of its keys: LEVEL, SLOW_REQUEST`}},
		{name: "below a scalar", text: text, env: []string{"GATEWAY__LOG__LEVEL__X=warn"}, want: []string{
			`GATEWAY__LOG__LEVEL__X: log.level has no keys below it`}},
		{name: "list without index", text: text, env: []string{"GATEWAY__NODES__DSN=x"}, want: []string{
			`GATEWAY__NODES__DSN: nodes is a list; the index of an element, from 0, must follow: GATEWAY__NODES__0__...`}},
		{name: "octal index", text: text, env: []string{"GATEWAY__NODES__00__DSN=x"}, want: []string{
			`GATEWAY__NODES__00__DSN: nodes is a list; the index of an element, from 0, must follow: GATEWAY__NODES__0__...`}},
		{name: "beyond one past the end", text: text, env: []string{"GATEWAY__NODES__3__DSN=x"}, want: []string{
			`GATEWAY__NODES__3__DSN: nodes has 2 elements, so the next index is 2`}},
		{name: "octal number", text: text, env: []string{"GATEWAY__RANGES__SIZE=010"}, want: []string{
			`GATEWAY__RANGES__SIZE: ranges.size: has a leading zero, which YAML would read as octal; it must be a plain decimal number, such as 10000 (got "010")`}},
		{name: "boolean word", text: text, env: []string{"GATEWAY__INDEX__ALLOW_STANDALONE=yes"}, want: []string{
			`GATEWAY__INDEX__ALLOW_STANDALONE: index.allow_standalone: must be true or false (got "yes")`}},
		{name: "empty number", text: text, env: []string{"GATEWAY__RANGES__SIZE="}, want: []string{
			`GATEWAY__RANGES__SIZE: ranges.size: must be a plain decimal number, such as 10000 (got "")`}},
		{name: "broken rule names the variable", text: text, env: []string{"GATEWAY__SERVER__REQUEST_TIMEOUT=1h"}, want: []string{
			`GATEWAY__SERVER__REQUEST_TIMEOUT: server.request_timeout: must be 100ms to 10m0s (got 1h0m0s)`}},
		{name: "appended element lacks keys", text: text, env: []string{"GATEWAY__NODES__2__RANGES=3"}, want: []string{
			`GATEWAY__NODES__2__RANGES: nodes[2].name: must be a lower-case letter or digit and up to 62 lower-case letters, digits, . or - (got "")`,
			`GATEWAY__NODES__2__RANGES: nodes[2].dsn: is missing; give it a URL, mysql://user@host:port/database or sqlite://path/to/file.db, or name a file that holds one`}},
	})
}

// TestConfigFileShowsEveryKey holds config.yaml to its promise, in comments where a key has no place in the default.
func TestConfigFileShowsEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Uncommented, the file is no valid config (uri and uri_file exclude each other), but all of its keys can be walked.
	all := regexp.MustCompile(`(?m)^( *)# ([a-z_]+: \S+)$`).ReplaceAll(text, []byte("$1$2"))
	f := newFaults("config.yaml")
	root := parseYAML(all, f)
	if root == nil {
		t.Fatal(f.err())
	}
	walkYAML(root, f)
	if err := f.err(); err != nil {
		t.Fatal(err)
	}
	scalarKeys(reflect.ValueOf(defaultConfig()), "", func(key string, _ reflect.Type) {
		if !f.given(key) && !strings.HasPrefix(key, "nodes[1].") {
			t.Errorf("config.yaml does not show %s", key)
		}
	})
}

func TestConfigFileCommentsEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// The second node has the keys of the first, and the names of these sections say all that their one key does not.
	explained, _, _ := strings.Cut(string(text), "  - name: node-2")
	obvious := []string{"log:", "ranges:"}
	key, comment := regexp.MustCompile(`^\s*(- |# )?[a-z_]+:( |$)`), regexp.MustCompile(`^\s*#`)
	lines := strings.Split(explained, "\n")
	for i, line := range lines {
		if key.MatchString(line) && !slices.Contains(obvious, line) && !comment.MatchString(lines[i-1]) {
			t.Errorf("config.yaml:%d: %s: no comment above it", i+1, strings.TrimSpace(line))
		}
	}
}
