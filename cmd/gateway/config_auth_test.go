package main

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"keyrange/test/servers"
)

// oneClient is a file of keys with one client.
func oneClient(name, key string) string {
	return fmt.Sprintf("clients:\n  - {name: %s, keys: [%x], roles: {'*': admin}}\n", name, sha256.Sum256([]byte(key)))
}

func TestConfigWords(t *testing.T) {
	for _, text := range []string{"[RS256, EdDSA]", "'RS256,EdDSA'", `"RS256, EdDSA"`, "[\"RS256\", EdDSA]"} {
		cfg := mustLoad(t, "auth: {jwt: {algorithms: "+text+"}}")
		if got := cfg.Auth.JWT.Algorithms.List(); !slices.Equal(got, []string{"RS256", "EdDSA"}) {
			t.Errorf("%s: %q", text, got)
		}
	}
	if got := mustLoad(t, "server: {cors: {origins: []}}").Server.CORS.Origins.List(); len(got) != 0 {
		t.Errorf("none: %q", got)
	}
	cfg := mustLoad(t, "server: {cors: {origins: ['https://a']}}", "GATEWAY__SERVER__CORS__ORIGINS=https://b, https://c")
	if got := cfg.Server.CORS.Origins.List(); !slices.Equal(got, []string{"https://b", "https://c"}) {
		t.Errorf("from the environment: %q", got)
	}
	const list = "must be a list, such as [a, b]"
	runFaultCases(t, []faultCase{
		{name: "a section", text: "server: {cors: {origins: {a: b}}}", want: []string{"config.yaml:1: server.cors.origins: " + list + ", not a list or section"}},
		{name: "no word", text: "server: {cors: {origins: [https://a, '']}}", want: []string{`config.yaml:1: server.cors.origins[1]: must be one word without a comma or space (got "")`}},
		{name: "two words", text: "server:\n  cors:\n    origins:\n      - https://a,b", want: []string{`config.yaml:4: server.cors.origins[0]: must be one word without a comma or space (got ***)`}},
		{name: "a number", text: "server: {trusted_proxies: [7]}", want: []string{"config.yaml:1: server.trusted_proxies[0]: must be text, but YAML reads it as int; put it in quotes"}},
	})
}

func TestConfigAccessRules(t *testing.T) {
	const origins = `config.yaml:1: server.cors.origins: must be origins as browsers send them, such as https://app.example.com or http://localhost:3000, or "*" alone`
	const proxies = "config.yaml:1: server.trusted_proxies: must be networks of proxies, such as 10.1.0.0/16 or 192.0.2.7/32"
	const jwt = "auth: {jwt: {issuer: i, audience: a, "
	const url = "config.yaml:1: auth.jwt.jwks_url: must be an https:// URL without a user name; http:// only on loopback"
	runFaultCases(t, []faultCase{
		{name: "origins", text: "server: {cors: {origins: ['https://a.example', 'http://localhost:3000']}}"},
		{name: "any origin", text: "server: {cors: {origins: ['*']}}"},
		{name: "a path", text: "server: {cors: {origins: ['https://a.example/']}}", want: []string{origins + ` (got "https://a.example/")`}},
		{name: "a pattern", text: "server: {cors: {origins: ['https://*.example']}}", want: []string{origins + ` (got "https://*.example")`}},
		{name: "capitals", text: "server: {cors: {origins: ['https://A.example']}}", want: []string{origins + ` (got "https://A.example")`}},
		{name: "any and one", text: "server: {cors: {origins: ['*', 'https://a']}}", want: []string{origins + ` (got "*")`}},
		{name: "null", text: "server: {cors: {origins: ['null']}}", want: []string{origins + ` (got "null")`}},
		{name: "networks", text: "server: {trusted_proxies: ['10.0.0.0/8', '2001:db8::/32', '192.0.2.1/32']}"},
		{name: "an address", text: "server: {trusted_proxies: ['10.0.0.1']}", want: []string{proxies + ` (got "10.0.0.1")`}},
		{name: "host bits", text: "server: {trusted_proxies: ['10.0.0.1/8']}", want: []string{proxies + ` (got "10.0.0.1/8")`}},
		{name: "everybody", text: "server: {trusted_proxies: ['0.0.0.0/0']}", want: []string{proxies + ` (got "0.0.0.0/0")`}},
		{name: "symmetric", text: "auth: {jwt: {algorithms: [HS256]}}", want: []string{
			`config.yaml:1: auth.jwt.algorithms: must list some of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA (got "HS256")`}},
		{name: "no roles claim", text: "auth: {jwt: {roles_claim: ''}}", want: []string{`config.yaml:1: auth.jwt.roles_claim: must name a member of the token (got "")`}},
		{name: "half of jwt", text: "auth: {jwt: {issuer: i}}", want: []string{
			`config.yaml:1: auth.jwt.audience: is missing: it must be the aud of the tokens (got "")`,
			"config.yaml:1: auth.jwt.jwks_url: is missing: give it or auth.jwt.jwks_file, for the public keys"}},
		{name: "https", text: jwt + "jwks_url: 'https://id.example/jwks'}}"},
		{name: "loopback", text: jwt + "jwks_url: 'http://127.0.0.1:1/jwks'}}"},
		{name: "http", text: jwt + "jwks_url: 'http://id.example/jwks'}}", want: []string{url}},
		{name: "a password", text: jwt + "jwks_url: 'https://u:" + sentinel + "@id.example/jwks'}}", want: []string{url}},
		{name: "no certificate", text: "server:\n  tls: {client_ca_file: /nowhere}", want: []string{
			`config.yaml:2: server.tls.cert_file: is missing, as the other keys of server.tls are set (got "")`,
			`config.yaml:2: server.tls.key_file: is missing, as the other keys of server.tls are set (got "")`,
			`config.yaml:2: server.tls.client_ca_file: cannot read the file: no such file or directory (got "/nowhere")`}},
		{name: "no file", text: "auth: {keys_file: /nowhere}", want: []string{
			`config.yaml:1: auth.keys_file: cannot read the file: no such file or directory (got "/nowhere")`}},
	})
}

