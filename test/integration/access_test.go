package integration

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// keysOf is a file of keys with one client for each pair of a name and its roles; the key is the name with -key behind it.
func keysOf(pairs ...string) string {
	text := "clients:\n"
	for i := 0; i < len(pairs); i += 2 {
		text += fmt.Sprintf("  - {name: %s, keys: [%x], roles: {%s}}\n", pairs[i], sha256.Sum256([]byte(pairs[i]+"-key")), pairs[i+1])
	}
	return text
}

// put writes a file in a folder in one go.
func put(t *testing.T, folder, name, text string) {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestPublicNeedsAuth: a gateway does not listen to others while it asks nobody, unless it is told to.
func TestPublicNeedsAuth(t *testing.T) {
	t.Parallel()
	config := tiny(goodCollections, goodSize, goodNodes)
	for _, section := range []string{"server", "admin"} {
		folder := gateway.WriteConfig(t, strings.Replace(config, section+`: {listen: "127.0.0.1:0"}`, section+`: {listen: "0.0.0.0:0"}`, 1))
		for _, command := range []string{"serve", "check"} {
			printed, code := gateway.Run(t, folder, nil, command)
			wantRefusal(t, printed, code, section+".listen", "is not a loopback address", "auth.keys_file", section+".allow_public")
		}
		if _, err := os.Stat(filepath.Join(folder, "data")); err == nil {
			t.Error("databases were made")
		}
		g := gateway.StartIn(t, folder, "GATEWAY__"+strings.ToUpper(section)+"__ALLOW_PUBLIC=true")
		g.Stop(t)
	}
}

// TestAccess: keys open what their roles say on a public listener; the admin listener beside it asks too; a key that is taken
// out of the file is refused soon, and a broken file changes nothing.
func TestAccess(t *testing.T) {
	t.Parallel()
	config := strings.ReplaceAll(tiny(goodCollections, goodSize, goodNodes), `"127.0.0.1:0"`, `"0.0.0.0:0"`) + "auth: {keys_file: clients.yaml}\n"
	folder := gateway.WriteConfig(t, config)
	put(t, folder, "clients.yaml", keysOf("shop", "records: write", "root", `"*": admin`))
	g := gateway.StartIn(t, folder)
	for _, url := range []*string{&g.URL, &g.Admin} {
		*url = "http://127.0.0.1" + (*url)[strings.LastIndex(*url, ":"):]
	}
	shop, root := "Authorization: Bearer shop-key", "X-API-Key: root-key"
	g.Expect(t, http.StatusUnauthorized, "PUT", "/v1/records/a", "{}")
	g.Expect(t, http.StatusCreated, "PUT", "/v1/records/a", "{}", shop)
	g.Expect(t, http.StatusOK, "GET", "/healthz", "")
	g.Expect(t, http.StatusOK, "GET", "/readyz", "")
	for path, wants := range map[string][3]int{"/metrics": {401, 403, 200}, "/admin/ranges": {401, 403, 200}, "/healthz": {200, 200, 200}} {
		for i, header := range []string{"X-Nothing: x", shop, root} {
			a, err := gateway.CallAt(g.Admin, "GET", path, "", header)
			if err != nil || a.Status != wants[i] {
				t.Errorf("admin %s with %s: %d, %v, want %d", path, header, a.Status, err, wants[i])
			}
		}
	}
	put(t, folder, "clients.yaml", keysOf("shop", "records: write")+"  - {name: broken, keys: [root-key], roles: {}}\n")
	gateway.Poll(t, "the broken file is refused", func() bool {
		return strings.Contains(g.Output.String(), "auth.keys_file: clients[1].keys[0]: must be the SHA-256 of a key")
	})
	g.Expect(t, http.StatusOK, "GET", "/v1/records/a", "", root)
	put(t, folder, "clients.yaml", keysOf("shop2", "records: read", "root", `"*": admin`))
	gateway.Poll(t, "the old key is refused", func() bool { return g.Do(t, "GET", "/v1/records/a", "", shop).Status == http.StatusUnauthorized })
	g.Expect(t, http.StatusOK, "GET", "/v1/records/a", "", "Authorization: Bearer shop2-key")
	g.Expect(t, http.StatusForbidden, "DELETE", "/v1/records/a", "", "Authorization: Bearer shop2-key")

	put(t, folder, "root.key", "root-key\n")
	if printed, code := gateway.Run(t, folder, nil, "ranges", "--server", g.Admin, "--key-file", "root.key"); code != 0 {
		t.Errorf("gateway ranges: %d\n%s", code, printed)
	}
	printed, code := gateway.Run(t, folder, nil, "ranges", "--server", g.Admin)
	wantRefusal(t, printed, code, "401")
	g.Stop(t)
	log := g.Output.String()
	if strings.Contains(log, "-key\"") || strings.Contains(log, "root-key") || !strings.Contains(log, `"client":"shop2"`) {
		t.Errorf("log:\n%s", log)
	}
}

// TestKeygen: the command prints a key that opens, and its SHA-256 as the file takes it.
func TestKeygen(t *testing.T) {
	t.Parallel()
	folder := gateway.WriteConfig(t, tiny(goodCollections, goodSize, goodNodes)+"auth: {keys_file: clients.json}\n")
	printed, code := gateway.Run(t, folder, nil, "keygen")
	found := regexp.MustCompile(`^key     (kr_[A-Za-z0-9_-]{43})\nsha256  ([0-9a-f]{64})\n$`).FindStringSubmatch(printed)
	if code != 0 || found == nil {
		t.Fatalf("%d: %s", code, printed)
	}
	put(t, folder, "clients.json", fmt.Sprintf(`{"clients": [{"name": "a", "keys": [%q], "roles": {"records": "write"}}]}`, found[2]))
	g := gateway.StartIn(t, folder)
	g.Expect(t, http.StatusCreated, "POST", "/v1/records", "{}", "Authorization: Bearer "+found[1])
	g.Expect(t, http.StatusUnauthorized, "POST", "/v1/records", "{}", "Authorization: Bearer "+found[2])
}

// TestTLS: a listener with a certificate speaks TLS 1.2 and 1.3 and nothing older, asks its clients for theirs, shows a
// renewed certificate without a restart, and streams.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority, other := servers.NewAuthority(t), servers.NewAuthority(t)
	config := strings.Replace(tiny(goodCollections, goodSize, goodNodes), `server: {listen: "127.0.0.1:0"}`,
		`server: {listen: "0.0.0.0:0", tls: {cert_file: cert.pem, key_file: key.pem, client_ca_file: `+authority.File+`}}`, 1)
	folder := gateway.WriteConfig(t, config)
	in := func(name string) string { return filepath.Join(folder, name) }
	authority.Issue(t, in("cert.pem"), in("key.pem"), "first")
	g := gateway.StartIn(t, folder)
	url := "https://127.0.0.1" + g.URL[strings.LastIndex(g.URL, ":"):]
	call := func(config *tls.Config) (status int, peer string, protocol string, err error) {
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport, Timeout: gateway.Patience}).Get(url + "/v1/records/a")
		if err != nil {
			return 0, "", "", err
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode, response.TLS.PeerCertificates[0].Subject.CommonName, response.Proto, nil
	}
	good := authority.Client(t, authority)
	if status, peer, protocol, err := call(good.Clone()); status != http.StatusNotFound || peer != "first" || protocol != "HTTP/2.0" {
		t.Errorf("%d %s %s %v", status, peer, protocol, err)
	}
	old := good.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	tls12 := good.Clone()
	tls12.MaxVersion = tls.VersionTLS12
	if status, _, _, err := call(tls12); status != http.StatusNotFound {
		t.Errorf("TLS 1.2: %v", err)
	}
	for name, config := range map[string]*tls.Config{"no certificate": authority.Client(t, nil), "another authority's": authority.Client(t, other), "TLS 1.1": old} {
		if status, _, _, err := call(config); err == nil {
			t.Errorf("%s: %d", name, status)
		}
	}
	if response, err := http.Get(strings.Replace(url, "https", "http", 1) + "/healthz"); err == nil {
		if response.Body.Close(); response.StatusCode != http.StatusBadRequest {
			t.Errorf("plain text: %d", response.StatusCode)
		}
	}

	authority.Issue(t, in("client.pem"), in("client.key"), "importer")
	var lines strings.Builder
	for i := range 500 {
		fmt.Fprintf(&lines, `{"key":"k-%d"}`+"\n", i)
	}
	put(t, folder, "records.ndjson", lines.String())
	printed, code := gateway.Run(t, folder, nil, "import", "--server", url, "--collection", "records", "--ca-file", authority.File,
		"--cert-file", "client.pem", "--cert-key-file", "client.key", "records.ndjson")
	if code != 0 || !strings.Contains(printed, "created 500") {
		t.Errorf("import: %d\n%s", code, printed)
	}

	authority.Issue(t, in("cert.pem"), in("key.pem"), "second")
	gateway.Poll(t, "the renewed certificate is shown", func() bool {
		_, peer, _, err := call(good.Clone())
		return err == nil && peer == "second"
	})
	g.Stop(t)
	if !strings.Contains(g.Output.String(), "server.tls.cert_file: the file has changed") {
		t.Errorf("log:\n%s", gateway.Tail(g.Output))
	}
}
