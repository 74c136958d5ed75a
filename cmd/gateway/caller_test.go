package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestCallerFaults: a flag that cannot be used is named, and nothing that is in its file.
func TestCallerFaults(t *testing.T) {
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	writeFile(t, in("empty"), "\n")
	writeFile(t, in("two"), sentinel+" "+sentinel)
	for _, c := range []struct {
		options callerOptions
		want    string
	}{
		{callerOptions{keyFile: in("nothing")}, "--key-file: "},
		{callerOptions{keyFile: in("empty")}, "--key-file: must hold one key"},
		{callerOptions{keyFile: in("two")}, "--key-file: must hold one key"},
		{callerOptions{caFile: in("nothing")}, "--ca-file: "},
		{callerOptions{caFile: in("two")}, "--ca-file: has no certificate"},
		{callerOptions{certFile: in("two")}, "--cert-file and --cert-key-file go together"},
		{callerOptions{certFile: in("two"), certKeyFile: in("two")}, "--cert-file: "},
	} {
		transport, err := c.options.transport()
		if err == nil {
			_, err = c.options.client(transport)
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), sentinel) {
			t.Errorf("%+v: %v, want %s", c.options, err, c.want)
		}
	}
}

// TestCallerKey: the key goes with each request, and not where a redirect leads.
func TestCallerKey(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer server.Close()
	key := filepath.Join(t.TempDir(), "key")
	writeFile(t, key, sentinel+"\n")
	options := callerOptions{keyFile: key}
	transport, err := options.transport()
	if err != nil {
		t.Fatal(err)
	}
	defer transport.CloseIdleConnections()
	client, err := options.client(transport)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if response.Body.Close(); len(got) != 1 || got[0] != "Bearer "+sentinel {
		t.Errorf("requests with %q", got)
	}
}
