package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"keyrange/handlers/apidoc"
	"keyrange/test/contract"
	"keyrange/test/gateway"
)

// documentedCollections are the collections of the gateway that is called.
const documentedCollections = "collections: [{name: records}, {name: orders, group: customer}]\n"

// deletionID stands for the id of the deletion that was taken on last.
const deletionID = "..."

// documentedCalls are the calls that the document of the API, its page and docs/api.md show, in the order in which they
// are made. Calls that make IDs in no certain order come last.
var documentedCalls = []apidoc.Example{
	{Title: "Create a record under a key of your own", Method: "PUT", Path: "/v1/records/order-7f3a", Body: `{"total": 12.50}`},
	{Title: "Read it", Method: "GET", Path: "/v1/records/order-7f3a"},
	{Title: "Read it only if it has changed", Method: "GET", Path: "/v1/records/order-7f3a", Headers: []string{`If-None-Match: "1-1"`}},
	{Title: "Look whether it is there", Method: "HEAD", Path: "/v1/records/order-7f3a"},
	{Title: "Replace it, if nobody has changed it meanwhile", Method: "PUT", Path: "/v1/records/order-7f3a", Headers: []string{`If-Match: "1-1"`}, Body: `{"total": 14}`},
	{Title: "Somebody has changed it meanwhile", Method: "PUT", Path: "/v1/records/order-7f3a", Headers: []string{`If-Match: "1-1"`}, Body: `{"total": 15}`},
	{Title: "Create it only if there is none", Method: "PUT", Path: "/v1/records/order-7f3a", Headers: []string{"If-None-Match: *"}, Body: `{"total": 16}`},
	{Title: "A body that is no JSON", Method: "PUT", Path: "/v1/records/order-7f3a", Body: `{"total": }`},
	{Title: "Create a record", Method: "POST", Path: "/v1/records", Body: `{"key": "a/b", "total": 1}`},
	{Title: "A slash in a key", Method: "GET", Path: "/v1/records/a%2Fb"},
	{Title: "Create a record whose key the gateway makes", Method: "POST", Path: "/v1/records", Body: `{"total": 3}`},
	{Title: "Create a record under a key that is taken", Method: "POST", Path: "/v1/records", Body: `{"key": "order-7f3a"}`},
	{Title: "Create a record in a request that can be sent again", Method: "POST", Path: "/v1/records", Headers: []string{"Idempotency-Key: 8e03978e-40d5"}, Body: `{"key": "order-9c1e", "total": 5}`},
	{Title: "Send it again", Method: "POST", Path: "/v1/records", Headers: []string{"Idempotency-Key: 8e03978e-40d5"}, Body: `{"key": "order-9c1e", "total": 5}`},
	{Title: "Change a member of a record", Method: "PATCH", Path: "/v1/records/order-9c1e", Headers: []string{"Content-Type: application/merge-patch+json"}, Body: `{"paid": true}`},
	{Title: "Change it without having it sent back", Method: "PATCH", Path: "/v1/records/order-9c1e", Headers: []string{"Prefer: return=minimal"}, Body: `{"paid": null}`},
	{Title: "Read several records", Method: "GET", Path: "/v1/records?key=order-9c1e&key=a%2Fb&key=order-0000"},
	{Title: "Look whether several records can be read", Method: "HEAD", Path: "/v1/records?key=order-9c1e"},
	{Title: "Read many records", Method: "POST", Path: "/v1/records?op=get", Body: `["order-9c1e", "order-0000"]`},
	{Title: "List the records, a page at a time", Method: "GET", Path: "/v1/records?limit=2"},
	{Title: "List some members of the records that were created last", Method: "GET", Path: "/v1/records?order=desc&fields=total&limit=1"},
	{Title: "A parameter that there is not", Method: "GET", Path: "/v1/records/order-9c1e?verbose=1"},
	{Title: "Create many records", Method: "POST", Path: "/v1/records", Body: `[{"key": "x1"}, {"key": "order-7f3a"}, 7]`},
	{Title: "Create a stream of records", Method: "POST", Path: "/v1/records", Headers: []string{"Content-Type: application/x-ndjson"}, Body: "{\"key\": \"x2\"}\n{\"key\": \"x3\"}\n"},
	{Title: "Create or replace many records", Method: "POST", Path: "/v1/records?op=put", Body: `[{"key": "x1", "n": 1}, {"key": "x4"}]`},
	{Title: "Delete many records", Method: "POST", Path: "/v1/records?op=delete", Body: `["x1", "x2", {"key": "a/b", "etag": "\"2-1\""}]`},
	{Title: "Delete a record, in the version that you know", Method: "DELETE", Path: "/v1/records/order-7f3a", Headers: []string{`If-Match: "1-2"`}},
	{Title: "There is no record", Method: "GET", Path: "/v1/records/order-7f3a"},
	{Title: "There is no collection", Method: "GET", Path: "/v1/nothing/order-7f3a"},
	{Title: "Create a record that lives for an hour", Method: "PUT", Path: "/v1/records/session-1", Headers: []string{"TTL: 3600"}, Body: `{"user": "u-1"}`},
	{Title: "Read until when it lives", Method: "GET", Path: "/v1/records/session-1"},
	{Title: "A time to live that is none", Method: "PUT", Path: "/v1/records/session-1", Headers: []string{"TTL: soon"}, Body: `{"user": "u-1"}`},
	{Title: "Create a record of a group", Method: "POST", Path: "/v1/orders", Body: `{"key": "o-1", "customer": "c-17"}`},
	{Title: "Create another of the same group", Method: "PUT", Path: "/v1/orders/o-2", Body: `{"customer": "c-17"}`},
	{Title: "List a group, and count it", Method: "GET", Path: "/v1/orders?group=c-17&count=true&limit=1"},
	{Title: "Count a group", Method: "GET", Path: "/v1/orders?group=c-17&count=true&limit=0"},
	{Title: "The group of a record never changes", Method: "PATCH", Path: "/v1/orders/o-1", Headers: []string{"Content-Type: application/merge-patch+json"}, Body: `{"customer": "c-18"}`},
	{Title: "Delete the records of a group", Method: "DELETE", Path: "/v1/orders?group=c-17"},
	{Title: "Look how far the deletion has come", Method: "GET", Path: "/v1/orders?deletion=" + deletionID},
	{Title: "A collection without groups", Method: "DELETE", Path: "/v1/records?group=c-17"},
	{Title: "Is the process there?", Method: "GET", Path: "/healthz"},
	{Title: "Can records be served?", Method: "GET", Path: "/readyz"},
	{Title: "The description of the API for programs", Method: "GET", Path: "/openapi.json"},
	{Title: "The description of the API for people", Method: "GET", Path: "/docs"},
}

