package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// diffBase is the running config of TestCompareConfigs.
const diffBase = `
server: {listen: "127.0.0.1:8080", max_body_bytes: 1MiB}
index: {uri: "mongodb://u:old-secret@h/d"}
ids: {issuers: [{dsn: "mysql://u:old-secret@h/i"}]}
ranges: {size: 1000}
collections: [{name: records, key: key}]
nodes:
  - {name: node-1, dsn: "mysql://u:old-secret@h/a", ranges: "1"}
  - {name: node-2, dsn: "mysql://u:old-secret@h/b", ranges: "2-3"}
`

// TestCompareConfigs: what may change while the gateway runs, and what may not, with both values (I7).
func TestCompareConfigs(t *testing.T) {
	const node3 = `  - {name: node-3, dsn: "mysql://u:new-secret@h/c", ranges: "4"}` + "\n"
	tests := []struct {
		name     string
		replace  []string // old and new texts in turn
		more     string
		changes  []string
		refusals []string
		grows    bool
	}{
		{name: "nothing", replace: []string{"{size: 1000}", "{size: 1000} # as ever"}},
		{name: "a node appended", more: node3, changes: []string{"nodes[2]: appended (node-3, ranges 4)"}, grows: true},
		{name: "ranges appended", replace: []string{`ranges: "1"`, `ranges: "1,4-5"`}, changes: []string{"nodes[0].ranges: 1 -> 1,4-5"}, grows: true},
		{name: "limits", replace: []string{"max_body_bytes: 1MiB", "max_body_bytes: 2MiB, max_bulk_bytes: 20MiB, request_timeout: 1m"},
			changes: []string{"server.request_timeout: 5s -> 1m0s", "server.max_body_bytes: 1MiB -> 2MiB", "server.max_bulk_bytes: 16MiB -> 20MiB"}},
		{name: "log level and pool", replace: []string{"name: node-2,", "name: node-2, connections: 7,"}, more: "log: {level: debug}\n",
			changes: []string{"log.level: info -> debug", "nodes[1].connections: 32 -> 7"}},
		{name: "sweeper", more: "sweeper: {rows_per_second: 0, interval: 2h}\n",
			changes: []string{"sweeper.rows_per_second: 1000 -> 0", "sweeper.interval: 1h0m0s -> 2h0m0s"}},
		{name: "drain", replace: []string{"name: node-2,", "name: node-2, drain: true,"}, changes: []string{"nodes[1].drain: false -> true"}, grows: true},
		{name: "a listener", replace: []string{"127.0.0.1:8080", "127.0.0.1:8081"}, more: node3,
			changes:  []string{"nodes[2]: appended (node-3, ranges 4)"},
			refusals: []string{"server.listen: needs a restart (running 127.0.0.1:8080, config says 127.0.0.1:8081)"}, grows: true},
		{name: "placement", replace: []string{"h/i\"}]}", "h/i\"}], order: spread, open_ranges: 3, high_level_percent: 80}"}, changes: []string{
			"ids.order: strict -> spread", "ids.open_ranges: 2 -> 3", "ids.high_level_percent: 90 -> 80"}},
		{name: "secrets", replace: []string{"old-secret", "new-secret"}, changes: []string{"nodes[0].dsn: changed", "nodes[1].dsn: changed"},
			refusals: []string{
				"index.uri: needs a restart (running ***, config says ***)", "ids.issuers[0].dsn: needs a restart (running ***, config says ***)",
			}, grows: true},
		{name: "a node dropped", replace: []string{`  - {name: node-2, dsn: "mysql://u:old-secret@h/b", ranges: "2-3"}` + "\n", ""}, refusals: []string{
			"nodes[1]: a node can not be dropped, its rows are stored on it (running node-2, ranges 2-3, config says none)"}},
		{name: "a node renamed", replace: []string{"name: node-2", "name: node-b"}, refusals: []string{
			"nodes[1].name: a node can not be renamed, nor take another place without a restart (running node-2, config says node-b)"}},
		{name: "a node moved", replace: []string{"h/a", "h/x"}, changes: []string{"nodes[0].dsn: changed"}, grows: true},
		{name: "an issuer appended", replace: []string{"h/i\"}", "h/i\"}, {dsn: \"mysql://u:old-secret@h/j\"}"}, refusals: []string{
			"ids.issuers[1]: the number of issuers changes only by gateway issuers rebuild, with all gateways stopped (running none, config says one)"}},
		{name: "a range moved", replace: []string{`ranges: "1"`, `ranges: "1-2"`, `ranges: "2-3"`, `ranges: "3"`},
			changes: []string{"nodes[0].ranges: 1 -> 1-2"}, grows: true,
			refusals: []string{"nodes[1].ranges: a node never gives ranges away, their rows are stored on it (running 2-3, config says 3)"}},
		{name: "range size", replace: []string{"size: 1000", "size: 2000"}, refusals: []string{
			"ranges.size: can never change once a record is stored (running 1000, config says 2000)"}},
		{name: "a group", replace: []string{"{name: records, key: key}", "{name: records, key: key, group: g}"}, refusals: []string{
			`collections[0].group: needs a restart, and can never change once a record is stored (running "", config says g)`}},
		{name: "a collection", replace: []string{"[{name: records, key: key}]", "[{name: records, key: key}, {name: Orders}]"}, refusals: []string{
			"collections[1]: needs a restart (running none, config says Orders)"}},
		{name: "a column", replace: []string{"{name: records, key: key}", "{name: records, key: key, unknown_members: keep, columns: [{name: total, type: int}]}"}, refusals: []string{
			"collections[0].columns[0]: needs a restart, and a column can not be dropped while tables have it (running none, config says total)",
			"collections[0].unknown_members: needs a restart (running refuse, config says keep)"}},
	}
	running := mustLoad(t, diffBase)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := diffBase
			for pair := range slices.Chunk(tt.replace, 2) {
				text = strings.ReplaceAll(text, pair[0], pair[1])
			}
			got := compareConfigs(running, mustLoad(t, text+tt.more))
			if want := (difference{tt.changes, tt.refusals, tt.grows}); !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

// TestHotKeysExist: a key that is misspelt in a table would quietly be cold.
func TestHotKeysExist(t *testing.T) {
	known := map[string]bool{patternNode: true, patternIssuer: true, patternColumn: true}
	scalarKeys(reflect.ValueOf(defaultConfig()), "", func(key string, _ reflect.Type) { known[patternOf(key)] = true })
	for _, key := range hotKeys {
		if !known[key] {
			t.Errorf("hotKeys: there is no key %s", key)
		}
	}
	for key := range coldReasons {
		if !known[key] {
			t.Errorf("coldReasons: there is no key %s", key)
		}
	}
}
