package handlers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"keyrange/store"
)

// TestAnswers keeps the whole answers to the calls of the contract, in the order in which they are made.
func TestAnswers(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name, method, target, body string
		headers                    []string
	}{
		{"post", "POST", "/v1/records", ` {"key":"a/b c","n":9007199254740993,"d":1.10} `, nil},
		{"post_exists", "POST", "/v1/records", `{"key":"a/b c"}`, nil},
		{"post_made_key", "POST", "/v1/records", `{"z":1,"a":{"key":2}}`, nil},
		{"post_array", "POST", "/v1/records", `[{"key":"x"},{"key":"x"},7,{"key":1},{"a":1,"a":2}]`, nil},
		{"post_array_cut_off", "POST", "/v1/records", `[{"key":"y"},`, nil},
		{"post_empty_array", "POST", "/v1/records", ` [ ] `, nil},
		{"post_ndjson", "POST", "/v1/records", "{\"key\":\"l1\"}\r\n\n{\"key\":\n{\"key\":\"l1\"}", []string{"Content-Type: application/x-ndjson"}},
		{"post_empty_ndjson", "POST", "/v1/records", "\n \n", []string{"Content-Type: application/x-ndjson"}},
		{"post_form", "POST", "/v1/records", `{}`, []string{"Content-Type: application/x-www-form-urlencoded"}},
		{"post_duplicate_member", "POST", "/v1/records", `{"v":1,"v":2}`, nil},
		{"get", "GET", "/v1/records/a%2Fb%20c", "", nil},
		{"head", "HEAD", "/v1/records/a%2Fb%20c", "", nil},
		{"get_not_modified", "GET", "/v1/records/a%2Fb%20c", "", []string{`If-None-Match: W/"1-1"`}},
		{"get_absent", "GET", "/v1/records/no", "", nil},
		{"head_absent", "HEAD", "/v1/records/no", "", nil},
		{"get_raw_slash", "GET", "/v1/records/a/b", "", nil},
		{"put_created", "PUT", "/v1/orders/o%221", `{ }`, nil},
		{"put_replaced", "PUT", "/v1/orders/o%221", `{"qty": 1e400}`, []string{`If-Match: "5-1"`}},
		{"put_stale", "PUT", "/v1/orders/o%221", `{}`, []string{`If-Match: "5-1"`}},
		{"put_exists", "PUT", "/v1/orders/o%221", `{}`, []string{"If-None-Match: *"}},
		{"put_mismatch", "PUT", "/v1/orders/o1", `{"order no":"o2"}`, nil},
		{"patch", "PATCH", "/v1/orders/o%221", `{"note":"x", "qty":null}`, []string{"Content-Type: application/merge-patch+json"}},
		{"patch_minimal", "PATCH", "/v1/orders/o%221", `{"note":null}`, []string{"Prefer: return=minimal"}},
		{"patch_absent", "PATCH", "/v1/orders/no", `{"note":"x"}`, nil},
		{"patch_mismatch", "PATCH", "/v1/orders/o%221", `{"order no":null}`, nil},
		{"patch_media", "PATCH", "/v1/orders/o%221", `[]`, []string{"Content-Type: application/json-patch+json"}},
		{"many", "GET", "/v1/orders?key=o%221&key=no&key=o%221", "", nil},
		{"bulk_put", "POST", "/v1/orders?op=put", `[{"order no":"o\"1","n":1},{"order no":"o2"},{"n":1}]`, nil},
		{"bulk_get", "POST", "/v1/orders?op=get", `["o2","no"]`, nil},
		{"bulk_delete", "POST", "/v1/orders?op=delete", `["o2","o2",{"key":"o\"1","etag":"\"1-1\""}]`, nil},
		{"bad_parameter", "POST", "/v1/orders?upsert=true", `[]`, nil},
		{"bad_accept", "GET", "/v1/orders/o%221", "", []string{"Accept: text/html"}},
		{"delete", "DELETE", "/v1/orders/o%221", "", nil},
		{"delete_absent", "DELETE", "/v1/orders/o%221", "", nil},
		{"ttl", "PUT", "/v1/orders/mortal", `{"v":1}`, []string{"TTL: 3600"}},
		{"ttl_bad", "PUT", "/v1/orders/mortal", `{"v":1}`, []string{"TTL: 0"}},
		{"no_collection", "GET", "/v1/nothing/a", "", nil},
		{"no_route", "GET", "/v2/records", "", nil},
		{"no_method", "POST", "/v1/records/a", "{}", nil},
	} {
		golden(t, c.name, transcript(r.do(c.method, c.target, c.body, c.headers...)))
	}
}

