package main

import (
	"fmt"
	"strings"
	"testing"
)

// nodeLine is a line of a nodes list.
func nodeLine(name, dsn, ranges string) string {
	return "\n  - {name: " + name + ", dsn: '" + dsn + "', ranges: '" + ranges + "'}"
}

func TestConfigServerRules(t *testing.T) {
	const hint = "is not a loopback address, and the gateway asks nobody who they are: whoever reaches the port could use it; set auth.keys_file, listen on 127.0.0.1:80, or set "
	const shape = "must be host:port, such as 127.0.0.1:8080, with a port number up to 65535"
	runFaultCases(t, []faultCase{
		{name: "all interfaces", text: "server: {listen: 0.0.0.0:80}", want: []string{`config.yaml:1: server.listen: ` + hint + `server.allow_public: true behind something that does ask (got "0.0.0.0:80")`}},
		{name: "no host", text: "admin: {listen: ':80'}", want: []string{`config.yaml:1: admin.listen: ` + hint + `admin.allow_public: true behind something that does ask (got ":80")`}},
		{name: "name", text: "server: {listen: 'gateway:80'}", want: []string{`config.yaml:1: server.listen: ` + hint + `server.allow_public: true behind something that does ask (got "gateway:80")`}},
		{name: "public on purpose", text: "server: {listen: '0.0.0.0:80', allow_public: true}\nadmin: {listen: '[::]:81', allow_public: true}"},
		{name: "loopback in other words", text: "server: {listen: 'localhost:80'}\nadmin: {listen: '[::1]:80'}", want: []string{
			`config.yaml:2: admin.listen: must not be the address of server.listen (got "[::1]:80")`}},
		{name: "no port", text: "server: {listen: localhost}", want: []string{`config.yaml:1: server.listen: ` + shape + ` (got "localhost")`}},
		{name: "port by name", text: "server: {listen: 'localhost:http'}", want: []string{`config.yaml:1: server.listen: ` + shape + ` (got "localhost:http")`}},
		{name: "port too large", text: "server: {listen: 'localhost:65536'}", want: []string{`config.yaml:1: server.listen: ` + shape + ` (got "localhost:65536")`}},
		{name: "same address", text: "server: {listen: 127.0.0.1:80}\nadmin: {listen: 127.0.0.1:80}", want: []string{
			`config.yaml:2: admin.listen: must not be the address of server.listen (got "127.0.0.1:80")`}},
		{name: "same port of all interfaces", text: "server: {listen: '0.0.0.0:80', allow_public: true}\nadmin: {listen: 127.0.0.1:80}", want: []string{
			`config.yaml:2: admin.listen: must not be the address of server.listen (got "127.0.0.1:80")`}},
		{name: "two loopback addresses", text: "server: {listen: 127.0.0.1:80}\nadmin: {listen: 127.0.0.2:80}"},
		{name: "free ports", text: "server: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0}"},
		{name: "times too short", text: "server:\n  request_timeout: 99ms\n  shutdown_grace: 0s", want: []string{
			"config.yaml:2: server.request_timeout: must be 100ms to 10m0s (got 99ms)"}},
		{name: "times too long", text: "server:\n  request_timeout: 601s\n  shutdown_grace: 601s", want: []string{
			"config.yaml:2: server.request_timeout: must be 100ms to 10m0s (got 10m1s)",
			"config.yaml:3: server.shutdown_grace: must be 0s to 10m0s (got 10m1s)"}},
		{name: "bodies too small", text: "server:\n  max_body_bytes: 1023\n  max_bulk_bytes: 1", want: []string{
			"config.yaml:2: server.max_body_bytes: must be 1KiB to 64MiB (got 1023)",
			"config.yaml:3: server.max_bulk_bytes: must be 1KiB to 1GiB (got 1)",
			"config.yaml:3: server.max_bulk_bytes: must be at least server.max_body_bytes, 1023 (got 1)"}},
		{name: "bodies too large", text: "server:\n  max_body_bytes: 65MiB\n  max_bulk_bytes: 1025MiB", want: []string{
			"config.yaml:2: server.max_body_bytes: must be 1KiB to 64MiB (got 65MiB)",
			"config.yaml:3: server.max_bulk_bytes: must be 1KiB to 1GiB (got 1025MiB)"}},
		{name: "cache too large", text: "cache: {max_bytes: 65GiB}", want: []string{
			"config.yaml:1: cache.max_bytes: must be 0 to 64GiB (got 65GiB)"}},
		{name: "no cache", text: "cache: {max_bytes: 0}"},
		{name: "bulk below one body, by default", text: "server: {max_body_bytes: 32MiB}", want: []string{
			"config.yaml:1: server.max_bulk_bytes: must be at least server.max_body_bytes, 32MiB (got 16MiB)"}},
	})
}

