package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"keyrange/store"
)

// TestManyKeys: the records in the order of the keys, each once, and the keys that have none.
func TestManyKeys(t *testing.T) {
	r := newRig(t)
	for _, key := range []string{"a", "b", "a%2Fb", "%C3%A9"} {
		r.expect(201, "", "PUT", "/v1/records/"+key, `{"d":12.50}`)
	}
	const want = `{"items":[{"key":"b","d":12.50},{"key":"a/b","d":12.50},{"key":"é","d":12.50}],"missing":["no\n","no \""]}` + "\n"
	get := "/v1/records?key=b&key=no%0A&key=a%2Fb&key=b&key=%C3%A9&key=no+%22&key=no%0A"
	items := []string{`"b"`, `"no\n"`, `"a\/b"`, `"b"`, `"\u00e9"`, `"no \""`, `"no\n"`}
	array, _ := bulkBody(items, false)
	lines, headers := bulkBody(items, true)
	for name, answer := range map[string]*httptest.ResponseRecorder{
		"query": r.expect(200, "", "GET", get, ""),
		"array": r.expect(200, "", "POST", "/v1/records?op=get", array),
		"lines": r.expect(200, "", "POST", "/v1/records?op=get", lines+"\n\n", headers...),
	} {
		header := answer.Header()
		if answer.Body.String() != want || header.Get("Content-Type") != "application/json" || header.Get("Content-Length") != fmt.Sprint(len(want)) || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v %s", name, header, answer.Body)
		}
	}
	if head := r.expect(200, "", "HEAD", get, ""); head.Body.Len() > 0 || head.Header().Get("Content-Length") != fmt.Sprint(len(want)) {
		t.Errorf("HEAD: %v %s", head.Header(), head.Body)
	}
	if got := r.expect(200, "", "POST", "/v1/records?op=get", `[]`).Body.String(); got != `{"items":[],"missing":[]}`+"\n" {
		t.Errorf("no keys: %s", got)
	}
	if !strings.Contains(r.log.String(), `"items":5`) {
		t.Errorf("log: %s", r.log)
	}
}

// TestManyKeysRefused: bad queries name what is wrong with them.
func TestManyKeysRefused(t *testing.T) {
	r := newRig(t)
	for query, code := range map[string]string{
		"key=": "invalid_key", "key=a&key=" + strings.Repeat("k", 513): "invalid_key", "key=%FF": "invalid_key", "key=a%00": "invalid_key",
		"key=a&limit=1": "invalid_parameter", "key=a&Key=b": "invalid_parameter", "keys=a": "invalid_parameter", "key=%zz": "invalid_parameter", "key=a;b=c": "invalid_parameter",
		strings.Repeat("key=a&", 101): "invalid_parameter",
	} {
		r.expect(400, code, "GET", "/v1/records?"+query, "")
	}
	longest := strings.TrimSuffix(strings.Repeat("key="+strings.Repeat("%6B", 512)+"&", 100), "&")
	r.expect(200, "", "GET", "/v1/records?"+longest, "")
	r.expect(414, "query_too_long", "GET", "/v1/records?"+longest+"&k", "")
	r.expect(414, "query_too_long", "GET", "/v1/records/a?"+strings.Repeat("k", maxQueryBytes+1), "")
	for _, c := range [][2]string{{"GET", ""}, {"HEAD", ""}, {"PUT", "{}"}, {"PATCH", "{}"}, {"DELETE", ""}} {
		answer := r.do(c[0], "/v1/records/a?version=1", c[1])
		if answer.Code != 400 || c[0] != "HEAD" && !strings.Contains(answer.Body.String(), `no parameter \"version\"`) {
			t.Errorf("%s: %d %s", c[0], answer.Code, answer.Body)
		}
	}
	r.expect(404, "record_not_found", "GET", "/v1/records/a?", "")
}

