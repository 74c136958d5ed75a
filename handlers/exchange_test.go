package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"keyrange/store"
)

// TestRequestLog: one line per request, with the facts and without keys, documents or queries (a sentinel is looked for).
func TestRequestLog(t *testing.T) {
	r := newRig(t)
	const secret = "sentinel"
	requests := [][3]string{
		{"PUT", "/v1/records/" + secret, `{"key":"` + secret + `"}`},
		{"PUT", "/v1/records/" + secret, `{"key":"` + secret + `x"}`},
		{"PUT", "/v1/records/" + secret, `{"` + secret + `":1,"` + secret + `":2}`},
		{"PUT", "/v1/records/a", `{"a":` + secret + `}`},
		{"POST", "/v1/records", `{"key":"` + secret + `"}`},
		{"POST", "/v1/records", `[{"key":"` + secret + `"},{"key":"b"}]`},
	}
	for _, q := range append(requests, [3]string{"GET", "/v1/" + secret + "/a", ""}, [3]string{"GET", "/" + secret, ""},
		[3]string{"GET", "/v1/records/" + secret + "/x", ""}, [3]string{"POST", "/v1/records/" + secret, ""},
		[3]string{"GET", "/v1/records/a?" + secret + "=" + secret, ""}, [3]string{"GET", "/v1/records?key=" + secret, ""}) {
		r.do(q[0], q[1], q[2], "X-Forwarded-For: 6.6.6.6", "X-Real-Ip: 6.6.6.6")
	}
	lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
	if len(lines) != len(requests)+6 {
		t.Errorf("%d lines for %d requests", len(lines), len(requests)+6)
	}
	// A forwarded address is ignored.
	if strings.Contains(r.log.String(), secret) || strings.Contains(r.log.String(), "6.6.6.6") {
		t.Errorf("the log says too much:\n%s", r.log)
	}
	var first map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	delete(first, "time")
	if took, ok := first["duration_ms"].(float64); !ok || took < 0 {
		t.Errorf("duration_ms: %v", first["duration_ms"])
	}
	delete(first, "duration_ms")
	got, _ := json.Marshal(first)
	want := `{"bytes":18,"collection":"records","key_hash":"2b7847b7b705","level":"INFO","method":"PUT","msg":"request","remote":"192.0.2.1","request_id":"test","route":"/v1/:collection/*","status":201}`
	if string(got) != want {
		t.Errorf("line: %s\nwant: %s", got, want)
	}
	for i, code := range map[int]string{1: "key_mismatch", 2: "invalid_json", 3: "invalid_json", 4: "record_exists", 6: "collection_not_found", 7: "not_found", 8: "invalid_key", 9: "method_not_allowed", 10: "invalid_parameter"} {
		if !strings.Contains(lines[i], `"code":"`+code+`","cause":"`) {
			t.Errorf("line %d has no code %s: %s", i, code, lines[i])
		}
	}
	if !strings.Contains(lines[5], `"items":2,"items_failed":1`) {
		t.Errorf("bulk line: %s", lines[5])
	}
}

// TestRequestID: a well-formed id is taken over, any other is replaced.
func TestRequestID(t *testing.T) {
	r := newRig(t)
	made := regexp.MustCompile(`^[0-9a-f]{32}$`)
	seen := map[string]bool{}
	for _, id := range []string{"", "a b", "ü", strings.Repeat("a", 65), "a\"b", "a,b"} {
		request := httptest.NewRequest("GET", "/v1/records/a", nil)
		request.Header["X-Request-Id"] = []string{id}
		answer := r.serve(request)
		got := answer.Header().Get("X-Request-Id")
		if !made.MatchString(got) || seen[got] || !strings.Contains(answer.Body.String(), got) {
			t.Errorf("id %q became %q: %s", id, got, answer.Body)
		}
		seen[got] = true
	}
	for _, id := range []string{"a", "A-z_0.9", strings.Repeat("a", 64)} {
		request := httptest.NewRequest("GET", "/healthz", nil)
		request.Header.Set("X-Request-Id", id)
		answer := r.serve(request)
		if got := answer.Header().Get("X-Request-Id"); got != id {
			t.Errorf("id %q became %q", id, got)
		}
	}
}

