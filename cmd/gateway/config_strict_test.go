package main

import "testing"

// numberRule and octalRule end the faults of numbers that are not written as plain decimals.
const (
	numberRule = "must be a plain decimal number, such as 10000"
	octalRule  = "has a leading zero, which YAML would read as octal; it must be a plain decimal number, such as 10000"
)

func TestConfigStrictDocument(t *testing.T) {
	const empty = "config.yaml: the file is empty or holds only comments; it may have been cut off"
	runFaultCases(t, []faultCase{
		{name: "empty", text: "", want: []string{empty}},
		{name: "spaces", text: "\n \n", want: []string{empty}},
		{name: "comments only", text: "# server:\n", want: []string{empty}},
		{name: "document start only", text: "---\n", want: []string{empty}},
		{name: "scalar", text: "server", want: []string{"config.yaml:1: a config file holds keys and values, such as server: {listen: ...}"}},
		{name: "list", text: "- server", want: []string{"config.yaml:1: a config file holds keys and values, such as server: {listen: ...}"}},
		{name: "two documents", text: "log: {level: info}\n---\nlog: {level: warn}", want: []string{"config.yaml:2: a second YAML document begins; a config file holds one"}},
		{name: "not YAML", text: "log: {level: info", want: []string{"config.yaml:1: is not YAML: did not find expected ',' or '}'"}},
		{name: "cut off after a key", text: "log: {level: info}\nnodes:\n", want: []string{"config.yaml:2: nodes: has no value; give it one or remove the key"}},
		{name: "cut off within a list", text: "nodes:\n  -", want: []string{
			"config.yaml:2: nodes[0]: must be a section with the keys name, dsn, dsn_file, connections, ranges, drain"}},
		{name: "unknown anchor", text: "log: {level: *x}", want: []string{"config.yaml: is not YAML: unknown anchor referenced"}},
		{name: "document end and start are fine", text: "---\nlog: {level: info}\n...\n"},
	})
}

func TestConfigStrictKeys(t *testing.T) {
	runFaultCases(t, []faultCase{
		{name: "typo", text: "\nservr:\n  listen: x", want: []string{"config.yaml:2: servr: unknown key; did you mean server?"}},
		{name: "case", text: "Server: {listen: 127.0.0.1:1}", want: []string{"config.yaml:1: Server: unknown key; did you mean server?"}},
		{name: "nested case", text: "log: {Level: info}", want: []string{"config.yaml:1: log.Level: unknown key; did you mean level?"}},
		{name: "far from any", text: "log: {colour: red}", want: []string{"config.yaml:1: log.colour: unknown key; known here: level, slow_request"}},
		{name: "in an element", text: "collections:\n- name: a\n  kye: b", want: []string{"config.yaml:3: collections[0].kye: unknown key; did you mean key?"}},
		{name: "dotted", text: "log.level: info", want: []string{
			"config.yaml:1: log.level: unknown key; known here: server, admin, auth, log, traces, collections, index, cache, ids, ranges, sweeper, nodes"}},
		{name: "no space after the colon", text: "log: {level:info}", want: []string{
			"config.yaml:1: log: a key that is not a plain word; is a space missing after its colon?"}},
		{name: "list as key", text: "? [a]\n: b", want: []string{"config.yaml:1: a key that is not a plain word; is a space missing after its colon?"}},
		{name: "duplicate", text: "log: {level: info}\nadmin: {listen: 127.0.0.1:1}\nlog: {level: warn}", want: []string{
			"config.yaml:3: log: is set twice; first in line 1"}},
		{name: "duplicate below", text: "log:\n  level: info\n  level: info", want: []string{"config.yaml:3: log.level: is set twice; first in line 2"}},
		{name: "merge key", text: "server: &s {listen: 127.0.0.1:1}\nadmin: {<<: *s}", want: []string{
			"config.yaml:2: admin.<<: merge keys are not supported; repeat the keys"}},
		{name: "anchors", text: "server: {listen: &l 127.0.0.1:0}\nadmin: {listen: *l}"},
		{name: "anchored section", text: "server: &s {listen: 127.0.0.1:0}\nadmin: *s"},
		{name: "anchor of itself", text: "nodes: &n [*n]", want: []string{
			"config.yaml:1: nodes[0]: must be a section with the keys name, dsn, dsn_file, connections, ranges, drain"}},
		{name: "all at once, in order", text: "nods: []\nlog: {level: loud}\nranges: {size: 5}", env: []string{"GATEWAY__X=1"}, want: []string{
			"config.yaml:1: nods: unknown key; did you mean nodes?",
			`config.yaml:2: log.level: must be debug, info, warn, error (got "loud")`,
			"config.yaml:3: ranges.size: must be 10 to 1000000000000 (got 5)",
			`GATEWAY__X: no config key has this name: unknown level "X"; known here: SERVER, ADMIN, AUTH, LOG, TRACES, COLLECTIONS, INDEX, CACHE, IDS, RANGES, SWEEPER, NODES`}},
	})
}

