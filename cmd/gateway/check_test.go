package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckOffline: the config alone is checked, wrong or right, and no database is asked or made.
func TestCheckOffline(t *testing.T) {
	folder := t.TempDir()
	run := func(text string) (string, error) {
		path := filepath.Join(folder, "config.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		root := rootCommand()
		root.SetOut(&out)
		root.SetArgs([]string{"check", "--offline", "--config", path})
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	away := "index: {uri: \"mongodb://127.0.0.1:1/\"}\nids: {issuers: [{dsn: \"mysql://root@127.0.0.1:1/ids\"}]}\n" +
		"nodes:\n  - {name: node-1, dsn: \"mysql://root@127.0.0.1:1/records\", ranges: \"1\"}\n"
	if out, err := run(away); err != nil || !strings.Contains(out, "config valid, collections: 1, nodes: 1; no database was asked") {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := run(away + "ranges: {size: 3}\n"); err == nil || !strings.Contains(err.Error(), "ranges.size") {
		t.Errorf("a wrong config: %v", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("something was made: %v, %v", left, err)
	}
}
