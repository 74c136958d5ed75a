package access

import (
	"fmt"
	"strings"
	"testing"
)

// TestParseClientsFaults: every fault says where and what to do, and none repeats what could be a key.
func TestParseClientsFaults(t *testing.T) {
	const sentinel = "s3ntinelKey"
	sum := sumOf("a")
	client := func(more string) string {
		return "clients: [{name: a, keys: [" + sum + "], roles: {orders: read}" + more + "}]"
	}
	for text, want := range map[string]string{
		"":                                    "the file is empty",
		"# clients:":                          "the file is empty",
		"clients: []":                         "clients: must list 1 to 10000 clients",
		"{}":                                  "clients: must list",
		client("") + "\n---":                  "a second YAML document",
		"clients: [":                          "is not YAML or JSON",
		"clients: *" + sentinel:               "is not YAML or JSON",
		"clients: " + sentinel:                "line 1: cannot unmarshal",
		sentinel + ": x":                      "line 1: field ... not found",
		client(", key: " + sentinel):          "line 1: field key not found",
		client(", burst: " + sentinel):        "line 1: cannot unmarshal",
		client(", requests_per_second: 0"):    "clients[0].requests_per_second: must be above 0",
		client(", requests_per_second: .nan"): "clients[0].requests_per_second: must be above 0",
		client(", requests_per_second: .inf"): "clients[0].requests_per_second: must be above 0",
		client(", burst: 1"):                  "clients[0].burst: has no meaning without",
		client(", requests_per_second: 5, burst: 0"):                                                                                     "clients[0].burst: must be 1 to",
		client(", concurrent: 0"):                                                                                                        "clients[0].concurrent: must be 1 to",
		client(", key_prefix: ''"):                                                                                                       "clients[0].key_prefix: must be 1 to 512 bytes",
		client(", name: b"):                                                                                                              "already defined",
		"clients: [{name: a, roles: {orders: read}}]":                                                                                    "clients[0].keys: must list one key, or two",
		"clients: [{name: a, keys: [" + sum + "]}]":                                                                                      "clients[0].roles: must give a role",
		"clients: [{name: 'a b', keys: [" + sum + "], roles: {orders: read}}]":                                                           "clients[0].name: must be",
		"clients: [{name: a, keys: [" + sentinel + "], roles: {orders: read}}]":                                                          "clients[0].keys[0]: must be the SHA-256 of a key as 64 hex digits",
		"clients: [{name: a, keys: [" + sum[:62] + "], roles: {orders: read}}]":                                                          "clients[0].keys[0]: must be the SHA-256",
		"clients: [{name: a, keys: [" + sumOf("") + "], roles: {orders: read}}]":                                                         "clients[0].keys[0]: is the SHA-256 of nothing",
		"clients: [{name: a, keys: [" + sum + ", " + sum + "], roles: {orders: read}}]":                                                  "clients[0].keys[1]: is a key of the client a already",
		"clients: [{name: a, keys: [" + sumOf("1") + ", " + sumOf("2") + ", " + sum + "], roles: {orders: read}}]":                       "clients[0].keys: must list one key, or two",
		"clients: [{name: a, keys: [" + sum + "], roles: {orders: owner}}]":                                                              `clients[0].roles: the role for "orders" must be read, write or admin`,
		"clients: [{name: a, keys: [" + sum + "], roles: {order: read}}]":                                                                `clients[0].roles: the config has no collection "order"; it has orders, records`,
		"clients: [{name: a, keys: [" + sum + "], roles: {orders: read}}, {name: a, keys: [" + sumOf("b") + "], roles: {orders: read}}]": "clients[1].name: is the name of clients[0] too",
		"clients: [{name: a b, keys: [x], roles: {orders: x}}]":                                                                          "clients[0].keys[0]: must be",
	} {
		_, err := ParseClients([]byte(text), []string{"orders", "records"})
		got := fmt.Sprint(err)
		if err == nil || !strings.Contains(got, want) || strings.Contains(got, sentinel) || strings.Contains(got, sum) {
			t.Errorf("%s\n got: %s\nwant: %s", text, got, want)
		}
	}
	if _, err := ParseClients([]byte(client(", requests_per_second: 0.5, concurrent: 1")), []string{"orders"}); err != nil {
		t.Error(err)
	}
}

// FuzzParseClients: no text panics or makes a client without a key.
func FuzzParseClients(f *testing.F) {
	f.Add([]byte(shop("    concurrent: 2\n")))
	f.Add([]byte(`{"clients": [{"name": "a"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		clients, err := ParseClients(text, []string{"orders"})
		if err == nil && (len(clients.list) == 0 || len(clients.byKey) < len(clients.list)) {
			t.Errorf("%q was taken", text)
		}
	})
}