func TestConfigNameRules(t *testing.T) {
	const collection = "must be a letter and up to 31 letters, digits or _"
	const node = "must be a lower-case letter or digit and up to 62 lower-case letters, digits, . or -"
	long := strings.Repeat("a", 64)
	runFaultCases(t, []faultCase{
		{name: "no collection", text: "collections: []", want: []string{`config.yaml:1: collections: must list at least one collection (got "an empty list")`}},
		{name: "collection names", text: "collections:\n - {name: 1a}\n - {name: a-b}\n - {key: x}\n - {name: " + long[:33] + "}\n - {name: " + long[:32] + "}", want: []string{
			"config.yaml:2: collections[0].name: " + collection + ` (got "1a")`,
			"config.yaml:3: collections[1].name: " + collection + ` (got "a-b")`,
			"config.yaml:4: collections[2].name: " + collection + ` (got "")`,
			"config.yaml:5: collections[3].name: " + collection + ` (got "` + long[:33] + `")`}},
		{name: "collections that differ by case", text: "collections:\n - {name: orders}\n - {name: Orders}", want: []string{
			`config.yaml:3: collections[1].name: is the same name as collections[0].name (case is ignored) (got "Orders")`}},
		{name: "group members", text: "collections:\n - {name: a, group: 'a.b'}\n - {name: b, key: k, group: k}\n - {name: c, group: key}\n - {name: d, key: k, group: g}", want: []string{
			`config.yaml:2: collections[0].group: must be a letter or _ and up to 63 letters, digits or _ (got "a.b")`,
			`config.yaml:3: collections[1].group: must not be the member of the key (got "k")`,
			`config.yaml:4: collections[2].group: must not be the member of the key (got "key")`}},
		{name: "key members", text: "collections:\n - {name: a, key: ''}\n - {name: b, key: 'a.b'}\n - {name: c, key: _" + long + "}", want: []string{
			`config.yaml:2: collections[0].key: must be a letter or _ and up to 63 letters, digits or _ (got "")`,
			`config.yaml:3: collections[1].key: must be a letter or _ and up to 63 letters, digits or _ (got "a.b")`,
			`config.yaml:4: collections[2].key: must be a letter or _ and up to 63 letters, digits or _ (got "_` + long + `")`}},
		{name: "columns", text: "collections:\n - name: a\n   unknown_members: drop\n   columns:\n    - {name: 'x y', type: int}\n    - {name: Token, type: int}\n    - {name: b, type: enum}\n    - {name: c, type: decimal, default: '1e99'}\n", want: []string{
			`config.yaml:3: collections[0].unknown_members: must be refuse or keep (got "drop")`,
			`config.yaml:5: collections[0].columns[0].name: must be a letter or _ and up to 63 letters, digits or _ to name a column; name the column in collections[0].columns[0].column (got "x y")`,
			`config.yaml:6: collections[0].columns[1].name: is the name of a column that the gateway or the database has; set collections[0].columns[1].column to another name, such as record_token (got "Token")`,
			"config.yaml:7: collections[0].columns[2].type: is no type that columns can have: bool, tinyint to bigint [unsigned], decimal, double, char, varchar, text, date, time, datetime, timestamp, binary, varbinary, blob and json are, and tiny, medium and long ones of text and blob" + ` (got "enum")`,
			`config.yaml:8: collections[0].columns[3].default: must have at most 10 digits before the point, as decimal(10,0) (got "1e99")`}},
		{name: "columns of the group and the time to live", text: "collections:\n - name: a\n   group: g\n   ttl: t\n   columns:\n    - {name: g, type: 'decimal(5,2)', default: '1'}\n    - {name: t, type: double, default: '60'}\n" +
			" - name: b\n   group: g\n   ttl: t\n   columns:\n    - {name: g, type: varchar(9), required: true}\n    - {name: t, type: int unsigned}\n - {name: c, group: g, ttl: g}\n", want: []string{
			`config.yaml:6: collections[0].columns[0].type: must be an integer, a char, a varchar or a text, because the member holds the group (got "decimal(5,2)")`,
			`config.yaml:6: collections[0].columns[0].default: must be empty, because the member holds the group: without it a record is in none (got "1")`,
			`config.yaml:7: collections[0].columns[1].type: must be an integer, because the member holds the time to live (got "double")`,
			`config.yaml:7: collections[0].columns[1].default: must be empty, because the member holds the time to live: without it a record lives for ever (got "60")`,
			`config.yaml:14: collections[2].ttl: must differ from the group member, which never changes (got "g")`}},
		{name: "columns from the environment", text: "collections: [{name: a}]", env: []string{"GATEWAY__COLLECTIONS__0__COLUMNS__0__NAME=total", "GATEWAY__COLLECTIONS__0__COLUMNS__0__TYPE=int"}},
		{name: "node names", text: "nodes:" + nodeLine("A", "sqlite://a", "1") + nodeLine("-a", "sqlite://b", "2") + nodeLine(long, "sqlite://c", "3"), want: []string{
			"config.yaml:2: nodes[0].name: " + node + ` (got "A")`,
			"config.yaml:3: nodes[1].name: " + node + ` (got "-a")`,
			"config.yaml:4: nodes[2].name: " + node + ` (got "` + long + `")`}},
		{name: "node twice", text: "nodes:" + nodeLine("a", "sqlite://a", "1") + nodeLine("a", "sqlite://b", "2"), want: []string{
			`config.yaml:3: nodes[1].name: is the same name as nodes[0].name (case is ignored) (got "a")`}},
		{name: "log level", text: "log: {level: INFO}", want: []string{`config.yaml:1: log.level: must be debug, info, warn, error (got "INFO")`}},
	})
}