func TestConfigStrictTypes(t *testing.T) {
	runFaultCases(t, []faultCase{
		{name: "scalar for a section", text: "log: info", want: []string{"config.yaml:1: log: must be a section with the keys level, slow_request"}},
		{name: "list for a section", text: "log: [info]", want: []string{"config.yaml:1: log: must be a section with the keys level, slow_request"}},
		{name: "section for a list", text: "nodes: {name: a}", want: []string{"config.yaml:1: nodes: must be a list"}},
		{name: "scalar for an element", text: "collections: [records]", want: []string{
			"config.yaml:1: collections[0]: must be a section with the keys name, key, group, ttl, columns, unknown_members"}},
		{name: "list for text", text: "log: {level: [info]}", want: []string{"config.yaml:1: log.level: must be text, not a list or section"}},
		{name: "number for text", text: "log: {level: 1}", want: []string{"config.yaml:1: log.level: must be text, but YAML reads it as int; put it in quotes"}},
		{name: "boolean for text", text: "log: {level: true}", want: []string{"config.yaml:1: log.level: must be text, but YAML reads it as bool; put it in quotes"}},
		{name: "null", text: "log: {level: ~}", want: []string{"config.yaml:1: log.level: has no value; give it one or remove the key"}},
		{name: "tag", text: "log: {level: !!str info}", want: []string{"config.yaml:1: log.level: must not have a YAML tag (!...)"}},
		{name: "text for a number", text: "ranges: {size: many}", want: []string{"config.yaml:1: ranges.size: " + numberRule + ` (got "many")`}},
		{name: "quoted number", text: `ranges: {size: "100"}`, want: []string{"config.yaml:1: ranges.size: " + numberRule + ", without quotes"}},
		{name: "octal", text: "ranges: {size: 010}", want: []string{"config.yaml:1: ranges.size: " + octalRule + ` (got "010")`}},
		{name: "octal that is none", text: "ranges: {size: 0900}", want: []string{"config.yaml:1: ranges.size: " + octalRule + ` (got "0900")`}},
		{name: "octal of YAML 1.2", text: "ranges: {size: 0o7}", want: []string{"config.yaml:1: ranges.size: " + numberRule + ` (got "0o7")`}},
		{name: "hexadecimal", text: "ranges: {size: 0x10}", want: []string{"config.yaml:1: ranges.size: " + numberRule + ` (got "0x10")`}},
		{name: "underscores", text: "ranges: {size: 1_000}", want: []string{"config.yaml:1: ranges.size: " + numberRule + ` (got "1_000")`}},
		{name: "exponent", text: "ranges: {size: 1e3}", want: []string{"config.yaml:1: ranges.size: " + numberRule + ` (got "1e3")`}},
		{name: "fraction", text: "ranges: {size: 100.0}", want: []string{"config.yaml:1: ranges.size: " + numberRule + ` (got "100.0")`}},
		{name: "too large", text: "ranges: {size: 9223372036854775808}", want: []string{`config.yaml:1: ranges.size: must fit in 64 bits (got "9223372036854775808")`}},
		{name: "yes", text: "index: {allow_standalone: yes}", want: []string{`config.yaml:1: index.allow_standalone: must be true or false (got "yes")`}},
		{name: "capital boolean", text: "index: {allow_standalone: True}", want: []string{`config.yaml:1: index.allow_standalone: must be true or false (got "True")`}},
		{name: "quoted boolean", text: `index: {allow_standalone: "true"}`, want: []string{"config.yaml:1: index.allow_standalone: must be true or false, without quotes"}},
		{name: "number in an element keeps the index of the next", text: "collections: [{name: 1}, {name: 2 a}]", want: []string{
			"config.yaml:1: collections[0].name: must be text, but YAML reads it as int; put it in quotes",
			`config.yaml:1: collections[1].name: must be a letter and up to 31 letters, digits or _ (got "2 a")`}},
		{name: "broken part of the map is not judged twice", text: "nodes: [{name: a, dsn: sqlite://a, ranges: 1}, {name: b, dsn: sqlite://b, ranges: '3'}]", want: []string{
			"config.yaml:1: nodes[0].ranges: must be text, but YAML reads it as int; put it in quotes"}},
	})
}

