package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// sentinel is a password that must not appear in any output.
const sentinel = "s3ntinel-Passw0rd"

func TestConfigSecretNeverPrinted(t *testing.T) {
	cfg := mustLoad(t, `
index: {uri: "mongodb://u:`+sentinel+`@h/d"}
ids: {issuers: [{dsn: "mysql://u:${PASSWORD}@h/ids"}]}
nodes: [{name: a, dsn: "${DSN}", ranges: "1"}]
`, "PASSWORD="+sentinel, "DSN=mysql://u:"+sentinel+"@h/d")
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, value := range []any{cfg, *cfg, cfg.Nodes, cfg.Nodes[0].DSN, &cfg.Nodes[0].DSN, []Secret{cfg.Index.URI}, map[Secret]Secret{cfg.Index.URI: ""}} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
	}
	text := slog.New(slog.NewTextHandler(&out, nil))
	text.Info("config", "config", cfg, "dsn", cfg.Nodes[0].DSN, "nodes", cfg.Nodes)
	structured := slog.New(slog.NewJSONHandler(&out, nil))
	structured.Info("config", "config", cfg, "dsn", cfg.Nodes[0].DSN, "nodes", cfg.Nodes)
	if err := json.NewEncoder(&out).Encode(cfg); err != nil {
		t.Fatal(err)
	}
	if err := yaml.NewEncoder(&out).Encode(cfg); err != nil {
		t.Fatal(err)
	}
	if hex := fmt.Sprintf("%x", sentinel); strings.Contains(out.String(), sentinel) || strings.Contains(out.String(), hex) {
		t.Errorf("the password was printed:\n%s", out.String())
	}
	if !strings.Contains(out.String(), redacted) {
		t.Error("nothing was printed at all")
	}
	if got := cfg.Nodes[0].DSN.Reveal(); got != "mysql://u:"+sentinel+"@h/d" {
		t.Errorf("Reveal gives %s", got)
	}
}

// TestConfigSecretNeverInFaults puts a password into each place of a config that is refused.
func TestConfigSecretNeverInFaults(t *testing.T) {
	const dsn = "mysql://u:" + sentinel + "@h/d"
	node := func(dsn string) string { return "nodes: [{name: a, dsn: '" + dsn + "', ranges: '1'}]" }
	broken := []string{
		"mysql://u:" + sentinel + "@h", "mysql://u:" + sentinel + "@h/d?x=1", "mysql://u:" + sentinel + "%zz@h/d", "mysql://u:" + sentinel,
		"mysql://u:1?" + sentinel + "@h/d", "mysql://u:1/" + sentinel + "@h/d", "mysql://u:1#" + sentinel + "@h/d", "mysql://u:" + sentinel + ":x@h:y/d",
		sentinel + "://u@h/d", "u:" + sentinel + "@tcp(h)/d", "mysql://u:${" + sentinel + "@h/d", "mysql://" + sentinel + "[@h/d", "mysql://u:" + sentinel + "@ h/d",
	}
	var texts []string
	for _, one := range broken {
		mongo := strings.Replace(one, "mysql://", "mongodb://", 1)
		texts = append(texts, node(one), "index: {uri: '"+one+"'}", "log: {level: x}\nindex: {uri: '"+mongo+"'}", "index: {uri: '"+strings.Replace(mongo, "@", "@,", 1)+"'}")
	}
	texts = append(texts,
		"nodes: "+dsn, "nodes: ['"+dsn+"']", "nodes: [{name: '"+dsn+"', ranges: '"+dsn+"', dsn_file: '"+dsn+"'}]", "nodes: [{dsn:"+dsn+"}]",
		"nodes:\n  - name: a\n    dsn: *"+sentinel+"\n", "nodes:\n  - name: a\n    dsn: &"+sentinel+"\n", "nodes: [{name: a, dsn: ["+dsn+"]}]",
		"nodes: [{dsn: !"+sentinel+" x}]", dsn, "? "+dsn, "server: {listen: '"+dsn+"', request_timeout: '"+dsn+"'}", "index: {uri: '"+dsn+"', uri_file: x}",
		"nodes: [{name: a, dsn: '"+dsn+"', ranges: '1'}, {name: b, dsn: '"+dsn+"', ranges: '2'}]", "nodes: [{dsn: '"+dsn+"', dsn: '"+dsn+"'}]",
	)
	for _, text := range texts {
		if all := strings.Join(faultsOf(t, text), "\n"); all == "" || strings.Contains(all, sentinel) {
			t.Errorf("%s:\n%s", text, all)
		}
	}
	for _, one := range broken {
		all := strings.Join(faultsOf(t, "index: {uri: '${DSN}'}", "DSN="+one, "GATEWAY__NODES__0__DSN="+one, "GATEWAY__NODES__1__DSN="+dsn+"?"), "\n")
		if all == "" || strings.Contains(all, sentinel) {
			t.Errorf("%s from the environment:\n%s", one, all)
		}
	}
}

