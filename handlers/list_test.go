package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"keyrange/store"
)

// fill stores records k1 to kn with a bit of everything in them, of which k2 is deleted again.
func (r *rig) fill(n int) {
	r.t.Helper()
	for i := range n {
		r.expect(201, "", "PUT", fmt.Sprintf("/v1/records/k%d", i+1), fmt.Sprintf(`{"n": %d, "a":{"key":[1,2]},`+"\n"+`  "\u0062":1.10}`, i+1))
	}
	r.expect(204, "", "DELETE", "/v1/records/k2", "")
}

// TestListAnswers keeps the whole answers of lists.
func TestListAnswers(t *testing.T) {
	r := newRig(t)
	golden(t, "list_empty", transcript(r.do("GET", "/v1/records", "")))
	golden(t, "list_empty_ndjson", transcript(r.do("GET", "/v1/records", "", "Accept: application/x-ndjson")))
	r.fill(5)
	cursor := url.QueryEscape(cursor{"records", false, 1}.String())
	for _, c := range []struct {
		name, method, target string
		headers              []string
	}{
		{"list", "GET", "/v1/records", nil},
		{"list_page", "GET", "/v1/records?limit=2", nil},
		{"list_next", "GET", "/v1/records?limit=2&cursor=" + cursor, nil},
		{"list_last", "GET", "/v1/records?limit=3&cursor=" + cursor, nil},
		{"list_desc_fields", "GET", "/v1/records?order=desc&limit=2&fields=b,none,n", nil},
		{"list_head", "HEAD", "/v1/records?limit=2", nil},
		{"list_ndjson", "GET", "/v1/records?order=desc&fields=n", []string{"Accept: application/x-ndjson"}},
		{"list_ndjson_limit", "GET", "/v1/records?limit=2", []string{"Accept: application/x-ndjson, */*;q=0.1"}},
		{"list_ndjson_head", "HEAD", "/v1/records", []string{"Accept: application/x-ndjson"}},
		{"list_bad_limit", "GET", "/v1/records?limit=1001", nil},
		{"list_bad_cursor", "GET", "/v1/records?cursor=abc", nil},
		{"list_no_collection", "GET", "/v1/nothing", nil},
	} {
		golden(t, c.name, transcript(r.do(c.method, c.target, "", c.headers...)))
	}
}

// TestListParameters: what is wrong with a parameter is said by its name.
func TestListParameters(t *testing.T) {
	r := newRig(t)
	r.fill(3)
	other := url.QueryEscape(cursor{"orders", false, 1}.String())
	backwards := url.QueryEscape(cursor{"records", true, 1}.String())
	for query, name := range map[string]string{
		"limit=0": "limit", "limit=-1": "limit", "limit=1001": "limit", "limit=": "limit", "limit=x": "limit", "limit=1e3": "limit",
		"limit=5&limit=6": "limit", "order=up": "order", "order=": "order", "order=asc&order=asc": "order", "fields=": "fields",
		"fields=a,,b": "fields", "fields=a&fields=b": "fields", "fields=" + strings.Repeat("a,", 100) + "a": "fields",
		"cursor=": "cursor", "cursor=1": "cursor", "cursor=" + other: "cursor", "cursor=" + backwards: "cursor", "limit=%zz": "escape",
	} {
		answer := r.expect(400, "invalid_parameter", "GET", "/v1/records?"+query, "")
		if !strings.Contains(answer.Body.String(), name) {
			t.Errorf("%s: %s, want %s to be named", query, answer.Body, name)
		}
		r.expect(400, "", "HEAD", "/v1/records?"+query, "")
	}
	for _, query := range []string{"limit=1000", "limit=007", "order=asc", "fields=key", "order=desc&cursor=" + backwards} {
		r.expect(200, "", "GET", "/v1/records?"+query, "")
	}
	r.expect(200, "", "GET", "/v1/records?limit=2147483647", "", "Accept: application/x-ndjson")
	r.expect(400, "invalid_parameter", "GET", "/v1/records?limit=2147483648", "", "Accept: application/x-ndjson")
}

// TestListAccept says when the answer is a stream.
func TestListAccept(t *testing.T) {
	r := newRig(t)
	for accept, want := range map[string]string{
		"": mediaJSON, "*/*": mediaJSON, "application/json": mediaJSON, "application/x-ndjson;q=0.5, application/json": mediaJSON,
		"application/json, application/x-ndjson": mediaJSON, "application/x-ndjson": mediaNDJSON, "Application/X-NDJSON; charset=utf-8": mediaNDJSON,
		"application/json;q=0.9, application/x-ndjson": mediaNDJSON,
	} {
		if got := r.expect(200, "", "GET", "/v1/records", "", "Accept: "+accept).Header().Get("Content-Type"); got != want {
			t.Errorf("Accept %q: %s, want %s", accept, got, want)
		}
	}
	r.expect(406, "not_acceptable", "GET", "/v1/records", "", "Accept: text/html")
}