func TestConfigDuration(t *testing.T) {
	for text, ok := range map[string]bool{"5s": true, "1m30s": true, "1.5s": true, `"5s"`: true, "500ms": true,
		"5": false, "0": false, "-5s": false, "+5s": false, "05s": false, "5 s": false, "1:30": false, ".5s": false, "5d": false, "1e9": false} {
		got := faultsOf(t, "server: {request_timeout: "+text+"}")
		if (got == nil) != ok {
			t.Errorf("%s: faults %q", text, got)
		}
	}
}

func TestConfigBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"2MiB": 2 << 20, "65536": 65536, "64KiB": 64 << 10, "500kB": 500_000, "500KB": 500_000, "1 MB": 1_000_000, "4096B": 4096} {
		if got := mustLoad(t, "server: {max_body_bytes: "+text+"}").Server.MaxBodyBytes; got != want {
			t.Errorf("%s is %d bytes, want %d", text, got, want)
		}
	}
	for _, text := range []string{"1mib", "1M", "1.5MiB", "0200000", "0x10000", "65_536", "-1MiB", "1TiB", "MiB", "65,536", "99999999999999GiB"} {
		if faultsOf(t, "server: {max_body_bytes: '"+text+"'}") == nil {
			t.Errorf("%s was accepted", text)
		}
	}
}

func TestBytesString(t *testing.T) {
	for b, want := range map[Bytes]string{0: "0", 1000: "1000", 1536: "1536", 2048: "2KiB", 1 << 20: "1MiB", 3 << 29: "1536MiB", 1 << 30: "1GiB"} {
		if b.String() != want {
			t.Errorf("%d is %s, want %s", int64(b), b, want)
		}
	}
}

// FuzzLoadConfig looks for a file or variable that is neither loaded nor refused.
func FuzzLoadConfig(f *testing.F) {
	f.Add("log: {level: info}", "NODES__2__NAME", "c")
	f.Add("nodes: [&a {name: b, dsn: ${X}}, *a]\n? [x]\n: y", "INDEX__URI", "mongodb://u@h,i/${X")
	f.Add("server: {<<: *s, max_body_bytes: 1e9}\n---\n", "SERVER", "")
	f.Fuzz(func(t *testing.T, text, variable, value string) {
		cfg, err := loadText(t, text, envPrefix+variable+"="+value)
		if (cfg == nil) == (err == nil) {
			t.Errorf("config %v, error %v", cfg, err)
		}
	})
}