func TestConfigSecretExpansion(t *testing.T) {
	environ := []string{"PW=a:b@c/d?e#f %+$${x}é", "DSN=mysql://u@/d?socket=/tmp/${PW}", "DIR=/var/lib/my data", "EMPTY="}
	const missing = "nodes[0].dsn: the environment variable NOPE is not set"
	for _, c := range []struct{ dsn, want, fault string }{
		{dsn: "mysql://u:${PW}@h/d", want: "mysql://u:a%3Ab%40c%2Fd%3Fe%23f%20%25%2B%24%24%7Bx%7D%C3%A9@h/d"},
		{dsn: "${DSN}", want: "mysql://u@/d?socket=/tmp/${PW}"}, // taken as it is: nothing within it is replaced again
		{dsn: "sqlite://${DIR}/a.db", want: "sqlite:///var/lib/my data/a.db"},
		{dsn: "mysql://u@/d?socket=/tmp/$${PW}", want: "mysql://u@/d?socket=/tmp/${PW}"},
		{dsn: "mysql://u:$PW$$@h/d", want: "mysql://u:$PW$$@h/d"},
		{dsn: "mysql://u:${NOPE}@h/d", fault: missing},
		{dsn: "${NOPE}", fault: missing},
		{dsn: "${EMPTY}", fault: "nodes[0].dsn: the environment variable EMPTY is empty"},
		{dsn: "mysql://u:${PW@h/d", fault: "nodes[0].dsn: a ${ without a variable name and }; write $${ where it is meant as it is"},
		{dsn: "mysql://${NOPE}:${EMPTY}@h/d", fault: missing + "; the environment variable EMPTY is empty"},
	} {
		text := "nodes: [{name: a, dsn: '" + c.dsn + "', ranges: '1'}]"
		if c.dsn != "sqlite://${DIR}/a.db" {
			text += "\nindex: {uri: mongodb://h/d}\nids: {issuers: [{dsn: mysql://u@h/i}]}"
		}
		cfg, err := loadText(t, text, environ...)
		switch {
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: error %v, want %s", c.dsn, err, c.fault)
		case c.fault == "" && err != nil:
			t.Errorf("%s: %v", c.dsn, err)
		case c.fault == "" && cfg.Nodes[0].DSN.Reveal() != c.want:
			t.Errorf("%s gives %s, want %s", c.dsn, cfg.Nodes[0].DSN.Reveal(), c.want)
		}
	}
	// Only secrets are replaced: elsewhere the text stands.
	got := faultsOf(t, "log: {level: '${PW}'}", environ...)
	if want := `config.yaml:1: log.level: must be debug, info, warn, error (got "${PW}")`; len(got) != 1 || got[0] != want {
		t.Errorf("in log.level: %q", got)
	}
}

func TestConfigSecretFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "config.yaml")
	writeFile(t, filepath.Join(folder, "secrets", "dsn"), "\n mysql://u:${PW}@h/d \n")
	writeFile(t, filepath.Join(folder, "secrets", "uri"), "mongodb://h/d")
	writeFile(t, filepath.Join(folder, "secrets", "empty"), "\n")
	writeFile(t, filepath.Join(folder, "secrets", "bad"), "mysql://u:"+sentinel+"@h")
	const mixed = "while index.uri_file is a server" // the file was read
	node := func(keys string) string { return "nodes: [{name: a, ranges: '1', " + keys + "}]\n" }
	for _, c := range []struct{ name, text, env, want string }{
		{name: "relative to the config file", text: "index: {uri_file: secrets/uri}\n" + node("dsn_file: secrets/../secrets/dsn"), want: ": nodes[0].dsn_file: not a valid URL"},
		{name: "absolute, and the default gives way", text: "index: {uri_file: " + filepath.Join(folder, "secrets", "uri") + "}", want: mixed},
		{name: "from the environment, over a default", text: "log: {level: info}", env: "GATEWAY__INDEX__URI_FILE=secrets/uri", want: mixed},
		{name: "both", text: node("dsn: sqlite://a, dsn_file: secrets/dsn"), want: ":1: nodes[0].dsn: give either this or nodes[0].dsn_file, not both"},
		{name: "both, one from the environment", text: node("dsn: sqlite://a"), env: "GATEWAY__NODES__0__DSN_FILE=secrets/dsn", want: ":1: nodes[0].dsn: give either this or nodes[0].dsn_file, not both"},
		{name: "unreadable", text: node("dsn_file: secrets/nope"), want: `:1: nodes[0].dsn_file: cannot read the file: no such file or directory (got "secrets/nope")`},
		{name: "folder", text: node("dsn_file: secrets"), want: `:1: nodes[0].dsn_file: cannot read the file: is a directory (got "secrets")`},
		{name: "empty", text: node("dsn_file: secrets/empty"), want: `:1: nodes[0].dsn_file: the file is empty (got "secrets/empty")`},
		{name: "bad URL in the file", text: node("dsn_file: secrets/bad"), want: ":1: nodes[0].dsn_file: no database name (letters, digits, _, $ and -): want mysql://user:password@host:port/database"},
	} {
		t.Run(c.name, func(t *testing.T) {
			writeFile(t, path, c.text)
			_, err := LoadConfig(path, []string{c.env, "PW=x"})
			got := fmt.Sprint(err)
			if c.want == "" && err != nil || !strings.Contains(got, c.want) || strings.Contains(got, sentinel) {
				t.Errorf("error %v\nwant %s", err, c.want)
			}
		})
	}
}