func TestConfigNumberRules(t *testing.T) {
	runFaultCases(t, []faultCase{
		{name: "sweeper off", text: "sweeper: {rows_per_second: 0, interval: 1s}"},
		{name: "sweeper", text: "sweeper:\n  rows_per_second: 1000001\n  interval: 721h", want: []string{
			"config.yaml:2: sweeper.rows_per_second: must be 0 to 1000000 (got 1000001)",
			"config.yaml:3: sweeper.interval: must be 1s to 720h0m0s (got 721h0m0s)"}},
		{name: "sweeper below", text: "sweeper: {rows_per_second: -1, interval: 999ms}", want: []string{
			"config.yaml:1: sweeper.rows_per_second: must be 0 to 1000000 (got -1)",
			"config.yaml:1: sweeper.interval: must be 1s to 720h0m0s (got 999ms)"}},
		{name: "range too small", text: "ranges: {size: 9}", want: []string{"config.yaml:1: ranges.size: must be 10 to 1000000000000 (got 9)"}},
		{name: "range too large", text: "ranges: {size: 1000000000001}", want: []string{"config.yaml:1: ranges.size: must be 10 to 1000000000000 (got 1000000000001)"}},
		{name: "range bounds", text: "ranges: {size: 10}"},
		{name: "steps too small", text: "ids:\n  step:\n    min: 0\n    max: -1", want: []string{
			"config.yaml:3: ids.step.min: must be 1 to 1000000 (got 0)",
			"config.yaml:4: ids.step.max: must be 1 to 1000000 (got -1)",
			"config.yaml:4: ids.step.max: must be at least ids.step.min, 0 (got -1)"}},
		{name: "order", text: "ids:\n  order: random\n  open_ranges: 0\n  high_level_percent: 101", want: []string{
			`config.yaml:2: ids.order: must be strict, spread (got "random")`,
			"config.yaml:3: ids.open_ranges: must be 2 to 1000 (got 0)",
			"config.yaml:4: ids.high_level_percent: must be 1 to 100 (got 101)"}},
		{name: "spread", text: "ids: {order: spread, open_ranges: 3, high_level_percent: 80}"},
		{name: "steps crossed", text: "ids: {step: {min: 10, max: 9}}", want: []string{"config.yaml:1: ids.step.max: must be at least ids.step.min, 10 (got 9)"}},
		{name: "step too large", text: "ids: {step: {max: 1000001}}", want: []string{"config.yaml:1: ids.step.max: must be 1 to 1000000 (got 1000001)"}},
		{name: "connections", text: "index: {connections: 0}\nnodes:\n - {name: a, dsn: sqlite://a, connections: 10001, ranges: '1'}", want: []string{
			"config.yaml:1: index.connections: must be 1 to 10000 (got 0)",
			"config.yaml:3: nodes[0].connections: must be 1 to 10000 (got 10001)"}},
		{name: "no issuer", text: "ids: {issuers: []}", want: []string{"config.yaml:1: ids.issuers: must list 1 to 9 issuers (got 0)"}},
		{name: "too many issuers", text: "ids: {issuers: [{dsn: sqlite://0}, {dsn: sqlite://1}, {dsn: sqlite://2}, {dsn: sqlite://3}, {dsn: sqlite://4}, " +
			"{dsn: sqlite://5}, {dsn: sqlite://6}, {dsn: sqlite://7}, {dsn: sqlite://8}, {dsn: sqlite://9}]}", want: []string{
			"config.yaml:1: ids.issuers: must list 1 to 9 issuers (got 10)"}},
	})
}

