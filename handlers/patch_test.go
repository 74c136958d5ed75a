package handlers

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"keyrange/store"
)

// mergeCases are a document, a patch and what becomes of them. The first are those of RFC 7396, appendix A, that have an
// object on both sides.
var mergeCases = [][3]string{
	{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
	{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
	{`{"a":"b"}`, `{"a":null}`, `{}`},
	{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
	{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
	{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
	{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
	{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
	{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
	{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	// What the patch does not touch keeps its bytes: numbers, escapes, white space, order.
	{`{"z":18446744073709551615, "d":12.50,"e":1e400 , "u":"\u00fc\/<&>" ,"n":{ "y":9007199254740993,"x":1.10 } }`, `{"n":{"x":2.0}}`,
		`{"z":18446744073709551615, "d":12.50,"e":1e400 , "u":"\u00fc\/<&>" ,"n":{ "y":9007199254740993,"x":2.0 } }`},
	{`{ "a" : 1 , "b" : 2 , "c" : 3 }`, `{}`, `{ "a" : 1 , "b" : 2 , "c" : 3 }`},
	{`{ "a" : 1 , "b" : 2 , "c" : 3 }`, `{"a":null,"d": 12.50}`, `{ "b" : 2 , "c" : 3,"d":12.50 }`},
	{`{ "a" : 1 , "b" : 2 , "c" : 3 }`, `{"b":null,"c":null}`, `{ "a" : 1 }`},
	{`{ "a" : 1 , "b" : 2 }`, `{"a":null,"b":null}`, `{ }`},
	{`{ }`, `{"a":1}`, `{"a":1 }`},
	// Names are compared as strings, and a member that stays keeps its spelling.
	{`{"\u0061":1}`, `{"a":2}`, `{"\u0061":2}`},
	{`{"a":1}`, `{"\u0061":null}`, `{}`},
	{`{"a.b":1,"":2,"é":3}`, `{"":null,"a.b":{"c":1}}`, `{"a.b":{"c":1},"é":3}`},
	// An array is taken whole, with its nulls.
	{`{"a":1}`, `{"a":[1,null,{"x":null}],"b":[null]}`, `{"a":[1,null,{"x":null}],"b":[null]}`},
	{`{"a":{"b":[1,{"c":2}]}}`, `{"a":{"b":{"c":null,"d":{"e":null,"f":[ ]}}}}`, `{"a":{"b":{"d":{"f":[ ]}}}}`},
}

// merged applies a patch that must be valid.
func merged(t testing.TB, document, change string) string {
	t.Helper()
	p, err := parsePatch([]byte(change))
	if err != nil {
		t.Fatalf("%s: %v", change, err)
	}
	out, err := p.mergeInto([]byte(document))
	if err != nil {
		t.Fatalf("%s on %s: %v", change, document, err)
	}
	return string(out)
}

// TestMerge holds what a merge patch does to the bytes of a document.
func TestMerge(t *testing.T) {
	for _, c := range mergeCases {
		if got := merged(t, c[0], c[1]); got != c[2] {
			t.Errorf("%s on %s:\n got %s\nwant %s", c[1], c[0], got, c[2])
		}
	}
}

// TestMergeDeep: a patch as deep as JSON goes is read and applied once, not once per level.
func TestMergeDeep(t *testing.T) {
	const depth = 9_900
	deep := func(leaf string) string {
		return strings.Repeat(`{"a":`, depth) + leaf + strings.Repeat(`,"b":1}`, depth)
	}
	start := time.Now()
	if got := merged(t, deep("1"), deep("2")); got != deep("2") {
		t.Error("a deep patch went wrong")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestPatch: the answers to merge patches of one record.
func TestPatch(t *testing.T) {
	r := newRig(t)
	const path, media = "/v1/records/a", "Content-Type: application/merge-patch+json"
	r.expect(404, "record_not_found", "PATCH", path, `{"n":1}`, media)
	r.expect(412, "precondition_failed", "PATCH", path, `{"n":1}`, media, `If-Match: "1-1"`)
	r.expect(412, "precondition_failed", "PATCH", path, `{"n":1}`, media, `If-Match: *`)
	if r.fake.count() != 0 {
		t.Fatal("a patch created a record")
	}
	r.expect(201, "", "PUT", path, `{"n":1, "big":18446744073709551615}`)
	for i, c := range []struct {
		body, want string
		headers    []string
	}{
		{`{"n":2,"t":"x"}`, `{"key":"a","n":2, "big":18446744073709551615,"t":"x"}`, []string{media}},
		{`{"t":null}`, `{"key":"a","n":2, "big":18446744073709551615}`, []string{"Content-Type: application/json", `If-Match: "1-2"`}},
		{`{}`, `{"key":"a","n":2, "big":18446744073709551615}`, nil},
		{`{"key":"a"}`, `{"key":"a","n":2, "big":18446744073709551615}`, []string{media, "If-Match: *"}},
	} {
		answer := r.expect(200, "", "PATCH", path, c.body, c.headers...)
		if etag := fmt.Sprintf(`"1-%d"`, i+2); answer.Body.String() != c.want || answer.Header().Get("ETag") != etag || answer.Header().Get("Last-Modified") == "" {
			t.Errorf("%s: %s %v, want %s %s", c.body, answer.Body, answer.Header(), c.want, etag)
		}
	}
	answer := r.expect(204, "", "PATCH", path, `{"n":3}`, media, "Prefer: return=minimal")
	if answer.Body.Len() > 0 || answer.Header().Get("ETag") != `"1-6"` || answer.Header().Get("Preference-Applied") != "return=minimal" {
		t.Errorf("minimal: %v %s", answer.Header(), answer.Body)
	}
	r.expect(412, "precondition_failed", "PATCH", path, `{"n":9}`, media, `If-Match: "1-5"`)
	for body, want := range map[string][2]string{
		`{"key":"b"}`: {"422", "key_mismatch"}, `{"key":null}`: {"422", "key_mismatch"}, `{"k\u0065y":null}`: {"422", "key_mismatch"},
		`{"key":{"$ne":""}}`: {"400", "invalid_key"}, `{"key":7}`: {"400", "invalid_key"}, `{"key":""}`: {"400", "invalid_key"},
		``: {"400", "invalid_json"}, `null`: {"400", "invalid_json"}, `7`: {"400", "invalid_json"}, `[{"n":1}]`: {"400", "invalid_json"},
		`{"n":1,"n":2}`: {"400", "invalid_json"}, `{"m":{"n":1,"\u006e":2}}`: {"400", "invalid_json"}, `{"n":1}{"n":2}`: {"400", "invalid_json"},
		"{\"n\":\"\xff\"}": {"400", "invalid_json"}, `{"n":"\ud800"}`: {"400", "invalid_json"}, `{"n":`: {"400", "invalid_json"}, `{"n"}`: {"400", "invalid_json"},
		`{"n":"` + strings.Repeat("x", 32<<10) + `"}`: {"413", "body_too_large"},
	} {
		answer := r.expect(map[string]int{"400": 400, "413": 413, "422": 422}[want[0]], want[1], "PATCH", path, body, media)
		if r.expect(200, "", "GET", path, "").Header().Get("ETag") != `"1-6"` {
			t.Fatalf("%.40s: it was written: %s", body, answer.Body)
		}
	}
	for _, other := range []string{"application/json-patch+json", "application/x-ndjson", "text/plain", "/", "application/vnd.x+json"} {
		answer := r.expect(415, "unsupported_media_type", "PATCH", path, `{"n":9}`, "Content-Type: "+other)
		if answer.Header().Get("Accept-Patch") != "application/merge-patch+json, application/json" {
			t.Errorf("%s: Accept-Patch %q", other, answer.Header().Get("Accept-Patch"))
		}
	}
	r.expect(415, "unsupported_media_type", "PATCH", path, `{"n":9}`, media, "Content-Encoding: gzip")
	r.expect(400, "unsupported_condition", "PATCH", path, `{"n":9}`, media, "If-None-Match: *")
}

// TestPatchSize: a patch that would make the record larger than a record may be is refused, also piece by piece.
func TestPatchSize(t *testing.T) {
	r := newRig(t)
	full := `{"v":"` + strings.Repeat("x", 32<<10-len(`{"v":""}`)) + `"}`
	r.expect(201, "", "PUT", "/v1/records/a", full)
	r.expect(200, "", "PATCH", "/v1/records/a", `{}`)
	r.expect(413, "body_too_large", "PATCH", "/v1/records/a", `{"w":1}`)
	r.expect(200, "", "PATCH", "/v1/records/a", `{"v":null,"w":1}`)
	r.fake.max = 24
	r.expect(413, "body_too_large", "PATCH", "/v1/records/a", `{"w":123456789}`)
	if got := r.do("GET", "/v1/records/a", "").Body.String(); got != `{"key":"a","w":1}` {
		t.Errorf("the record is %s", got)
	}
}

// TestPatchRaces: patches of different members at once all take effect, whoever writes first.
func TestPatchRaces(t *testing.T) {
	r := newRig(t)
	r.limit(func(l *Limits) { l.MaxRequests, l.MaxRequestBytes = 100, 1<<20 })
	r.expect(201, "", "PUT", "/v1/records/a", `{}`)
	const clients, rounds = 8, 20
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range rounds {
				r.expect(200, "", "PATCH", "/v1/records/a", fmt.Sprintf(`{"m-%d-%d":%d}`, c, i, i))
			}
		})
	}
	wg.Wait()
	answer := r.do("GET", "/v1/records/a", "")
	if n := strings.Count(answer.Body.String(), `"m-`); n != clients*rounds || answer.Header().Get("ETag") != fmt.Sprintf(`"1-%d"`, clients*rounds+1) {
		t.Errorf("%d members, ETag %s, want %d", n, answer.Header().Get("ETag"), clients*rounds)
	}
}

// TestPatchGivesUp: a patch that always loses ends as busy, one whose outcome is unknown is not tried again, and one whose
// record goes away or no longer meets If-Match says so.
func TestPatchGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		err          error
		status, puts int
		code, match  string
	}{
		"always loses": {store.ErrPrecondition, 503, patchTries, "busy", "*"},
		"unknown":      {store.ErrUnknown, 503, 1, "outcome_unknown", "*"},
		"unavailable":  {store.ErrUnavailable, 503, 1, "unavailable", "*"},
		"busy":         {store.ErrBusy, 503, 1, "busy", "*"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.expect(201, "", "PUT", "/v1/records/a", `{}`)
			puts := 0
			r.fake.before = func(_ context.Context, op, _ string) error {
				if op != "put" {
					return nil
				}
				puts++
				return c.err
			}
			r.expect(c.status, c.code, "PATCH", "/v1/records/a", `{"n":1}`, "If-Match: "+c.match)
			if puts != c.puts {
				t.Errorf("%d writes, want %d", puts, c.puts)
			}
		})
	}
	for name, meanwhile := range map[string]func(r *rig){
		"412": func(r *rig) { r.do("PUT", "/v1/records/a", `{"other":1}`) },
		"404": func(r *rig) { r.do("DELETE", "/v1/records/a", "") },
	} {
		r := newRig(t)
		r.expect(201, "", "PUT", "/v1/records/a", `{}`)
		r.limit(func(l *Limits) { l.MaxRequests, l.MaxRequestBytes = 100, 1<<20 })
		done := false
		r.fake.before = func(_ context.Context, op, _ string) error {
			if op == "put" && !done {
				done = true
				meanwhile(r)
			}
			return nil
		}
		headers := map[string][]string{"412": {`If-Match: "1-1"`}, "404": nil}[name]
		answer := r.do("PATCH", "/v1/records/a", `{"n":1}`, headers...)
		if fmt.Sprint(answer.Code) != name || strings.Contains(r.do("GET", "/v1/records/a", "").Body.String(), `"n"`) {
			t.Errorf("want %s: %d %s", name, answer.Code, answer.Body)
		}
	}
}

// TestPatchTimeout: a patch that only ever loses ends with its deadline.
func TestPatchTimeout(t *testing.T) {
	r := newRig(t)
	r.expect(201, "", "PUT", "/v1/records/a", `{}`)
	r.limit(func(l *Limits) { l.RequestTimeout = 20 * time.Millisecond })
	r.fake.before = func(ctx context.Context, op, _ string) error {
		if op != "put" {
			return nil
		}
		<-ctx.Done()
		return store.ErrPrecondition
	}
	if answer := r.expect(http.StatusServiceUnavailable, "busy", "PATCH", "/v1/records/a", `{"n":1}`); answer.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}