// listed is the body of a page.
type listed struct {
	Items []json.RawMessage
	Next  string
}

// walk follows the Link headers, or the next of the bodies, to the end.
func (r *rig) walk(target string, links bool) (items []string) {
	r.t.Helper()
	for pages := 0; pages < 1000; pages++ {
		answer := r.expect(200, "", "GET", target, "")
		var page listed
		if err := json.Unmarshal(answer.Body.Bytes(), &page); err != nil {
			r.t.Fatal(err)
		}
		for _, item := range page.Items {
			items = append(items, string(item))
		}
		link := answer.Header().Get("Link")
		if (link == "") != (page.Next == "") {
			r.t.Fatalf("link %q, next %q", link, page.Next)
		}
		if page.Next == "" {
			return items
		}
		if links {
			target = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
			continue
		}
		base, _, _ := strings.Cut(target, "&cursor=")
		target = base + "&cursor=" + page.Next
	}
	r.t.Fatal("the list has no end")
	return nil
}

// TestListWalk: pages add up to the collection, in both orders, with the bytes that were stored, also when the record that
// a page ended with is gone.
func TestListWalk(t *testing.T) {
	r := newRig(t)
	r.fill(25)
	var want []string
	for i := range 25 {
		if i != 1 {
			want = append(want, r.do("GET", fmt.Sprintf("/v1/records/k%d", i+1), "").Body.String())
		}
	}
	for _, limit := range []int{1, 5, 24, 25} {
		for _, links := range []bool{false, true} {
			if got := r.walk(fmt.Sprintf("/v1/records?limit=%d", limit), links); !slices.Equal(got, want) {
				t.Errorf("limit %d: %d items, want %d", limit, len(got), len(want))
			}
			got := r.walk(fmt.Sprintf("/v1/records?limit=%d&order=desc", limit), links)
			if slices.Reverse(got); !slices.Equal(got, want) {
				t.Errorf("limit %d, descending: %d items, want %d", limit, len(got), len(want))
			}
		}
	}
	var page listed
	if err := json.Unmarshal(r.do("GET", "/v1/records?limit=4", "").Body.Bytes(), &page); err != nil {
		t.Fatal(err)
	}
	r.expect(204, "", "DELETE", "/v1/records/k5", "") // k2 is gone, so this was the last of the page
	if got := r.walk("/v1/records?limit=50&cursor="+page.Next, false); !slices.Equal(got, want[4:]) {
		t.Errorf("behind a deleted record: %d items, want %d", len(got), len(want)-4)
	}
	text := r.do("GET", "/v1/records", "", "Accept: application/x-ndjson").Body.String()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, w := range slices.Delete(slices.Clone(want), 3, 4) {
		if i >= len(lines) || lines[i] != strings.ReplaceAll(w, "\n", " ") {
			t.Fatalf("line %d of %d: want %s", i, len(lines), w)
		}
	}
}

// TestListSizes: a page ends where its documents become too many bytes, and a stream goes on.
func TestListSizes(t *testing.T) {
	r := newRig(t)
	r.fake.max = 64 << 20
	r.limit(func(l *Limits) { l.MaxBodyBytes = 64 << 20 })
	for i, size := range []int{10, 3 << 20, 3 << 20, 3 << 20, 9 << 20, 10, 10} {
		r.expect(201, "", "PUT", fmt.Sprintf("/v1/records/k%d", i), `{"v":"`+strings.Repeat("x", size)+`"}`)
	}
	var pages []int
	for target := "/v1/records"; ; {
		var page listed
		if err := json.Unmarshal(r.expect(200, "", "GET", target, "").Body.Bytes(), &page); err != nil {
			t.Fatal(err)
		}
		pages = append(pages, len(page.Items))
		if page.Next == "" {
			break
		}
		target = "/v1/records?cursor=" + page.Next
	}
	if !slices.Equal(pages, []int{3, 1, 1, 2}) {
		t.Errorf("items of the pages: %v", pages)
	}
	answer := r.expect(200, "", "GET", "/v1/records", "", "Accept: application/x-ndjson")
	if n := strings.Count(answer.Body.String(), "\n"); n != 7 || answer.Result().Trailer.Get("X-Item-Count") != "7" {
		t.Errorf("%d lines, trailer %v", n, answer.Result().Trailer)
	}
}

