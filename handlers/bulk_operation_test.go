package handlers

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"keyrange/store"
)

// outcome is a result in short: its status, and its code when it failed.
func (b bulkResult) outcome() string {
	if b.Error != nil {
		return fmt.Sprint(b.Status, " ", b.Error.Code)
	}
	return fmt.Sprint(b.Status)
}

// wantOutcomes compares results with their short forms.
func wantOutcomes(t *testing.T, got []bulkResult, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d results, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if got[i].outcome() != want[i] {
			t.Errorf("item %d: %s, want %s", i, got[i].outcome(), want[i])
		}
	}
}

// bulkSender sends items with an op and returns the results.
type bulkSender func(op string, items ...string) []bulkResult

// forBothOps runs a test with arrays and with streams.
func forBothOps(t *testing.T, test func(t *testing.T, r *rig, send bulkSender)) {
	for name, stream := range map[string]bool{"array": false, "stream": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			test(t, r, func(op string, items ...string) []bulkResult {
				body, headers := bulkBody(items, stream)
				return results(t, r.expect(200, "", "POST", "/v1/records?op="+op, body, headers...).Body.String())
			})
		})
	}
}

// TestBulkPut: each record is created or replaced, in the order of the items with its key, and bad ones fail alone.
func TestBulkPut(t *testing.T) {
	forBothOps(t, func(t *testing.T, r *rig, send bulkSender) {
		r.expect(201, "", "PUT", "/v1/records/old", `{"v":1}`)
		r.fake.before = func(_ context.Context, _, key string) error {
			return map[string]error{"down": fmt.Errorf("secret: %w", store.ErrUnavailable), "lost": store.ErrUnknown}[key]
		}
		got := send("put", `{"key":"old","v":2}`, `{"key":"new", "d":12.50}`, `{"v":1}`, `{"key":"new","d":2}`, `7`, `{"key":1}`, `{"key":"a","v":1,"v":2}`,
			`{"key":"down"}`, `{"key":"lost"}`, `{"key":"big","v":"`+strings.Repeat("x", 40<<10)+`"}`)
		wantOutcomes(t, got, "200", "201", "400 invalid_key", "200", "400 invalid_json", "400 invalid_key", "400 invalid_json",
			"503 unavailable", "503 outcome_unknown", "413 body_too_large")
		if got[0].ETag != `"1-2"` || got[3].ETag != `"2-2"` || got[3].Key != "new" || r.fake.count() != 2 {
			t.Errorf("%+v, %d records", got, r.fake.count())
		}
		if body := r.do("GET", "/v1/records/new", "").Body.String(); body != `{"key":"new","d":2}` {
			t.Errorf("the last of two is not what is stored: %s", body)
		}
		// The same again: nothing is lost, nothing is there twice.
		wantOutcomes(t, send("put", `{"key":"old","v":2}`, `{"key":"new","d":2}`), "200", "200")
	})
}

// TestBulkPutOrder: many items with few keys are stored in their order, at most a window at once.
func TestBulkPutOrder(t *testing.T) {
	forBothOps(t, func(t *testing.T, r *rig, send bulkSender) {
		var now, most atomic.Int64
		r.fake.before = func(context.Context, string, string) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			now.Add(-1)
			return nil
		}
		var items []string
		for i := range 700 {
			items = append(items, fmt.Sprintf(`{"key":"k-%d","i":%d}`, i%7, i))
		}
		for i, got := range send("put", items...) {
			if want := map[bool]int{true: 201, false: 200}[i < 7]; got.Status != want || got.ETag != fmt.Sprintf(`"%s-%d"`, strings.Split(got.ETag[1:], "-")[0], i/7+1) {
				t.Fatalf("result %d: %+v", i, got)
			}
		}
		for i := range 7 {
			if body := r.do("GET", fmt.Sprintf("/v1/records/k-%d", i), "").Body.String(); body != fmt.Sprintf(`{"key":"k-%d","i":%d}`, i, 693+i) {
				t.Errorf("not the last: %s", body)
			}
		}
		if most.Load() > bulkWindowItems {
			t.Errorf("%d at once", most.Load())
		}
	})
}

