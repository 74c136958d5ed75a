package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOpenAPI: the command prints the document, which names the collections of a config when there is one.
func TestOpenAPI(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "config.yaml")
	writeFile(t, path, "collections: [{name: records}, {name: orders}]\n"+embeddedConfig(folder, 1))
	for _, c := range []struct {
		flags, collections []string
	}{{nil, nil}, {[]string{"--config", path}, []string{"records", "orders"}}} {
		var out bytes.Buffer
		root := rootCommand()
		root.SetArgs(append([]string{"openapi"}, c.flags...))
		root.SetOut(&out)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		var document struct {
			OpenAPI    string
			Components struct {
				Parameters struct {
					Collection struct{ Schema struct{ Enum []string } }
				}
			}
		}
		if err := json.Unmarshal(out.Bytes(), &document); err != nil {
			t.Fatal(err)
		}
		if got := document.Components.Parameters.Collection.Schema.Enum; !strings.HasPrefix(document.OpenAPI, "3.1.") || !slices.Equal(got, c.collections) {
			t.Errorf("%v: OpenAPI %q with the collections %q", c.flags, document.OpenAPI, got)
		}
	}
	root := rootCommand()
	root.SetArgs([]string{"openapi", "--config", filepath.Join(folder, "none.yaml")})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("without its config file: %v", err)
	}
}