// TestListStreamLimit: a stream ends at its limit, beyond a page too, and says where it goes on.
func TestListStreamLimit(t *testing.T) {
	r := newRig(t)
	var lines strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&lines, "{\"key\":\"k%d\"}\n", i)
	}
	r.expect(200, "", "POST", "/v1/records", lines.String(), "Content-Type: application/x-ndjson")
	all := r.do("GET", "/v1/records", "", "Accept: application/x-ndjson")
	if n := strings.Count(all.Body.String(), "\n"); n != 2500 || all.Result().Trailer.Get("Link") != "" {
		t.Errorf("%d lines, trailer %v", n, all.Result().Trailer)
	}
	text := ""
	for target, parts := "/v1/records?limit=1200", 0; target != ""; parts++ {
		answer := r.expect(200, "", "GET", target, "", "Accept: application/x-ndjson")
		text += answer.Body.String()
		target = strings.TrimSuffix(strings.TrimPrefix(answer.Result().Trailer.Get("Link"), "<"), `>; rel="next"`)
		if want := []string{"1200", "1200", "100"}[parts]; answer.Result().Trailer.Get("X-Item-Count") != want {
			t.Errorf("part %d: trailer %v, want %s", parts, answer.Result().Trailer, want)
		}
	}
	if text != all.Body.String() {
		t.Errorf("the parts have %d bytes, the whole has %d", len(text), all.Body.Len())
	}
}

// TestListBreaksOff: a stream that fails on the way is not taken for a whole one; one that fails at once is a problem.
func TestListBreaksOff(t *testing.T) {
	r := newRig(t)
	r.fill(5)
	fail := "0"
	r.fake.before = func(_ context.Context, op, after string) error {
		if op == "list" && after == fail {
			return fmt.Errorf("node-2: %w", store.ErrUnavailable)
		}
		return nil
	}
	r.expect(503, "unavailable", "GET", "/v1/records", "", "Accept: application/x-ndjson")
	r.expect(503, "unavailable", "GET", "/v1/records", "")

	big := `{"v":"` + strings.Repeat("x", 5<<20) + `"}`
	r.fake.max = 64 << 20
	r.limit(func(l *Limits) { l.MaxBodyBytes = 64 << 20 })
	r.expect(201, "", "PUT", "/v1/records/big1", big) // ID 6
	r.expect(201, "", "PUT", "/v1/records/big2", big)
	fail = "6"
	server := r.listen()
	defer server.Close()
	request, _ := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/v1/records", nil)
	request.Header.Set("Accept", "application/x-ndjson")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err == nil || response.StatusCode != 200 || strings.Count(string(body), "\n") != 5 || response.Trailer.Get("X-Item-Count") != "" {
		t.Errorf("%d, %d bytes, %d lines, %v, trailer %v; want a broken connection after 5 lines", response.StatusCode, len(body), strings.Count(string(body), "\n"), err, response.Trailer)
	}
	if log := r.log.String(); !strings.Contains(log, `"code":"unavailable"`) {
		t.Errorf("log: %s", log)
	}
}

// TestListDeadClient: a client that takes nothing more holds a stream up for a while only.
func TestListDeadClient(t *testing.T) {
	r := newRig(t)
	r.streamIdle = 50 * time.Millisecond
	r.fake.max = 64 << 20
	r.limit(func(l *Limits) { l.MaxBodyBytes = 64 << 20 })
	for i := range 12 {
		r.expect(201, "", "PUT", fmt.Sprintf("/v1/records/k%d", i), `{"v":"`+strings.Repeat("x", 4<<20)+`"}`)
	}
	server := r.listen()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/records HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(r.log.String(), `"code":"client_closed_request"`); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the stream does not end: %s", r.log)
		}
	}
	if load := r.Load(); load.Requests != 0 {
		t.Errorf("load %+v", load)
	}
}

// TestListDeadline: every page has the request timeout for itself.
func TestListDeadline(t *testing.T) {
	r := newRig(t)
	r.limit(func(l *Limits) { l.RequestTimeout = 1 })
	r.fake.before = func(ctx context.Context, _, _ string) error {
		<-ctx.Done()
		return errors.Join(store.ErrUnavailable, ctx.Err())
	}
	r.expect(504, "deadline_exceeded", "GET", "/v1/records", "")
	r.expect(504, "deadline_exceeded", "GET", "/v1/records", "", "Accept: application/x-ndjson")
}

// TestFields: members keep their bytes and their order; the key is always there.
func TestFields(t *testing.T) {
	c := &collection{Collection: Collection{KeyMember: "key"}}
	for document, want := range map[string]string{
		`{ "b" : 1.10 , "a":[1, 2],"key":"k" , "c":{"a":1} }`: `{"a":[1, 2],"key":"k"}`,
		`{"key":"k"}`:                    `{"key":"k"}`,
		`{"\u0061":"x","key":"k","A":1}`: `{"\u0061":"x","key":"k"}`,
		`{}`:                             `{}`,
	} {
		if got, err := (fields{"a", "none"}).project(c, []byte(document)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", document, got, err, want)
		}
	}
	for _, document := range []string{``, `[]`, `{"a":1`, `{"a"`, `{"a":1,}`} {
		if got, err := (fields{"a"}).project(c, []byte(document)); err == nil && document != `[]` {
			t.Errorf("%q: %s", document, got)
		}
	}
}