// TestConfigAccessFiles: files are found beside the config file, each of their faults is told, and nothing that is in them.
func TestConfigAccessFiles(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, "secrets", name) }
	writeFile(t, at("clients"), oneClient("a", "k"))
	writeFile(t, at("bad"), "clients: [{name: a, keys: ["+sentinel+"], roles: {order: read}}]")
	writeFile(t, at("other"), sentinel)
	authority := servers.NewAuthority(t)
	authority.Issue(t, at("cert"), at("key"), "one")
	authority.Issue(t, at("cert-2"), at("key-2"), "two")
	path := filepath.Join(folder, "config.yaml")
	for _, c := range []struct{ name, text, want string }{
		{"public with keys", "server: {listen: '0.0.0.0:80'}\nadmin: {listen: '0.0.0.0:81'}\nauth: {keys_file: secrets/clients}", ""},
		{"absolute", "auth: {keys_file: " + at("clients") + "}", ""},
		{"public with client certificates", "server: {listen: '0.0.0.0:80', tls: {cert_file: secrets/cert, key_file: secrets/key, client_ca_file: " + authority.File + "}}", ""},
		{"public with a certificate only", "server: {listen: '0.0.0.0:80', tls: {cert_file: secrets/cert, key_file: secrets/key}}", "server.listen: is not a loopback address"},
		{"admin beside client certificates", "admin: {listen: '0.0.0.0:81'}\nserver: {tls: {cert_file: secrets/cert, key_file: secrets/key, client_ca_file: " + authority.File + "}}", "admin.listen: is not a loopback address"},
		{"bad keys", "auth: {keys_file: secrets/bad}", ":1: auth.keys_file: clients[0].keys[0]: must be the SHA-256"},
		{"bad roles", "auth: {keys_file: secrets/bad}", `:1: auth.keys_file: clients[0].roles: the config has no collection "order"; it has records`},
		{"no JWKS", "auth: {jwt: {issuer: i, audience: a, jwks_file: secrets/other}}", ":1: auth.jwt.jwks_file: is not a JWKS document"},
		{"another key", "admin: {tls: {cert_file: secrets/cert, key_file: secrets/key-2}}", ":1: admin.tls.cert_file: does not go with admin.tls.key_file: tls: private key does not match public key"},
		{"no certificate", "server: {tls: {cert_file: secrets/other, key_file: secrets/key}}", ":1: server.tls.cert_file: does not go with server.tls.key_file"},
		{"no authority", "server: {tls: {cert_file: secrets/cert, key_file: secrets/key, client_ca_file: secrets/other}}", ":1: server.tls.client_ca_file: has no certificate in PEM"},
	} {
		t.Run(c.name, func(t *testing.T) {
			writeFile(t, path, c.text)
			_, err := LoadConfig(path, nil)
			if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) && c.want != "" || strings.Contains(got, sentinel) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// TestGuardsAdmin: with auth, the operators' listener asks when it is not on loopback.
func TestGuardsAdmin(t *testing.T) {
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "clients"), oneClient("a", "k"))
	for text, want := range map[string]bool{
		"auth: {keys_file: " + filepath.Join(folder, "clients") + "}":                                                    false,
		"admin: {listen: '0.0.0.0:81'}\nauth: {keys_file: " + filepath.Join(folder, "clients") + "}":                     true,
		"admin: {listen: '0.0.0.0:81', allow_public: true}\nauth: {keys_file: " + filepath.Join(folder, "clients") + "}": true,
		"admin: {listen: '0.0.0.0:81', allow_public: true}":                                                              false,
	} {
		if got := guardsAdmin(mustLoad(t, text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