// TestKeys: a key is decoded once, from the escaped path.
func TestKeys(t *testing.T) {
	r := newRig(t)
	for _, escaped := range []string{"a%2Fb", "a%252Fb", "a%2fb", "+", "%2B", "%20", "%2E%2E", "a%3Fb", "%C3%A9", ":x", "a;b,c", "%25"} {
		path := "/v1/records/" + escaped
		answer := r.do("PUT", path, `{"path":"`+escaped+`"}`)
		if answer.Code/100 != 2 {
			t.Fatalf("PUT %s: %d %s", path, answer.Code, answer.Body)
		}
		if got := r.do("GET", path, "").Body.String(); got != answer.Body.String() {
			t.Errorf("GET %s: %s, want %s", path, got, answer.Body)
		}
		if location := answer.Header().Get("Location"); location != "" {
			if got := r.do("GET", location, "").Body.String(); got != answer.Body.String() {
				t.Errorf("GET %s, the location of %s: %s", location, path, got)
			}
		}
	}
	// %2F and %2f are one key, + and %2B are one key, all else is distinct.
	if n := r.fake.count(); n != 10 {
		t.Errorf("%d records, want 10", n)
	}
	if got := location("records", ".."); got != "/v1/records/%2E%2E" {
		t.Errorf("location of ..: %s", got)
	}
	long := strings.Repeat("k", store.MaxKeyBytes)
	r.expect(201, "", "PUT", "/v1/records/"+long, `{}`)
	for _, bad := range []string{"", "a/b", "a/", "/", long + "k", strings.Repeat("k", 4000), "a%00b", "%FF", "a%2F/b"} {
		r.expect(400, "invalid_key", "GET", "/v1/records/"+bad, "")
		r.expect(400, "invalid_key", "PUT", "/v1/records/"+bad, `{}`)
	}
	r.expect(404, "collection_not_found", "GET", "/v1//a", "")
	r.expect(404, "collection_not_found", "GET", "/v1/records%2Fa/b", "")
	r.expect(404, "collection_not_found", "POST", "/v1/Records", "{}")
	r.expect(404, "record_not_found", "GET", "/v1/%72ecords/a", "")
	request := httptest.NewRequest("GET", "/v1/records/a", nil)
	request.URL.Path, request.URL.RawPath = "/v1/records/%zz", "/v1/records/%zz"
	answer := httptest.NewRecorder()
	r.Public().ServeHTTP(answer, request)
	if answer.Code != 404 {
		// net/http never lets a malformed escape in; a raw path that does not fit counts for nothing.
		t.Errorf("malformed raw path: %d %s", answer.Code, answer.Body)
	}
	if _, err := decodeKey("%zz"); !errors.Is(err, errInvalidKey) {
		t.Errorf("malformed escape: %v", err)
	}
}