// TestConfigRangesI5 has every way in which ranges can have no owner, or two.
func TestConfigRangesI5(t *testing.T) {
	const shape = `must be a list of ranges, each once, such as "1", "2-5" or "2-5,9"`
	nodes := func(ranges ...string) string {
		text := "nodes:"
		for i, one := range ranges {
			name := string(rune('a' + i))
			text += nodeLine(name, "sqlite://"+name, one)
		}
		return text
	}
	runFaultCases(t, []faultCase{
		{name: "no node", text: "nodes: []", want: []string{`config.yaml:1: nodes: must list at least one node (got "an empty list")`}},
		{name: "any order", text: nodes("4-5,9", "1", "2-3,6-8")},
		{name: "malformed", text: nodes("1", "", "2-", "5-2", "2,2", "02", "1 - 2"), want: []string{
			"config.yaml:3: nodes[1].ranges: " + shape + ` (got "")`,
			"config.yaml:4: nodes[2].ranges: " + shape + ` (got "2-")`,
			"config.yaml:5: nodes[3].ranges: " + shape + ` (got "5-2")`,
			"config.yaml:6: nodes[4].ranges: " + shape + ` (got "2,2")`,
			"config.yaml:7: nodes[5].ranges: " + shape + ` (got "02")`,
			"config.yaml:8: nodes[6].ranges: " + shape + ` (got "1 - 2")`}},
		{name: "gap", text: nodes("1", "3"), want: []string{
			`config.yaml:3: nodes[1].ranges: range 2 is missing: no node owns it, and nodes[1].ranges goes on at 3 (got "3")`}},
		{name: "not from 1", text: nodes("2"), want: []string{
			`config.yaml:2: nodes[0].ranges: range 1 is missing: no node owns it, and nodes[0].ranges goes on at 2 (got "2")`}},
		{name: "overlap", text: nodes("1-4", "3-6"), want: []string{
			`config.yaml:3: nodes[1].ranges: range 3-4 of nodes[1].ranges overlaps nodes[0].ranges, which owns it too (got "3-6")`}},
		{name: "several", text: nodes("1-4", "3-6", "9"), want: []string{
			`config.yaml:3: nodes[1].ranges: range 3-4 of nodes[1].ranges overlaps nodes[0].ranges, which owns it too (got "3-6")`,
			`config.yaml:4: nodes[2].ranges: range 7-8 is missing: no node owns it, and nodes[2].ranges goes on at 9 (got "9")`}},
		{name: "with a refused size", text: "ranges: {size: 1}\n" + nodes("2"), want: []string{
			"config.yaml:1: ranges.size: must be 10 to 1000000000000 (got 1)",
			`config.yaml:3: nodes[0].ranges: range 1 is missing: no node owns it, and nodes[0].ranges goes on at 2 (got "2")`}},
		{name: "beyond the largest ID", text: "ranges: {size: 1000000000000}\n" + nodes("1-9999999"), want: []string{
			"config.yaml:2: nodes: range 9999999 would end beyond the largest ID (2^63-1)"}},
	})
}

