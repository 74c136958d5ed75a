package apidoc

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"
)

// TestMatch: which path belongs to which template.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		template, path string
		want           bool
	}{
		{"/healthz", "/healthz", true},
		{"/healthz", "/healthz/", false},
		{"/v1/{collection}", "/v1/records", true},
		{"/v1/{collection}", "/v1/records?key=a/b", true},
		{"/v1/{collection}", "/v1/records/a", false},
		{"/v1/{collection}/{key}", "/v1/records/a", true},
		{"/v1/{collection}/{key}", "/v1/records/a%2Fb", true},
		{"/v1/{collection}/{key}", "/v1/records/a/b", true},
		{"/v1/{collection}/{key}", "/v1/records", false},
		{"/v1/{collection}/{key}", "/v2/records/a", false},
	} {
		if got := Match(c.template, c.path); got != c.want {
			t.Errorf("%s, %s: %t", c.template, c.path, got)
		}
	}
}

// TestLoadRefuses: parts that contradict each other, and shorthand that stands for nothing, are errors.
func TestLoadRefuses(t *testing.T) {
	const codes = "components: {schemas: {ProblemCode: {x-codes: {busy: {status: 503, title: Busy}}}}}\n"
	for name, c := range map[string]struct{ one, two, wrong string }{
		"twice":    {"info: {title: a}", "info: {title: b}", "2.yaml: /info/title is given twice"},
		"empty":    {"info: {}", "", "2.yaml: it is empty"},
		"no YAML":  {"info: {}", "{", "2.yaml: "},
		"no code":  {codes, "paths: {/a: {get: {x-problems: [late]}}}", "get /a: x-problems: there is no code late"},
		"no group": {codes, "paths: {/a: {get: {x-problems: [+late]}}}", "get /a: x-problems: there is no group late"},
		"a status": {codes, "paths: {/a: {get: {responses: {'503': {description: x}}, x-problems: [busy]}}}", "status 503 has a response already"},
	} {
		root, err := load(fstest.MapFS{"document/1.yaml": {Data: []byte(c.one)}, "document/2.yaml": {Data: []byte(c.two)}})
		if err == nil {
			err = (&Document{root}).expand()
		}
		if err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: got %v, want %q", name, err, c.wrong)
		}
	}
}

// TestReferences: every reference of the document leads somewhere, and nothing of the shorthand is left.
func TestReferences(t *testing.T) {
	d, err := New("records")
	if err != nil {
		t.Fatal(err)
	}
	document, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var root any
	if err := json.Unmarshal(document, &root); err != nil {
		t.Fatal(err)
	}
	references := 0
	var walk func(node any)
	walk = func(node any) {
		switch n := node.(type) {
		case map[string]any:
			for name, child := range n {
				if to, ok := child.(string); ok && name == "$ref" {
					references++
					if _, err := d.resolve(object("$ref", text(to))); err != nil {
						t.Error(err)
					}
				}
				if strings.HasPrefix(name, "x-problem") {
					t.Errorf("%s is left", name)
				}
				walk(child)
			}
		case []any:
			for _, child := range n {
				walk(child)
			}
		}
	}
	walk(root)
	if references < 100 {
		t.Errorf("%d references", references)
	}
}

// TestCurl: an example as a command.
func TestCurl(t *testing.T) {
	for want, e := range map[string]Example{
		"curl -i 'localhost:8080/healthz'":                                                                           {Method: "GET", Path: "/healthz"},
		"curl -I 'localhost:8080/healthz'":                                                                           {Method: "HEAD", Path: "/healthz"},
		"curl -i -X PUT 'localhost:8080/a' \\\n  -H 'If-Match: *' \\\n  --json '{}'":                                 {Method: "PUT", Path: "/a", Headers: []string{"If-Match: *"}, Body: "{}"},
		"curl -i 'localhost:8080/a' \\\n  -H 'Content-Type: application/x-ndjson' \\\n  --data-binary $'{}\\n{}\\n'": {Method: "POST", Path: "/a", Headers: []string{"Content-Type: application/x-ndjson"}, Body: "{}\n{}\n"},
	} {
		if got := e.Curl(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestProse: the little Markdown of descriptions, and nothing that a browser would take for markup.
func TestProse(t *testing.T) {
	const source = "A **b** `c` <i>.\n\nNext `d"
	if got, want := string(prose(source)), "<p>A <strong>b</strong> <code>c</code> &lt;i&gt;.</p><p>Next `d</p>"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