// TestBulkDelete: an item is a key, or a key with the etag that its record must have.
func TestBulkDelete(t *testing.T) {
	forBothOps(t, func(t *testing.T, r *rig, send bulkSender) {
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			r.expect(201, "", "PUT", "/v1/records/"+key, `{}`)
		}
		got := send("delete", `"a"`, `"a"`, `{"key":"b","etag":"\"2-1\""}`, `{"key":"c","etag":"\"2-1\""}`, `{"key":"d"}`, `"absent"`, `{"key":"absent","etag":"*"}`,
			`7`, `null`, `""`, `{"key":7}`, `{"key":"e","tag":"x"}`, `{"key":"e","etag":"5-1"}`, `{"key":"e","etag":null,"key":"e"}`, `{"etag":"*"}`, `["e"]`, `"\ud800"`)
		wantOutcomes(t, got, "204", "404 record_not_found", "204", "412 precondition_failed", "204", "404 record_not_found", "412 precondition_failed",
			"400 invalid_key", "400 invalid_key", "400 invalid_key", "400 invalid_json", "400 invalid_json", "400 invalid_etag", "400 invalid_json", "400 invalid_json", "400 invalid_key", "400 invalid_json")
		if got[0].Key != "a" || got[0].ETag != "" || r.fake.count() != 2 {
			t.Errorf("%+v, %d records", got, r.fake.count())
		}
	})
}

// TestBulkRefused: what is wrong with the whole request is answered before the first item.
func TestBulkRefused(t *testing.T) {
	r := newRig(t)
	r.expect(201, "", "PUT", "/v1/records/a", `{}`)
	for _, c := range []struct {
		status                    int
		code, query, body, header string
	}{
		{400, "invalid_parameter", "op=upsert", `[]`, ""},
		{400, "invalid_parameter", "op=", `[]`, ""},
		{400, "invalid_parameter", "op=put&op=delete", `[]`, ""},
		{400, "invalid_parameter", "op=put&x=1", `[]`, ""},
		{400, "invalid_parameter", "key=a", `{}`, ""},
		{400, "invalid_json", "op=put", `{"key":"a","v":1}`, ""},
		{400, "invalid_json", "op=put", ``, ""},
		{400, "invalid_json", "op=put", `[{"key":"a","v":1}`, ""},
		{400, "invalid_json", "op=delete", `"a"`, ""},
		{400, "invalid_json", "op=delete", `["a"] x`, ""},
		{400, "invalid_json", "op=get", `"a"`, ""},
		{400, "invalid_json", "op=get", `["a",]`, ""},
		{400, "invalid_key", "op=get", `["a",7]`, ""},
		{400, "invalid_key", "op=get", `["a",""]`, ""},
		{400, "invalid_json", "op=get", "\"a\"\n\"b", ndjson},
		{400, "invalid_idempotency_key", "op=put", `[{"key":"a","v":1}]`, "Idempotency-Key: x"},
		{400, "invalid_idempotency_key", "op=delete", `["a"]`, "Idempotency-Key: x"},
		{400, "invalid_idempotency_key", "op=get", `["a"]`, "Idempotency-Key: x"},
		{400, "unsupported_condition", "op=delete", `["a"]`, "If-Match: *"},
		{415, "unsupported_media_type", "op=delete", `["a"]`, "Content-Type: text/plain"},
		{406, "not_acceptable", "op=delete", `["a"]`, "Accept: application/x-ndjson"},
		{413, "bulk_too_large", "op=put", `[` + strings.Repeat(" ", 256<<10) + `]`, ""},
		{413, "bulk_too_large", "op=get", `[` + strings.Repeat(`"a",`, maxBodyKeys) + `"a"]`, ""},
	} {
		var headers []string
		if c.header != "" {
			headers = []string{c.header}
		}
		r.expect(c.status, c.code, "POST", "/v1/records?"+c.query, c.body, headers...)
	}
	answer := r.expect(400, "invalid_key", "POST", "/v1/records?op=get", `["a",7]`)
	if !strings.Contains(answer.Body.String(), "item 2: ") {
		t.Errorf("which item? %s", answer.Body)
	}
	if etag := r.do("GET", "/v1/records/a", "").Header().Get("ETag"); etag != `"1-1"` || r.fake.count() != 1 {
		t.Errorf("a refused bulk did something: %s", etag)
	}
}