func TestConfigDatabaseRules(t *testing.T) {
	const missing = "is missing; give it a URL, mysql://user@host:port/database or sqlite://path/to/file.db, or name a file that holds one"
	const shape = "must be a URL, mysql://user@host:port/database or sqlite://path/to/file.db"
	const encode = "is not a valid URL; percent-encode special characters in the user name and the password"
	two := func(a, b string) string { return "nodes:" + nodeLine("a", a, "1") + nodeLine("b", b, "2") }
	const servers = "index: {uri: mongodb://h/d}\nids: {issuers: [{dsn: mysql://u@h/d}]}\n"
	const mixed = " is an embedded database while %s is a server; use servers for the index, the issuer and all nodes, or for none"
	runFaultCases(t, []faultCase{
		{name: "missing", text: "ids: {issuers: [{}]}\nnodes:\n - {name: a, ranges: '1'}", want: []string{
			"config.yaml:1: ids.issuers[0].dsn: " + missing, "config.yaml:3: nodes[0].dsn: " + missing}},
		{name: "not for SQL", text: two("mongodb://h/d", "u:p@tcp(h)/d"), want: []string{
			"config.yaml:2: nodes[0].dsn: " + shape, "config.yaml:3: nodes[1].dsn: " + shape}},
		{name: "special characters", text: two("mysql://u:a?b@h/d", "mysql://u:a#b@h/d"), want: []string{
			"config.yaml:2: nodes[0].dsn: " + encode, "config.yaml:3: nodes[1].dsn: " + encode}},
		{name: "no database", text: two("mysql://u@h", "mysql://u@h/b"), want: []string{
			"config.yaml:2: nodes[0].dsn: no database name (letters, digits, _, $ and -): want mysql://user:password@host:port/database"}},
		{name: "same server, other database", text: servers + two("mysql://u@h/a", "mysql://u@h/b")},
		{name: "same database", text: two("mysql://u:p@Host/d", "mysql://w@hOST:3306/d?tls=true"), want: []string{
			"config.yaml:3: nodes[1].dsn: is the same database as nodes[0].dsn (got mysql://host:3306/d)"}},
		{name: "issuer on one node and a second node there", text: "ids: {issuers: [{dsn: mysql://u@h/d}]}\n" + two("mysql://u@h/d", "mysql://u@h:3306/d"), want: []string{
			"config.yaml:4: nodes[1].dsn: is the same database as nodes[0].dsn (got mysql://h:3306/d)"}},
		{name: "issuer on a node", text: servers + two("mysql://u@h/d", "mysql://u@h/e")},
		{name: "embedded index", text: "ids: {issuers: [{dsn: mysql://u@h/d}]}\n" + two("mysql://u@h/d", "mysql://u@h/e"), want: []string{
			"config.yaml: index.uri:" + fmt.Sprintf(mixed, "ids.issuers[0].dsn")}},
		{name: "embedded issuer", text: "index: {uri: mongodb://h/d}\n" + two("mysql://u@h/d", "mysql://u@h/e"), want: []string{
			"config.yaml: ids.issuers[0].dsn:" + fmt.Sprintf(mixed, "nodes[0].dsn")}},
		{name: "embedded node", text: servers + two("mysql://u@h/d", "sqlite://e"), want: []string{
			"config.yaml:5: nodes[1].dsn:" + fmt.Sprintf(mixed, "ids.issuers[0].dsn")}},
		{name: "embedded but for the index", text: "index: {uri: mongodb://h/d}", want: []string{
			"config.yaml: ids.issuers[0].dsn:" + fmt.Sprintf(mixed, "index.uri")}},
		{name: "same file", text: two("sqlite://data/a.db", "sqlite://./data//x/../a.db"), want: []string{
			"config.yaml:3: nodes[1].dsn: is the same database as nodes[0].dsn (got sqlite://data/a.db)"}},
		{name: "same file for index, IDs and a node", text: "index: {uri: sqlite://data/a}\nids: {issuers: [{dsn: sqlite://data/a}]}\n" + two("sqlite://data/a", "sqlite://data/b"), want: []string{
			"config.yaml:1: index.uri: is the same database as ids.issuers[0].dsn (got sqlite://data/a)",
			"config.yaml:4: nodes[0].dsn: is the same database as ids.issuers[0].dsn (got sqlite://data/a)"}},
	})
}

