package main

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keyrange/test/servers"
)

// newGatesRig is an embedded rig with a file of keys and a certificate.
func newGatesRig(t *testing.T) (r *reloadRig, at func(name string) string, authority *servers.Authority) {
	t.Helper()
	folder := t.TempDir()
	at = func(name string) string { return filepath.Join(folder, "secrets", name) }
	writeFile(t, at("clients"), oneClient("first", "k1"))
	authority = servers.NewAuthority(t)
	authority.Issue(t, at("cert"), at("key"), "one")
	path := filepath.Join(folder, "config.yaml")
	writeFile(t, path, embeddedConfig(folder, 1)+"auth: {keys_file: secrets/clients}\nserver: {tls: {cert_file: secrets/cert, key_file: secrets/key}}\n")
	return newReloadRig(t, path), at, authority
}

// knows reports whether a key is in force.
func (r *reloadRig) knows(key string) bool {
	_, err := r.gates.guard.Authenticate(r.t.Context(), key)
	return err == nil
}

// TestReloadKeys: a changed file of keys is put in force by itself, and a broken one leaves the keys as they are.
func TestReloadKeys(t *testing.T) {
	r, at, _ := newGatesRig(t)
	r.watch(never)
	replaceFile(t, at("clients"), oneClient("second", "k2"))
	r.waitFor(`"changes":["auth.keys_file: client second: added","auth.keys_file: client first: removed"]`, 1)
	if r.knows("k1") || !r.knows("k2") {
		t.Error("the new file is not in force")
	}
	replaceFile(t, at("clients"), "clients: [{name: third, keys: ["+sentinel+"], roles: {records: read}}]")
	r.waitFor(`"cause":"`+r.path+`:6: auth.keys_file: clients[0].keys[0]: must be the SHA-256 of a key as 64 hex digits`, 1)
	if !r.knows("k2") || r.log.count(sentinel) > 0 {
		t.Errorf("after a broken file:\n%s", r.log)
	}
	if err := os.Remove(at("clients")); err != nil {
		t.Fatal(err)
	}
	r.waitFor("auth.keys_file: cannot read the file: no such file or directory", 1)
	if !r.knows("k2") {
		t.Error("without a file nobody is known")
	}
	replaceFile(t, at("clients"), oneClient("second", "k3"))
	r.waitFor(`"changes":["auth.keys_file: client second: changed"]`, 1)
	if r.knows("k2") || !r.knows("k3") {
		t.Error("the mended file is not in force")
	}
}

// TestReloadKeysLinked: a file that is mounted from a Kubernetes Secret changes by a link in its folder.
func TestReloadKeysLinked(t *testing.T) {
	folder := t.TempDir()
	for version, key := range map[string]string{"v1": "k1", "v2": "k2"} {
		writeFile(t, filepath.Join(folder, "mount", version, "clients"), oneClient("a", key))
	}
	link := func(name, target string) {
		if err := os.Symlink(target, filepath.Join(folder, "mount", name+".new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(folder, "mount", name+".new"), filepath.Join(folder, "mount", name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..data", "v1")
	link("clients", filepath.Join("..data", "clients"))
	path := filepath.Join(folder, "config.yaml")
	writeFile(t, path, embeddedConfig(folder, 1)+"auth: {keys_file: mount/clients}\n")
	r := newReloadRig(t, path)
	r.watch(never)
	link("..data", "v2")
	r.waitFor("auth.keys_file: client a: changed", 1)
	if r.knows("k1") || !r.knows("k2") {
		t.Error("the new keys are not in force")
	}
}

// TestReloadCertificate: a changed certificate is shown from then on; one whose key is missing is not.
func TestReloadCertificate(t *testing.T) {
	r, at, authority := newGatesRig(t)
	name := func() string {
		config, err := r.gates.server.config().GetConfigForClient(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return config.Certificates[0].Leaf.Subject.CommonName
	}
	authority.Issue(t, at("cert"), at("key-2"), "two")
	if _, err := r.reload(t.Context(), triggerFile); err == nil || !strings.Contains(err.Error(), "server.tls.cert_file: does not go with server.tls.key_file") {
		t.Errorf("half of a pair: %v", err)
	}
	if name() != "one" {
		t.Errorf("half of a pair: %s", name())
	}
	if err := os.Rename(at("key-2"), at("key")); err != nil {
		t.Fatal(err)
	}
	done, err := r.reload(t.Context(), triggerFile)
	if want := "server.tls.cert_file: the file has changed, server.tls.key_file: the file has changed"; err != nil || strings.Join(done.Changes, ", ") != want {
		t.Errorf("%v, %v", done, err)
	}
	if name() != "two" {
		t.Errorf("the whole pair: %s", name())
	}
}

// TestReloadAuthStays: whether clients are asked at all does not change while the gateway runs.
func TestReloadAuthStays(t *testing.T) {
	r, at, _ := newGatesRig(t)
	writeFile(t, at("clients-2"), oneClient("first", "k1"))
	text, _ := os.ReadFile(r.path)
	for old, replacement := range map[string]string{"auth: {keys_file: secrets/clients}": "", "secrets/clients}": "secrets/clients-2}"} {
		if _, err := r.write(triggerAdmin, strings.Replace(string(text), old, replacement, 1)); err == nil || !strings.Contains(err.Error(), "auth.keys_file: needs a restart") {
			t.Errorf("%v", err)
		}
	}
	if !r.knows("k1") {
		t.Error("the client is gone")
	}
}