// Files that TestAPIDocument writes with -update.
const (
	examplesFile = "handlers/apidoc/examples.json"
	byExample    = "docs/api.md"
)

// unshownHeaders are headers of an answer that say nothing about the API.
var unshownHeaders = []string{"Date", "Content-Length", "Transfer-Encoding", "Connection", "Vary"}

// masks replace what differs each time. Bodies keep their types.
var masks = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`"request_id":"[^"]*"`), `"request_id":"..."`},
	{regexp.MustCompile(`"took_ms":[0-9.e-]+`), `"took_ms":0.2`},
	{regexp.MustCompile(`"etag":"\\"[0-9]+-[0-9]+\\""`), `"etag":"..."`},
	{regexp.MustCompile(`"id":"[^"]*","group"`), `"id":"` + deletionID + `","group"`},
	{regexp.MustCompile(`_at":"[^"]*"`), `_at":"2026-03-01T12:00:00Z"`},
	{regexp.MustCompile(`([?&]deletion=).*`), "${1}" + deletionID},
	{regexp.MustCompile(`^Record-Expires: .*`), "Record-Expires: ..."},
	{regexp.MustCompile(`^X-Request-Id: .*`), "X-Request-Id: ..."},
	{regexp.MustCompile(`^Last-Modified: .*`), "Last-Modified: ..."},
	{regexp.MustCompile(`^Content-Security-Policy: .*`), "Content-Security-Policy: ..."},
}

// masked applies the masks to a header line or a body.
func masked(text string) string {
	for _, m := range masks {
		text = m.from.ReplaceAllString(text, m.to)
	}
	return text
}