// TestRefusedWritesNothing: the right code, and no record.
func TestRefusedWritesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		status             int
		code, body, header string
	}{
		"empty":            {400, "invalid_json", "", ""},
		"blank":            {400, "invalid_json", " \n", ""},
		"duplicate":        {400, "invalid_json", `{"v":1,"v":2}`, ""},
		"duplicate escape": {400, "invalid_json", `{"v":1,"\u0076":2}`, ""},
		"duplicate deep":   {400, "invalid_json", `{"a":[{"b":{"c":1,"c":2}}]}`, ""},
		"duplicate key":    {400, "invalid_json", `{"key":"a","key":"a"}`, ""},
		"two values":       {400, "invalid_json", `{"v":1}{"v":2}`, ""},
		"trailing":         {400, "invalid_json", `{"v":1} x`, ""},
		"cut off":          {400, "invalid_json", `{"v":`, ""},
		"comma":            {400, "invalid_json", `{"v":1,}`, ""},
		"number":           {400, "invalid_json", `1`, ""},
		"string":           {400, "invalid_json", `"key"`, ""},
		"null":             {400, "invalid_json", `null`, ""},
		"bad UTF-8":        {400, "invalid_json", "{\"v\":\"\xff\"}", ""},
		"lone surrogate":   {400, "invalid_json", `{"v":"\ud800"}`, ""},
		"byte order mark":  {400, "invalid_json", "\ufeff{}", ""},
		"too deep":         {400, "invalid_json", `{"a":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}`, ""},
		"key object":       {400, "invalid_key", `{"key":{"$ne":""}}`, ""},
		"key null":         {400, "invalid_key", `{"key":null}`, ""},
		"key number":       {400, "invalid_key", `{"k\u0065y":1}`, ""},
		"key empty":        {400, "invalid_key", `{"key":""}`, ""},
		"key NUL":          {400, "invalid_key", `{"key":"a\u0000"}`, ""},
		"key long":         {400, "invalid_key", `{"key":"` + strings.Repeat("k", 513) + `"}`, ""},
		"text":             {415, "unsupported_media_type", `{}`, "Content-Type: text/plain"},
		"form":             {415, "unsupported_media_type", `{}`, "Content-Type: application/x-www-form-urlencoded"},
		"malformed type":   {415, "unsupported_media_type", `{}`, "Content-Type: /"},
		"compressed":       {415, "unsupported_media_type", `{}`, "Content-Encoding: gzip"},
		"too large":        {413, "body_too_large", `{"a":"` + strings.Repeat("x", 32<<10) + `"}`, ""},
		"condition":        {400, "unsupported_condition", `{}`, `If-Match: "1-1"`},
		"array cut off":    {400, "invalid_json", `[{"key":"a"},{"key":"b"}`, ""},
		"array trailing":   {400, "invalid_json", `[{"key":"a"}] ]`, ""},
		"array comma":      {400, "invalid_json", `[{"key":"a"},]`, ""},
		"array bad UTF-8":  {400, "invalid_json", "[{\"key\":\"a\"},{\"v\":\"\xff\"}]", ""},
		"array too large":  {413, "bulk_too_large", `[{"key":"a"}` + strings.Repeat(" ", 256<<10) + `]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			headers := []string{c.header}
			if c.header == "" {
				headers = nil
			}
			r.expect(c.status, c.code, "POST", "/v1/records", c.body, headers...)
			if n := r.fake.count(); n != 0 {
				t.Errorf("%d records were written", n)
			}
		})
	}
}

// TestMediaTypes lists what counts as JSON.
func TestMediaTypes(t *testing.T) {
	r := newRig(t)
	for _, media := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json", ""} {
		r.expect(201, "", "POST", "/v1/records", `{}`, "Content-Type: "+media)
		r.expect(201, "", "PUT", "/v1/records/a", `{}`, "Content-Type: "+media)
		r.expect(204, "", "DELETE", "/v1/records/a", "")
	}
	r.expect(415, "unsupported_media_type", "PUT", "/v1/records/a", `{}`, "Content-Type: application/x-ndjson")
}

// TestSizes: a body ends at the smaller of two limits, whether or not it says its length, and is not read beyond.
func TestSizes(t *testing.T) {
	for name, max := range map[string]int64{"configured": 64 << 10, "smallest node": 16 << 10} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.fake.max = max
			most := min(max, 32<<10)
			for _, size := range []int64{most, most + 1} {
				body := `{"key":"a","v":"` + strings.Repeat("x", int(size)-len(`{"key":"a","v":""}`)) + `"}`
				for _, declared := range []bool{true, false} {
					for _, method := range []string{"PUT", "POST"} {
						target := map[string]string{"PUT": "/v1/records/a", "POST": "/v1/records"}[method]
						read := &countingReader{Reader: strings.NewReader(body + strings.Repeat(" ", 1<<20))}
						if size == most {
							read.Reader = strings.NewReader(body)
						}
						request := httptest.NewRequest(method, target, read)
						if request.ContentLength = -1; declared {
							request.ContentLength = size
						}
						answer := r.serve(request)
						r.do("DELETE", "/v1/records/a", "")
						if want := map[bool]int{true: 201, false: 413}[size == most]; answer.Code != want {
							t.Errorf("%s of %d bytes, declared %t: %d, want %d: %s", method, size, declared, answer.Code, want, answer.Body)
						}
						if read.n > 2*int64(firstReadBytes) {
							t.Errorf("%s of %d bytes, declared %t: %d bytes were read", method, size, declared, read.n)
						}
					}
				}
			}
		})
	}
	r := newRig(t)
	r.fake.max = 20
	r.expect(413, "body_too_large", "PUT", "/v1/records/"+strings.Repeat("k", 30), `{"a":1}`)
	if r.fake.count() != 0 {
		t.Error("a record that only became too large by its key was written")
	}
}

// countingReader counts what is read of it.
type countingReader struct {
	io.Reader
	n int64
}

// Read counts what it hands on.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// TestSlowBody: a body that comes byte by byte is the same body, and one that breaks off is not a record.
func TestSlowBody(t *testing.T) {
	r := newRig(t)
	for _, body := range []string{` {"key":"a","v":[1,2]}`, ` [{"key":"b"},{"key":"c"}]`} {
		request := httptest.NewRequest("POST", "/v1/records", iotest.OneByteReader(strings.NewReader(body)))
		answer := r.serve(request)
		if answer.Code/100 != 2 {
			t.Errorf("%s: %d %s", body, answer.Code, answer.Body)
		}
	}
	for err, want := range map[error]int{io.ErrUnexpectedEOF: statusClientClosed, errors.New("bad chunk"): 400} {
		request := httptest.NewRequest("PUT", "/v1/records/z", io.MultiReader(strings.NewReader(`{}`), iotest.ErrReader(err)))
		r.astray = want == statusClientClosed // nobody sees that answer
		answer := r.serve(request)
		if answer.Code != want {
			t.Errorf("body ends with %v: %d, want %d", err, answer.Code, want)
		}
	}
	if n := r.fake.count(); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
}

// TestConditions covers If-Match and If-None-Match on every method.
func TestConditions(t *testing.T) {
	r := newRig(t)
	r.expect(412, "precondition_failed", "PUT", "/v1/records/a", `{}`, "If-Match: *")
	r.expect(412, "precondition_failed", "PUT", "/v1/records/a", `{}`, `If-Match: "1-1"`)
	r.expect(412, "precondition_failed", "DELETE", "/v1/records/a", "", `If-Match: "1-1"`)
	r.expect(201, "", "PUT", "/v1/records/a", `{}`, "If-None-Match: *")
	answer := r.expect(412, "precondition_failed", "PUT", "/v1/records/a", `{}`, "If-None-Match: *")
	if etag := answer.Header().Get("ETag"); etag != `"1-1"` {
		t.Errorf("ETag of the record that is there: %s", etag)
	}
	for _, strange := range []string{`W/"1-1"`, `"1-01"`, `"+1-1"`, `"abc"`, `"1-1-1"`, `""`, `"0-0"`, `"1-2", W/"1-1"`} {
		r.expect(412, "precondition_failed", "PUT", "/v1/records/a", `{}`, "If-Match: "+strange)
		r.expect(412, "precondition_failed", "DELETE", "/v1/records/a", "", "If-Match: "+strange)
		r.expect(412, "precondition_failed", "GET", "/v1/records/a", "", "If-Match: "+strange)
	}
	for _, malformed := range []string{`1-1`, `"1-1`, `"1-1" "1-2"`, `w/"1-1"`, `*, "1-1"`, `"1 1"`, ``, `,`, strings.Repeat(`"1-1",`, 101)} {
		r.expect(400, "invalid_etag", "PUT", "/v1/records/a", `{}`, "If-Match: "+malformed)
		r.expect(400, "invalid_etag", "DELETE", "/v1/records/a", "", "If-Match: "+malformed)
		r.expect(400, "invalid_etag", "GET", "/v1/records/a", "", "If-Match: "+malformed)
	}
	for _, headers := range [][]string{{`If-None-Match: "1-1"`}, {"If-None-Match: *", "If-Match: *"}, {"If-None-Match: nonsense"},
		{"If-Unmodified-Since: Sun, 01 Mar 2026 12:00:01 GMT"}} {
		r.expect(400, "unsupported_condition", "PUT", "/v1/records/a", `{}`, headers...)
		r.expect(400, "unsupported_condition", "DELETE", "/v1/records/a", "", headers...)
	}
	r.expect(200, "", "PUT", "/v1/records/a", `{}`, `If-Match: "9-9" , "1-1"`)
	r.expect(200, "", "PUT", "/v1/records/a", `{}`, `If-Match: "9-9"`, `If-Match: "1-2"`)
	r.expect(200, "", "PUT", "/v1/records/a", `{}`, `If-Match: *`)
	for _, list := range []string{`"1-4"`, `W/"1-4"`, `"x,y", "1-4"`, `*`} {
		answer := r.expect(304, "", "GET", "/v1/records/a", "", "If-None-Match: "+list)
		if answer.Header().Get("ETag") != `"1-4"` || answer.Body.Len() > 0 {
			t.Errorf("304: %v %q", answer.Header(), answer.Body)
		}
		r.expect(304, "", "HEAD", "/v1/records/a", "", "If-None-Match: "+list)
	}
	for _, list := range []string{`"1-3"`, `nonsense`, ``} {
		r.expect(200, "", "GET", "/v1/records/a", "", "If-None-Match: "+list)
	}
	r.expect(200, "", "GET", "/v1/records/a", "", `If-Match: "1-4"`, "If-Modified-Since: Fri, 01 Jan 2027 00:00:00 GMT")
	r.expect(404, "record_not_found", "GET", "/v1/records/b", "", "If-None-Match: *")
	r.expect(204, "", "DELETE", "/v1/records/a", "", `If-Match: "1-4"`)
}