// TestMethods: a known path lists its methods, HEAD works where GET does.
func TestMethods(t *testing.T) {
	r := newRig(t)
	for target, want := range map[string]string{"/v1/records": "DELETE, GET, HEAD, POST", "/v1/records/a": "DELETE, GET, HEAD, PATCH, PUT", "/healthz": "GET, HEAD"} {
		for _, method := range []string{"OPTIONS", "TRACE", "PROPFIND"} {
			got := strings.Split(r.expect(405, "method_not_allowed", method, target, "").Header().Get("Allow"), ", ")
			if slices.Sort(got); strings.Join(got, ", ") != want {
				t.Errorf("%s of %s: allowed %v, want %s", method, target, got, want)
			}
		}
	}
	r.expect(405, "method_not_allowed", "PATCH", "/v1/records", "")
	r.expect(404, "not_found", "OPTIONS", "/", "")
	r.expect(404, "not_found", "GET", "/", "")
	r.expect(404, "not_found", "GET", "//v1/records/a", "")
}

// TestPanics: a panic is a 500 with its stack in the log; when the answer had begun, the connection breaks.
func TestPanics(t *testing.T) {
	r := newRig(t)
	r.fake.before = func(context.Context, string, string) error { panic("boom") }
	answer := r.expect(500, "internal", "GET", "/v1/records/a", "")
	if strings.Contains(answer.Body.String(), "boom") || !strings.Contains(r.log.String(), "boom") || !strings.Contains(r.log.String(), "exchange_test.go") {
		t.Errorf("answer %s, log %s", answer.Body, r.log)
	}
	answer = r.expect(200, "", "POST", "/v1/records", `[{"key":"a"}]`)
	if want := `"status":500,"key":"a","error":{"code":"internal"`; !strings.Contains(answer.Body.String(), want) {
		t.Errorf("bulk: %s", answer.Body)
	}
	r.public.GET("/half", func(c echo.Context) error {
		c.Response().Header().Set("Content-Length", "10")
		_, _ = c.Response().Write([]byte("half"))
		_ = http.NewResponseController(c.Response()).Flush()
		panic("boom")
	})
	r.astray = true
	server := r.listen()
	defer server.Close()
	response, err := server.Client().Get(server.URL + "/half")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Error("half an answer came to an orderly end")
	}
}

// TestStalledBody: a client that stops in the middle of a body gets 408 within the request timeout, and its connection ends.
func TestStalledBody(t *testing.T) {
	r := newRig(t)
	r.limit(func(l *Limits) { l.RequestTimeout = 50 * time.Millisecond })
	server := r.listen()
	defer server.Close()
	reader, writer := io.Pipe()
	defer writer.Close()
	go func() { _, _ = writer.Write([]byte(`{"v":`)) }()
	request, _ := http.NewRequestWithContext(t.Context(), "PUT", server.URL+"/v1/records/a", reader)
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != 408 || !response.Close || !strings.Contains(string(body), "request_timeout") {
		t.Errorf("%d %v %s", response.StatusCode, response.Header, body)
	}
}

// TestSlowStoreAfterBody: the deadline for the body does not cut off a request whose body has arrived.
func TestSlowStoreAfterBody(t *testing.T) {
	r := newRig(t)
	r.limit(func(l *Limits) { l.RequestTimeout = 50 * time.Millisecond })
	r.fake.before = func(ctx context.Context, _, _ string) error {
		<-ctx.Done()
		return errors.Join(store.ErrUnknown, ctx.Err())
	}
	server := r.listen()
	defer server.Close()
	for range 2 {
		response, err := server.Client().Post(server.URL+"/v1/records", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if !strings.Contains(string(body), "outcome_unknown") {
			t.Errorf("%d %s", response.StatusCode, body)
		}
	}
}

// TestClientGone: a client that hangs up is 499 in the log.
func TestClientGone(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.fake.before = func(ctx context.Context, _, _ string) error {
		cancel()
		<-ctx.Done()
		return errors.Join(store.ErrUnavailable, ctx.Err())
	}
	request := httptest.NewRequestWithContext(ctx, "GET", "/v1/records/a", nil)
	r.Public().ServeHTTP(httptest.NewRecorder(), request)
	if !strings.Contains(r.log.String(), `"status":499`) || !strings.Contains(r.log.String(), "client_closed_request") {
		t.Errorf("log: %s", r.log)
	}
}