// carryOut runs the call as the curl command that is shown, and completes the example with the answer. deletion is the path of
// the deletion that was taken on last; a call that looks at one is made when it is done.
func carryOut(t *testing.T, g *gateway.Process, e apidoc.Example, deletion *string) apidoc.Example {
	t.Helper()
	command := strings.Replace(e.Curl(), "localhost:8080", strings.TrimPrefix(g.URL, "http://"), 1)
	if strings.HasSuffix(e.Path, "?deletion="+deletionID) {
		command = strings.Replace(command, e.Path, *deletion, 1)
		gateway.Poll(t, "the deletion is done", func() bool {
			return strings.Contains(g.Expect(t, http.StatusOK, "GET", *deletion, "").Body, `"state":"done"`)
		})
	}
	printed, err := exec.CommandContext(t.Context(), "bash", "-c", strings.Replace(command, "curl ", "curl -sS ", 1)).Output()
	if err != nil {
		t.Fatalf("$ %s\n%v", command, err)
	}
	head, body, _ := strings.Cut(string(printed), "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	header := http.Header{}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		name = strings.Replace(http.CanonicalHeaderKey(name), "Etag", "ETag", 1)
		header.Add(name, value)
		if !slices.Contains(unshownHeaders, name) {
			e.AnswerHeaders = append(e.AnswerHeaders, masked(name+": "+value))
		}
	}
	slices.Sort(e.AnswerHeaders)
	if _, err := fmt.Sscanf(lines[0], "HTTP/1.1 %d", &e.Status); err != nil {
		t.Fatalf("$ %s\n%s: %v", command, lines[0], err)
	}
	if err := contract.Default().Check(contract.Response{Method: e.Method, Path: e.Path, Status: e.Status, Header: header, Body: []byte(body)}); err != nil {
		t.Error(err)
	}
	if e.Status == http.StatusAccepted {
		*deletion = header.Get("Location")
	}
	e.Answer = masked(body)
	var made struct{ Key string }
	if e.Method == "POST" && e.Status == http.StatusCreated && !strings.Contains(e.Body, `"key"`) && json.Unmarshal([]byte(body), &made) == nil {
		e.Answer = strings.ReplaceAll(e.Answer, made.Key, "...")
		for i := range e.AnswerHeaders {
			e.AnswerHeaders[i] = strings.ReplaceAll(e.AnswerHeaders[i], made.Key, "...")
		}
	}
	if e.Path == "/openapi.json" || e.Path == "/docs" {
		e.Answer = strings.Join(strings.SplitAfter(body, "\n")[:2], "") + "..."
	}
	return e
}

// TestAPIDocument makes the documented calls on a fresh gateway. What the gateway answers is what the document, its page
// and docs/api.md show; every operation is shown.
func TestAPIDocument(t *testing.T) {
	g := gateway.Start(t, gateway.NewStack(t, gateway.Embedded, 1, 10_000_000).Config()+documentedCollections)
	var done []apidoc.Example
	deletion := ""
	for _, call := range documentedCalls {
		done = append(done, carryOut(t, g, call, &deletion))
	}
	g.Stop(t)
	var examples bytes.Buffer
	encoder := json.NewEncoder(&examples)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(done); err != nil {
		t.Fatal(err)
	}
	wantFile(t, examplesFile, examples.String())
	wantFile(t, byExample, apiByExample(done))
	for _, operation := range publicOperations(t) {
		method, path, _ := strings.Cut(operation, " ")
		if method == http.MethodHead && strings.Count(path, "/") == 1 {
			continue // it is what GET shows, without the body
		}
		if !slices.ContainsFunc(done, func(e apidoc.Example) bool { return e.Method == method && apidoc.Match(path, e.Path) }) {
			t.Errorf("documentedCalls has no %s", operation)
		}
	}
}

// publicOperations lists the operations of the document as "METHOD path".
func publicOperations(t *testing.T) (all []string) {
	t.Helper()
	d, err := apidoc.New()
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var document struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	for path, item := range document.Paths {
		for method := range item {
			if method != "parameters" {
				all = append(all, strings.ToUpper(method)+" "+path)
			}
		}
	}
	return all
}

// wantFile compares a generated file of the repository with what it should be, or writes it.
func wantFile(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join(root, name)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the gateway answers; write it with: go test ./test/integration -run TestAPIDocument -update", name)
		compareLines(t, string(got), want)
	}
}

// apiByExample is docs/api.md.
func apiByExample(all []apidoc.Example) string {
	var b strings.Builder
	b.WriteString(`# The API by example

Every call below was made, in this order, on a fresh gateway with the collections ` + "`records`" + ` and ` + "`orders`" + `; those
of ` + "`orders`" + ` have groups, by their member ` + "`customer`" + `. A test writes this page and fails when an answer differs.
` + "`...`" + ` stands for what differs each time. What each call takes and answers in full is at ` + "`/docs`" + ` of a running gateway, for
people, and at ` + "`/openapi.json`" + `, for programs; ` + "`gateway openapi`" + ` prints the latter.
`)
	for _, e := range all {
		fmt.Fprintf(&b, "\n## %s\n\n```console\n$ %s\n%s\n```\n", strings.TrimSuffix(e.Title, "?"), e.Curl(), e.AnswerText())
	}
	return b.String()
}