// TestHeadLikeGet: the headers of GET, no body, also where GET would be compressed.
func TestHeadLikeGet(t *testing.T) {
	for _, coding := range []string{"identity", "gzip"} {
		t.Run(coding, func(t *testing.T) { headLikeGet(t, coding) })
	}
}

func headLikeGet(t *testing.T, coding string) {
	r := newRig(t)
	r.expect(201, "", "PUT", "/v1/records/a", `{"v":"`+strings.Repeat("x", 5000)+`"}`)
	server := r.listen()
	defer server.Close()
	var headers [2]http.Header
	for i, method := range []string{"GET", "HEAD"} {
		request, _ := http.NewRequestWithContext(t.Context(), method, server.URL+"/v1/records/a", nil)
		request.Header.Set("Accept-Encoding", coding)
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if method == "HEAD" && len(body) > 0 {
			t.Errorf("HEAD has a body of %d bytes", len(body))
		}
		headers[i] = response.Header
		if coding == "gzip" && method == "GET" {
			headers[i].Del("Content-Length") // net/http may know it at the end
		}
		for _, volatile := range []string{"Date", "X-Request-Id"} {
			headers[i].Del(volatile)
		}
	}
	for name := range headers[0] {
		if headers[0].Get(name) != headers[1].Get(name) {
			t.Errorf("%s: %q with GET, %q with HEAD", name, headers[0].Get(name), headers[1].Get(name))
		}
	}
	compressed := headers[1].Get("Content-Encoding") == "gzip"
	if compressed != (coding == "gzip") || compressed == (headers[1].Get("Content-Length") != "") || len(headers[0]) != len(headers[1]) {
		t.Errorf("headers of HEAD: %v", headers[1])
	}
}

