package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"keyrange/test/gateway"
)

var update = flag.Bool("update", false, "write the golden files anew")

// exchange is one request of a transcript.
type exchange struct {
	method, path, body string
	// headers are of the form "Name: value".
	headers []string
}

// crudCalls are the calls with one record each. The IDs that they get are the same everywhere.
var crudCalls = []exchange{
	{"POST", "/v1/records", `{"key":"order-1", "amount":12.50,"big":18446744073709551615}`, nil},
	{"POST", "/v1/records", `{"key":"order-1"}`, nil},
	{"POST", "/v1/records", `{"note":"a record without a key"}`, nil},
	{"POST", "/v1/records", `{}`, nil},
	{"POST", "/v1/records", `{"key":"with space/and slash ü"}`, nil},
	{"GET", "/v1/records/with%20space%2Fand%20slash%20%C3%BC", "", nil},
	{"POST", "/v1/records", `{"key":"order-2"}`, []string{"If-None-Match: *"}},
	{"POST", "/v1/nothing", `{"key":"order-1"}`, nil},
	{"GET", "/v1/records/order-1", "", nil},
	{"GET", "/v1/records/order-1", "", []string{`If-None-Match: "1-1"`}},
	{"GET", "/v1/records/order-1", "", []string{`If-Match: "1-2"`}},
	{"GET", "/v1/records/order-0", "", nil},
	{"HEAD", "/v1/records/order-1", "", nil},
	{"HEAD", "/v1/records/order-0", "", nil},
	{"PUT", "/v1/records/order-2", `{"n":1}`, nil},
	{"PUT", "/v1/records/order-2", `{"n":2}`, nil},
	{"PUT", "/v1/records/order-2", `{"n":2}`, nil},
	{"PUT", "/v1/records/order-2", `{"key":"order-2","n":4}`, []string{`If-Match: "4-3"`}},
	{"PUT", "/v1/records/order-2", `{"n":5}`, []string{`If-Match: "5-3"`}},
	{"PUT", "/v1/records/order-2", `{"n":5}`, []string{`If-Match: "5-4", "5-3"`}},
	{"PUT", "/v1/records/order-2", `{"n":6}`, []string{"If-None-Match: *"}},
	{"PUT", "/v1/records/order-3", `{"n":1}`, []string{"If-None-Match: *"}},
	{"PUT", "/v1/records/order-4", `{"n":1}`, []string{"If-Match: *"}},
	{"PUT", "/v1/records/order-2", `{"key":"order-3"}`, nil},
	{"GET", "/v1/records/order-2", "", nil},
	{"DELETE", "/v1/records/order-2", "", []string{`If-Match: "4-4"`}},
	{"DELETE", "/v1/records/order-2", "", []string{`If-Match: "5-5"`}},
	{"DELETE", "/v1/records/order-2", "", nil},
	{"DELETE", "/v1/records/order-3", "", nil},
	{"GET", "/v1/records/order-3", "", nil},
	{"POST", "/v1/records", `{"key":"order-3","again":true}`, nil},
	{"GET", "/v1/records/order-3", "", nil},
	{"PATCH", "/v1/records/nobody", `{"n":1}`, nil},
	{"GET", "/v1/records/nobody", "", nil},
	{"PATCH", "/v1/records/nobody", `{"n":1}`, []string{"If-Match: *"}},
	{"PATCH", "/v1/records/order-1", `{"amount":13.70, "note":{"by":"me","gone":null}}`, []string{"Content-Type: application/merge-patch+json"}},
	{"PATCH", "/v1/records/order-1", `{"note":{"by":null,"n":[1,null]}}`, []string{`If-Match: "1-2"`}},
	{"PATCH", "/v1/records/order-1", `{"note":null}`, []string{`If-Match: "1-2"`}},
	{"PATCH", "/v1/records/order-1", `{"note":null}`, []string{"Prefer: return=minimal"}},
	{"PATCH", "/v1/records/order-1", `{}`, nil},
	{"PATCH", "/v1/records/order-1", `{"key":"order-2"}`, nil},
	{"PATCH", "/v1/records/order-1", `[]`, []string{"Content-Type: application/json-patch+json"}},
	{"GET", "/v1/records/order-1", "", nil},
	{"PUT", "/v1/records/order-1", `{"n":1}`, []string{"Prefer: return=minimal"}},
	{"POST", "/v1/records/order-1", `{}`, nil},
	{"OPTIONS", "/v1/records", "", nil},
	{"GET", "/v1/records?key=order-1&key=nobody&key=order-1&key=with+space%2Fand%20slash%20%C3%BC", "", nil},
	{"HEAD", "/v1/records?key=order-1", "", nil},
	{"GET", "/v1/records?key=order-1&page=2", "", nil},
	{"GET", "/v1/records/order-1", "", []string{"Accept: text/html"}},
	{"PUT", "/v1/records/mortal", `{"n":1}`, []string{"TTL: 3600"}},
	{"GET", "/v1/records/mortal", "", nil},
	{"PATCH", "/v1/records/mortal", `{"n":2}`, nil},
	{"PATCH", "/v1/records/mortal", `{"n":3}`, []string{"TTL: 7200"}},
	{"PUT", "/v1/records/mortal", `{"n":4}`, []string{"TTL: 1.5"}},
	{"PUT", "/v1/records/mortal", `{"n":4}`, nil},
	{"GET", "/v1/records/mortal", "", nil},
	{"GET", "/elsewhere", "", nil},
}

