package handlers

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAccept: a request that excludes what the answer would be is refused before anything is done.
func TestAccept(t *testing.T) {
	r := newRig(t)
	r.expect(201, "", "PUT", "/v1/records/a", `{}`)
	for accept, fits := range map[string]bool{
		"": true, "*/*": true, "application/json": true, "application/*": true, "Application/JSON;charset=utf-8": true,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": true, "text/plain, application/json;q=0.001": true, "nonsense": true, "application/json;q=x": true,
		"text/plain": false, "application/x-ndjson": false, "application/json;q=0": false, "*/*, application/json;q=0": false, "application/*;q=0, */*": false,
		"*/*;q=0.0": false, "text/*": false, "application/json;q=0, application/*;q=1": false, "application/problem+json": false, "text/plain, nonsense": false,
	} {
		for _, c := range [][2]string{{"GET", ""}, {"HEAD", ""}, {"PUT", `{"n":1}`}, {"PATCH", `{"n":1}`}} {
			answer := r.do(c[0], "/v1/records/a", c[1], "Accept: "+accept)
			if answer.Code == 200 != fits || answer.Code == 406 == fits {
				t.Errorf("%s with Accept: %s: %d %s", c[0], accept, answer.Code, answer.Body)
			}
		}
		r.expect(map[bool]int{true: 200, false: 406}[fits], "", "GET", "/v1/records?key=a", "", "Accept: "+accept)
		r.expect(map[bool]int{true: 200, false: 406}[fits], "", "POST", "/v1/records", `[]`, "Accept: "+accept)
	}
	tag := r.do("GET", "/v1/records/a", "").Header().Get("ETag")
	answer := r.expect(406, "not_acceptable", "PUT", "/v1/records/a", `{"n":2}`, "Accept: text/plain")
	if !strings.Contains(answer.Body.String(), "application/json") || r.do("GET", "/v1/records/a", "").Header().Get("ETag") != tag {
		t.Errorf("what there is, and nothing done: %s", answer.Body)
	}
	r.expect(200, "", "POST", "/v1/records", "\n", ndjson, "Accept: application/x-ndjson")
	r.expect(406, "not_acceptable", "POST", "/v1/records", `{"key":"no"}`, ndjson, "Accept: application/json")
	r.expect(404, "record_not_found", "GET", "/v1/records/no", "", "Accept: application/json")
	r.expect(204, "", "DELETE", "/v1/records/a", "", "Accept: text/plain")
	r.expect(200, "", "GET", "/healthz", "", "Accept: text/plain")
}

// TestNegotiate: the offer with the highest weight, of equals the first.
func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]string{
		"": mediaJSON, "*/*": mediaJSON, "application/x-ndjson": mediaNDJSON, "application/json, application/x-ndjson": mediaJSON,
		"application/json;q=0.5, application/x-ndjson": mediaNDJSON, "application/*;q=0.1, application/x-ndjson;q=0": mediaJSON, "text/html": "",
	} {
		got, err := negotiate(http.Header{"Accept": {accept}}, mediaJSON, mediaNDJSON)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %s %v, want %s", accept, got, err, want)
		}
	}
}

// TestPrefer: a client may have the answer to a write without the record.
func TestPrefer(t *testing.T) {
	r := newRig(t)
	for i, c := range []struct {
		method, target, body, prefer string
		status                       int
		minimal                      bool
	}{
		{"POST", "/v1/records", `{"key":"a"}`, "return=minimal", 201, true},
		{"PUT", "/v1/records/b", `{}`, "respond-async, RETURN = \"minimal\"; foo", 201, true},
		{"PUT", "/v1/records/b", `{}`, "return=minimal", 204, true},
		{"PATCH", "/v1/records/b", `{"n":1}`, "return=minimal, return=representation", 204, true},
		{"PUT", "/v1/records/b", `{}`, "return=representation, return=minimal", 200, false},
		{"PUT", "/v1/records/b", `{}`, "return=less", 200, false},
		{"PUT", "/v1/records/b", `{}`, "minimal", 200, false},
		{"POST", "/v1/records", `[{"key":"c"}]`, "return=minimal", 200, false},
	} {
		answer := r.expect(c.status, "", c.method, c.target, c.body, "Prefer: "+c.prefer)
		header := answer.Header()
		if (answer.Body.Len() == 0) != c.minimal || (header.Get("Preference-Applied") == "return=minimal") != c.minimal || c.minimal && header.Get("ETag") == "" {
			t.Errorf("%d, %s: %v %s", i, c.prefer, header, answer.Body)
		}
		if c.status == 201 && (header.Get("Location") == "" || header.Get("Content-Length") != "0") {
			t.Errorf("%d, %s: %v", i, c.prefer, header)
		}
	}
	r.expect(409, "record_exists", "POST", "/v1/records", `{"key":"a"}`, "Prefer: return=minimal")
}