// TestMadeKeys: a made key that exists is made again, a few times.
func TestMadeKeys(t *testing.T) {
	r := newRig(t)
	for _, taken := range []string{"made-1", "made-2", "made-4", "made-5", "made-6", "made-7"} {
		r.expect(201, "", "PUT", "/v1/records/"+taken, `{}`)
	}
	answer := r.expect(201, "", "POST", "/v1/records", `{"v":1}`)
	if answer.Body.String() != `{"key":"made-3","v":1}` || answer.Header().Get("Location") != "/v1/records/made-3" {
		t.Errorf("%v %s", answer.Header(), answer.Body)
	}
	r.expect(503, "busy", "POST", "/v1/records", `{"v":1}`)
	r.options.NewKey = func() (string, error) { return "", errors.New("the clock went back") }
	r.expect(503, "unavailable", "POST", "/v1/records", `{}`)
}

// TestRequestTimeout: every request has a deadline, and a read that ran into it is 504.
func TestRequestTimeout(t *testing.T) {
	r := newRig(t)
	r.limit(func(l *Limits) { l.RequestTimeout = 1 })
	r.fake.before = func(ctx context.Context, _, _ string) error {
		<-ctx.Done()
		return errors.Join(store.ErrUnavailable, ctx.Err())
	}
	r.expect(504, "deadline_exceeded", "GET", "/v1/records/a", "")
	answer := r.expect(503, "unavailable", "DELETE", "/v1/records/a", "")
	if answer.Header().Get("Retry-After") != "1" {
		t.Errorf("headers: %v", answer.Header())
	}
	r.fake.before = func(ctx context.Context, _, _ string) error {
		<-ctx.Done()
		return errors.Join(store.ErrUnknown, ctx.Err())
	}
	r.expect(503, "outcome_unknown", "PUT", "/v1/records/a", "{}")
}
