package handlers

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"keyrange/handlers/apidoc"
)

// openAPIDocument is what these tests look at of the document.
type openAPIDocument struct {
	OpenAPI    string
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Parameters struct {
			Collection struct {
				Schema struct{ Enum []string }
			}
		}
	}
}

// served asks a server for its document.
func served(t *testing.T, r *rig) (d openAPIDocument) {
	t.Helper()
	answer := r.expect(200, "", "GET", "/openapi.json", "")
	if err := json.Unmarshal(answer.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDocumentHasRoutes: the operations of the document are the routes of the public listener, both ways.
func TestDocumentHasRoutes(t *testing.T) {
	r := newRig(t)
	routes, operations := map[string]bool{}, map[string]bool{}
	for _, route := range r.publicRoutes() {
		path := strings.NewReplacer(":collection", "{collection}", "*", "{key}").Replace(route.pattern)
		routes[route.method+" "+path] = true
		if route.method == http.MethodGet {
			routes[http.MethodHead+" "+path] = true
		}
	}
	d := served(t, r)
	for path, item := range d.Paths {
		for name := range item {
			if name != "parameters" {
				operations[strings.ToUpper(name)+" "+path] = true
			}
		}
	}
	for _, one := range slices.Sorted(maps.Keys(routes)) {
		if !operations[one] {
			t.Errorf("the document lacks %s", one)
		}
	}
	for _, one := range slices.Sorted(maps.Keys(operations)) {
		if !routes[one] {
			t.Errorf("there is no route %s", one)
		}
	}
	if !strings.HasPrefix(d.OpenAPI, "3.1.") || len(routes) < 10 {
		t.Errorf("OpenAPI %s with %d routes", d.OpenAPI, len(routes))
	}
}

// TestDocumentHasCodes: the codes of the document are those of the table of statuses, both ways, with all that is said of
// them.
func TestDocumentHasCodes(t *testing.T) {
	d, err := apidoc.New()
	if err != nil {
		t.Fatal(err)
	}
	table, described := map[string]string{}, map[string]string{}
	for _, line := range append(slices.Clone(statuses), statusInternal) {
		table[line.code] = fmt.Sprint(line.status, " ", line.title, " ", line.retry)
	}
	for _, p := range d.Problems() {
		described[p.Code] = fmt.Sprint(p.Status, " ", p.Title, " ", p.Retry)
		if p.Means == "" {
			t.Errorf("the document does not say what %s means", p.Code)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(table)) {
		if described[code] != table[code] {
			t.Errorf("%s: the document says %q, the table %q", code, described[code], table[code])
		}
	}
	for code := range described {
		if table[code] == "" {
			t.Errorf("the table has no code %s", code)
		}
	}
}

// TestDocumentNamesCollections: a gateway's document lists its collections.
func TestDocumentNamesCollections(t *testing.T) {
	if got := served(t, newRig(t)).Components.Parameters.Collection.Schema.Enum; !slices.Equal(got, []string{"records", "orders", "grouped"}) {
		t.Errorf("collections: %q", got)
	}
}

// TestDocs: the page shows every operation and every code, loads nothing, and runs nothing.
func TestDocs(t *testing.T) {
	r := newRig(t)
	answer := r.expect(200, "", "GET", "/docs", "")
	page := answer.Body.String()
	for path := range served(t, r).Paths {
		if !strings.Contains(page, path) {
			t.Errorf("the page lacks %s", path)
		}
	}
	for _, line := range statuses {
		if !strings.Contains(page, ">"+line.code+"<") {
			t.Errorf("the page lacks the code %s", line.code)
		}
	}
	for _, forbidden := range []string{"<script", "<link", "<img", "<iframe", "@import", "url(", "style=\"", "src="} {
		if strings.Contains(page, forbidden) {
			t.Errorf("the page has %s", forbidden)
		}
	}
	_, style, _ := strings.Cut(page, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	hash := sha256.Sum256([]byte(style))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	if policy := answer.Header().Get("Content-Security-Policy"); policy != want {
		t.Errorf("policy: %s\nwant:   %s", policy, want)
	}
	r.expect(200, "", "HEAD", "/docs", "")
	r.expect(200, "", "HEAD", "/openapi.json", "")
	r.expect(405, "method_not_allowed", "POST", "/docs", "")
}
