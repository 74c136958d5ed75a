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

// TestDocumentHasParameters: the query parameters of each operation for records are those that its route takes, both ways.
// What a route takes it says itself, when it is given another.
func TestDocumentHasParameters(t *testing.T) {
	r := newRig(t)
	described := documentedOperations(t, r)
	for _, route := range r.publicRoutes() {
		if !strings.HasPrefix(route.pattern, "/v1/") {
			continue
		}
		methods := []string{route.method}
		if route.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		target := strings.NewReplacer(":collection", "grouped", "*", "a").Replace(route.pattern)
		var refusal problem
		if err := json.Unmarshal(r.expect(400, "invalid_parameter", route.method, target+"?nothing=1", "{}").Body.Bytes(), &refusal); err != nil {
			t.Fatal(err)
		}
		var takes []string
		if _, known, ok := strings.Cut(refusal.Detail, "known here: "); ok {
			takes = strings.Split(strings.TrimSuffix(known, "."), ", ")
		} else if !strings.Contains(refusal.Detail, "none is known here") {
			t.Errorf("%s %s does not say what it takes: %s", route.method, target, refusal.Detail)
		}
		slices.Sort(takes)
		for _, method := range methods {
			operation := method + " " + strings.NewReplacer(":collection", "{collection}", "*", "{key}").Replace(route.pattern)
			if got := described[operation].parametersIn("query"); !slices.Equal(got, takes) {
				t.Errorf("%s: the document has the parameters %q, the route takes %q", operation, got, takes)
			}
		}
	}
}

// documentedOperation is an operation of the document, as far as these tests look at it.
type documentedOperation struct {
	Parameters []documentedParameter
	Responses  map[string]struct{ Headers map[string]json.RawMessage }
}

// documentedParameter is a parameter, or a reference to one.
type documentedParameter struct {
	Ref      string `json:"$ref"`
	Name, In string
}

// documentedOperations are the operations of the document that a server has, by "METHOD path", without references to
// parameters.
func documentedOperations(t *testing.T, r *rig) map[string]documentedOperation {
	t.Helper()
	var d struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Parameters map[string]documentedParameter
		}
	}
	if err := json.Unmarshal(r.expect(200, "", "GET", "/openapi.json", "").Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	all := map[string]documentedOperation{}
	for path, item := range d.Paths {
		for method, raw := range item {
			if method == "parameters" {
				continue
			}
			var operation documentedOperation
			if err := json.Unmarshal(raw, &operation); err != nil {
				t.Fatal(err)
			}
			for i, p := range operation.Parameters {
				if to, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
					operation.Parameters[i] = d.Components.Parameters[to]
				}
			}
			all[strings.ToUpper(method)+" "+path] = operation
		}
	}
	return all
}

// parametersIn lists the names of the parameters in some place, sorted.
func (o documentedOperation) parametersIn(place string) (names []string) {
	for _, p := range o.Parameters {
		if p.In == place {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// TestOriginsHaveHeaders: pages of other origins may send every header that the document has for requests, and read every
// one that it has for answers.
func TestOriginsHaveHeaders(t *testing.T) {
	listed := func(headers []string, name string) bool {
		return slices.ContainsFunc(headers, func(h string) bool { return strings.EqualFold(h, name) })
	}
	// What browsers let pages read anyway, and what is for browsers.
	open := []string{"Cache-Control", "Last-Modified", "Content-Security-Policy", "X-Content-Type-Options"}
	sent, read := 0, 0
	for name, operation := range documentedOperations(t, newRig(t)) {
		for _, header := range operation.parametersIn("header") {
			if sent++; !listed(originRequestHeaders, header) {
				t.Errorf("%s: a page may not send %s", name, header)
			}
		}
		for status, response := range operation.Responses {
			for header := range response.Headers {
				if read++; !listed(open, header) && !listed(originAnswerHeaders, header) {
					t.Errorf("%s, %s: a page may not read %s", name, status, header)
				}
			}
		}
	}
	if sent < 20 || read < 100 {
		t.Errorf("the document has %d headers for requests and %d for answers", sent, read)
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