func TestConfigIndexRules(t *testing.T) {
	const scheme = "config.yaml:1: index.uri: must be a URL, mongodb://, mongodb+srv:// or sqlite://path/to/file.db"
	const hosts = "config.yaml:1: index.uri: is not a valid URL: want mongodb://user:password@host:port,host:port/database with special characters in the user name and the password percent-encoded"
	const encode = "config.yaml:1: index.uri: is not a valid URL; percent-encode special characters in the user name and the password"
	const srv = "config.yaml:1: index.uri: mongodb+srv:// takes one host name without a port"
	for uri, want := range map[string]string{
		"mongodb://h": "",
		"mongodb://u:p%40@h1:27017,h2:1,[::1]:2/d?w=1":    "",
		"mongodb://%2Ftmp%2Fmongodb.sock/d":               "",
		"mongodb+srv://u:p@cluster.example.net/?tls=true": "",
		"sqlite://x.db":        "",
		"sqlite://":            "config.yaml:1: index.uri: no file: want sqlite://path/to/file.db",
		"mysql://u@h/d":        scheme,
		"h:27017":              scheme,
		"mongodb://":           hosts,
		"mongodb://u:p/q@h/d":  encode,
		"mongodb://u:1?q@h/d":  encode,
		"mongodb://h1,,h2/d":   hosts,
		"mongodb://h:0/d":      hosts,
		"mongodb://u:p%zz@h/d": encode,
		"mongodb://h/d%zz":     encode,
		"mongodb+srv://h:1/d":  srv,
		"mongodb+srv://h,i/d":  srv,
	} {
		text := "index: {uri: '" + uri + "'}"
		if strings.HasPrefix(uri, "mongodb") {
			text += "\nids: {issuers: [{dsn: mysql://u@h/d}]}\nnodes:" + nodeLine("a", "mysql://u@h/a", "1")
		}
		if got := strings.Join(faultsOf(t, text), "\n"); got != want {
			t.Errorf("%s: %s\nwant %s", uri, got, want)
		}
	}
}