// bulkCalls are the calls with many records each and the looks at what they made. Within one call the IDs may go to
// the records in any order.
var bulkCalls = []exchange{
	{"POST", "/v1/records", `[{"key":"a","n":1}, {"key":"b"},{"key":"a","n":2},{"key":"order-1"},7,{"key":""}]`, nil},
	{"POST", "/v1/records", `[]`, nil},
	{"POST", "/v1/records", `[{"key":"never"}`, nil},
	{"GET", "/v1/records/never", "", nil},
	{"POST", "/v1/records", "{\"key\":\"c\",\"n\":1}\n\n{\"key\":\"d\"}\r\n{\"key\":\"c\",\"n\":2}\n{\"key\":\n{\"key\":\"e\"}", []string{"Content-Type: application/x-ndjson"}},
	{"GET", "/v1/records/a", "", nil},
	{"GET", "/v1/records/c", "", nil},
	{"HEAD", "/v1/records/e", "", nil},
	{"POST", "/v1/records?op=put", `[{"key":"a","n":3},{"key":"f"},{"n":1},{"key":"f","n":2},7]`, nil},
	{"POST", "/v1/records?op=put", "{\"key\":\"a\",\"n\":12.50}\n{\"key\":\"g\"}\n{\"key\":", []string{"Content-Type: application/x-ndjson"}},
	{"POST", "/v1/records?op=get", `["g","a","nobody","a","f"]`, nil},
	{"POST", "/v1/records?op=get", "\"g\"\n\"nobody\"", []string{"Content-Type: application/x-ndjson"}},
	{"POST", "/v1/records?op=delete", `["f","f",{"key":"a","etag":"\"1-1\""},{"key":"g","etag":"*"},{"key":"g","etag":"*"},7]`, nil},
	{"POST", "/v1/records?op=delete", "\"b\"\n{\"key\":\"c\"}\n", []string{"Content-Type: application/x-ndjson"}},
	{"POST", "/v1/records?op=delete", `{"key":"a"}`, nil},
	{"GET", "/v1/records?key=a&key=b&key=c&key=f&key=g", "", nil},
}

// shownHeaders are the headers that a transcript has, where they are set.
var shownHeaders = []string{"Content-Type", "ETag", "Location", "Allow", "Retry-After", "Cache-Control", "Vary", "Preference-Applied", "Accept-Patch", "Record-Expires", "X-Request-Id"}

// transcript writes calls and answers as text that is the same for every gateway.
type transcript struct {
	strings.Builder
	g     *gateway.Process
	calls int
}