// TestCompression: large answers are compressed for clients that take it, small ones never, and a record has one ETag.
func TestCompression(t *testing.T) {
	r := newRig(t)
	large := `{"key":"large","v":"` + strings.Repeat("x", 20<<10) + `"}`
	r.expect(201, "", "PUT", "/v1/records/large", large)
	r.expect(201, "", "PUT", "/v1/records/small", `{"v":"`+strings.Repeat("x", compressFromBytes/2)+`"}`)
	for accept, compressed := range map[string]bool{
		"gzip": true, "br, gzip;q=0.5": true, "deflate, GZIP": true, "identity": false, "gzip;q=0": false, "": false, "br": false, "zstd": false,
	} {
		answer := r.expect(200, "", "GET", "/v1/records/large", "", "Accept-Encoding: "+accept)
		header := answer.Header()
		if (header.Get("Content-Encoding") == "gzip") != compressed || header.Get("Vary") != "Accept-Encoding" || header.Get("ETag") != `"1-1"` {
			t.Errorf("%q: %v", accept, header)
		}
		body := io.Reader(answer.Body)
		if compressed {
			if answer.Body.Len() > len(large)/10 {
				t.Errorf("%q: %d bytes", accept, answer.Body.Len())
			}
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := io.ReadAll(body); err != nil || string(text) != large {
			t.Errorf("%q: %v, %.40s", accept, err, text)
		}
		if small := r.expect(200, "", "GET", "/v1/records/small", "", "Accept-Encoding: "+accept); small.Header().Get("Content-Encoding") != "" || small.Header().Get("Content-Length") == "" {
			t.Errorf("%q, small: %v", accept, small.Header())
		}
		problem := r.expect(404, "record_not_found", "GET", "/v1/records/no", "", "Accept-Encoding: "+accept)
		if problem.Header().Get("Content-Encoding") != "" {
			t.Errorf("%q, problem: %v", accept, problem.Header())
		}
		// The ETag of a compressed answer is as good as any other.
		same := r.expect(304, "", "GET", "/v1/records/large", "", "Accept-Encoding: "+accept, "If-None-Match: "+header.Get("ETag"))
		if same.Body.Len() > 0 || same.Header().Get("Vary") != "Accept-Encoding" || same.Header().Get("Content-Encoding") != "" {
			t.Errorf("%q, 304: %v", accept, same.Header())
		}
	}
	r.expect(304, "", "GET", "/v1/records/large", "", "Accept-Encoding: gzip", `If-None-Match: W/"1-1"`) // as a proxy may have weakened it
	r.expect(200, "", "PUT", "/v1/records/large", large, "Accept-Encoding: gzip", `If-Match: "1-1"`)
	r.expect(204, "", "DELETE", "/v1/records/large", "", "Accept-Encoding: gzip")
}

// TestCompressedStream: the results of a stream come as they are ready, also compressed.
func TestCompressedStream(t *testing.T) {
	r := newRig(t)
	server := r.listen()
	defer server.Close()
	reader, writer := io.Pipe()
	request, _ := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/records?op=put", reader)
	request.Header.Set("Content-Type", mediaNDJSON)
	request.Header.Set("Accept-Encoding", "gzip")
	go func() { _, _ = io.WriteString(writer, "{\"key\":\"a\"}\n") }()
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("headers %v", response.Header)
	}
	body, err := gzip.NewReader(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		line := make([]byte, len(fmt.Sprintf(`{"status":201,"key":%q,"etag":"\"1-1\""}`, key)+"\n"))
		if _, err := io.ReadFull(body, line); err != nil || !strings.Contains(string(line), fmt.Sprintf(`"key":%q`, key)) {
			t.Fatalf("%v: %s", err, line)
		}
		if key == "a" {
			_, _ = io.WriteString(writer, "{\"key\":\"b\"}\n")
		}
	}
	_ = writer.Close()
	if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
		t.Errorf("the end: %q %v", rest, err)
	}
}

// TestHeadOfOperators: HEAD works where GET does, also for operators.
func TestHeadOfOperators(t *testing.T) {
	r := newRig(t)
	for _, target := range []string{"/admin/ranges", "/admin/sweeper", "/admin/status", "/admin/history", "/admin/lookup?collection=records&key=a", "/ui/", "/healthz", "/readyz", "/debug/pprof/cmdline"} {
		var answers [2]*httptest.ResponseRecorder
		for i, method := range []string{"GET", "HEAD"} {
			answers[i] = httptest.NewRecorder()
			r.Admin().ServeHTTP(answers[i], httptest.NewRequest(method, target, nil))
		}
		if answers[0].Code != 200 || answers[1].Code != 200 || answers[0].Header().Get("Content-Type") != answers[1].Header().Get("Content-Type") {
			t.Errorf("%s: GET %d %v, HEAD %d %v", target, answers[0].Code, answers[0].Header(), answers[1].Code, answers[1].Header())
		}
	}
}