// largeRig has records of 30 KiB under the keys k-0, k-1 ..., and their keys as an array.
func largeRig(t *testing.T, n int) (r *rig, body string) {
	t.Helper()
	r = newRig(t)
	var keys []string
	for i := range n {
		r.expect(201, "", "PUT", fmt.Sprintf("/v1/records/k-%d", i), `{"v":"`+strings.Repeat("x", 30<<10)+`"}`)
		keys = append(keys, fmt.Sprintf("k-%d", i))
	}
	text, _ := json.Marshal(keys)
	return r, string(text)
}

// TestManyKeysWindow: a large answer is complete and in order, however the store answers, and at most a window is read at
// once.
func TestManyKeysWindow(t *testing.T) {
	r, body := largeRig(t, 300)
	var now, most atomic.Int64
	r.fake.before = func(_ context.Context, _, key string) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		if strings.HasSuffix(key, "7") {
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	answer := r.expect(200, "", "POST", "/v1/records?op=get", body)
	var got struct {
		Items   []struct{ Key, V string }
		Missing []string
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for i, item := range got.Items {
		if item.Key != fmt.Sprintf("k-%d", i) || len(item.V) != 30<<10 {
			t.Fatalf("item %d is %s", i, item.Key)
		}
	}
	if len(got.Items) != 300 || len(got.Missing) != 0 || most.Load() > bulkWindowItems {
		t.Errorf("%d items, %v missing, %d at once", len(got.Items), got.Missing, most.Load())
	}
}

// TestManyKeysFail: a read that fails fails the answer, which must never look complete: a problem document when nothing was
// sent, a broken connection afterwards.
func TestManyKeysFail(t *testing.T) {
	r, body := largeRig(t, 40)
	server := r.listen()
	defer server.Close()
	for _, c := range []struct {
		bad    string
		status int
	}{{"k-0", 503}, {"k-39", 200}} {
		r.fake.before = func(_ context.Context, _, key string) error {
			if key == c.bad {
				return store.ErrUnavailable
			}
			return nil
		}
		for _, coding := range []string{"identity", "gzip"} {
			request, _ := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/records?op=get", strings.NewReader(body))
			request.Header.Set("Accept-Encoding", coding)
			response, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if response.StatusCode != c.status || (err != nil) != (c.status == 200) || c.status == 503 && !strings.Contains(string(text), `"code":"unavailable"`) {
				t.Errorf("%s, %s: %d, %v after %d bytes", c.bad, coding, response.StatusCode, err, len(text))
			}
		}
	}
	if !strings.Contains(r.log.String(), `"code":"unavailable","cause":"the answer was cut off`) {
		t.Errorf("the cause is not in the log: %s", r.log)
	}
}

// TestManyKeysPanicAndTimeout: what befalls one read is answered like that of a single one.
func TestManyKeysPanicAndTimeout(t *testing.T) {
	r := newRig(t)
	r.fake.before = func(context.Context, string, string) error { panic("boom") }
	r.expect(500, "internal", "GET", "/v1/records?key=a&key=b", "")
	r.limit(func(l *Limits) { l.RequestTimeout = time.Millisecond })
	r.fake.before = func(ctx context.Context, _, _ string) error {
		<-ctx.Done()
		return errors.Join(store.ErrUnavailable, ctx.Err())
	}
	r.expect(504, "deadline_exceeded", "GET", "/v1/records?key=a&key=b", "")
}

// TestManyKeysClientGone: when the client hangs up, the reads end.
func TestManyKeysClientGone(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.fake.before = func(ctx context.Context, _, _ string) error {
		cancel()
		<-ctx.Done()
		return errors.Join(store.ErrUnavailable, ctx.Err())
	}
	request := httptest.NewRequestWithContext(ctx, "GET", "/v1/records?key=a&key=b", nil)
	r.Public().ServeHTTP(httptest.NewRecorder(), request)
	if !strings.Contains(r.log.String(), "client_closed_request") {
		t.Errorf("log: %s", r.log)
	}
}