// call makes one call. The request id is the client's, so that it is known.
func (tr *transcript) call(t *testing.T, e exchange) gateway.Answer {
	t.Helper()
	tr.calls++
	id := fmt.Sprintf("call-%d", tr.calls)
	a := tr.g.Do(t, e.method, e.path, e.body, append([]string{"X-Request-Id: " + id}, e.headers...)...)
	fmt.Fprintf(tr, "%s %s\n", e.method, e.path)
	for _, header := range e.headers {
		fmt.Fprintln(tr, header)
	}
	if e.body != "" {
		fmt.Fprintln(tr, strings.TrimSpace(e.body))
	}
	text := fmt.Sprintf("%d\n", a.Status)
	for _, name := range shownHeaders {
		value := a.Header.Get(name)
		if name == "Record-Expires" {
			value = fromNow(t, value)
		}
		if value != "" {
			text += name + ": " + value + "\n"
		}
	}
	if e.method == "HEAD" {
		text += "Content-Length: " + a.Header.Get("Content-Length") + "\n"
	}
	fmt.Fprintf(tr, "%s%s\n\n", text, strings.TrimSuffix(a.Body, "\n"))
	if (a.Header.Get("Last-Modified") != "") != (a.Header.Get("ETag") != "" && a.Status < 400) {
		t.Errorf("%s %s: Last-Modified %q with ETag %q", e.method, e.path, a.Header.Get("Last-Modified"), a.Header.Get("ETag"))
	}
	return a
}

// fromNow says how far away a moment is, in tens of minutes.
func fromNow(t *testing.T, moment string) string {
	t.Helper()
	if moment == "" {
		return ""
	}
	at, err := time.Parse(time.RFC3339Nano, moment)
	if err != nil || !strings.HasSuffix(moment, "Z") {
		t.Errorf("%q is no moment in UTC: %v", moment, err)
	}
	return "in " + time.Until(at).Round(10*time.Minute).String()
}

// quotedTag is an ETag, in a header or within JSON.
var quotedTag = regexp.MustCompile(`("|\\")([0-9]+)-([0-9]+)("|\\")`)

// nameIDs gives the IDs in ETags names in the order in which they come.
func nameIDs(text string) string {
	names := map[string]string{}
	return quotedTag.ReplaceAllStringFunc(text, func(tag string) string {
		parts := quotedTag.FindStringSubmatch(tag)
		if names[parts[2]] == "" {
			names[parts[2]] = fmt.Sprintf("id%d", len(names)+1)
		}
		return parts[1] + names[parts[2]] + "-" + parts[3] + parts[4]
	})
}

// crudTranscript makes all calls on a fresh gateway.
func crudTranscript(t *testing.T, g *gateway.Process) string {
	t.Helper()
	single := &transcript{g: g}
	made := 0
	masks := []string{}
	for _, e := range crudCalls {
		a := single.call(t, e)
		var doc struct{ Key string }
		if e.method == "POST" && a.Status == 201 && !strings.Contains(e.body, `"key"`) && json.Unmarshal([]byte(a.Body), &doc) == nil {
			made++
			masks = append(masks, doc.Key, fmt.Sprintf("MADE-KEY-%d", made))
			if got := g.Do(t, "GET", a.Header.Get("Location"), ""); got.Body != a.Body || a.Header.Get("Location") != "/v1/records/"+doc.Key {
				t.Errorf("the record under the made key %s at %s: got %q, want %q", doc.Key, a.Header.Get("Location"), got.Body, a.Body)
			}
		}
	}
	bulk := &transcript{g: g, calls: single.calls}
	for _, e := range bulkCalls {
		bulk.call(t, e)
	}
	return strings.NewReplacer(masks...).Replace(single.String()) + nameIDs(bulk.String())
}

// TestCRUDSameAnswers: the same calls get the same answers, byte for byte, whatever the records are kept in.
func TestCRUDSameAnswers(t *testing.T) {
	golden := filepath.Join("testdata", "crud.golden")
	stacks(t, func(t *testing.T, kind string) {
		g := gateway.Start(t, gateway.NewStack(t, kind, 2, 10_000_000).Config())
		got := crudTranscript(t, g)
		g.Stop(t)
		if *update && kind == gateway.Embedded {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		compareLines(t, got, string(want))
	})
}

// compareLines shows the first line that differs, with what stands before it.
func compareLines(t *testing.T, got, want string) {
	t.Helper()
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		line := func(lines []string) string {
			if i < len(lines) {
				return lines[i]
			}
			return "(the end)"
		}
		if line(gotLines) != line(wantLines) {
			from := max(0, i-10)
			t.Errorf("line %d differs:\n%s\ngot  %s\nwant %s", i+1, strings.Join(wantLines[from:min(i, len(wantLines))], "\n"), line(gotLines), line(wantLines))
			return
		}
	}
}
