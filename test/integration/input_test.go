package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// badCall is a call that is refused with a status and a code.
type badCall struct {
	name, method, path, body string
	headers                  []string
	status                   int
	code                     string
}

// longKey is a key of so many bytes.
func longKey(bytes int) string { return strings.Repeat("k", bytes) }

// badCalls are inputs that no gateway may take.
func badCalls() []badCall {
	const collection, bad = "/v1/records", http.StatusBadRequest
	keyed := func(key string) string { return fmt.Sprintf(`{"key":%q}`, key) }
	var calls []badCall
	add := func(name, method, path, body string, status int, code string, headers ...string) {
		calls = append(calls, badCall{name, method, path, body, headers, status, code})
	}
	for _, bytes := range []int{513, 4000} {
		key := longKey(bytes)
		add(fmt.Sprintf("key of %d bytes in a body", bytes), "POST", collection, keyed(key), bad, "invalid_key")
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			add(fmt.Sprintf("key of %d bytes in a path", bytes), method, collection+"/"+key, map[bool]string{true: "{}"}[method == "PUT"], bad, "invalid_key")
		}
	}
	add("key of 171 characters and 513 bytes", "PUT", collection+"/"+strings.Repeat("%E2%82%AC", 171), "{}", bad, "invalid_key")
	add("NUL in a body", "POST", collection, `{"key":"a\u0000b"}`, bad, "invalid_key")
	add("NUL in a path", "PUT", collection+"/a%00b", "{}", bad, "invalid_key")
	add("NUL in a path of a read", "GET", collection+"/a%00b", "", bad, "invalid_key")
	add("empty key in a body", "POST", collection, `{"key":""}`, bad, "invalid_key")
	add("empty key in a path", "PUT", collection+"/", "{}", bad, "invalid_key")
	add("bytes that are no UTF-8 in a path", "PUT", collection+"/a%FF", "{}", bad, "invalid_key")
	add("overlong UTF-8 in a path", "PUT", collection+"/a%C0%80", "{}", bad, "invalid_key")
	add("plain slash in a path", "PUT", collection+"/a/b", "{}", bad, "invalid_key")
	add("malformed escape in a path", "PUT", collection+"/a%2", "{}", bad, "")
	add("bytes that are no UTF-8 in a body", "POST", collection, "{\"key\":\"bad\",\"v\":\"\xff\"}", bad, "invalid_json")
	add("lone surrogate in a key", "POST", collection, `{"key":"\ud800"}`, bad, "")
	for name, body := range map[string]string{
		"duplicate member": `{"key":"bad","v":1,"v":2}`, "duplicate member, escaped": `{"key":"bad","v":1,"\u0076":2}`,
		"duplicate member, nested": `{"key":"bad","v":{"w":1,"w":2}}`, "duplicate key member": `{"key":"bad","key":"bad"}`,
		"two values": `{"key":"bad","v":1}{"v":2}`, "trailing bracket": `{"key":"bad"}]`, "trailing text": `{"key":"bad"} x`,
		"no JSON": `key=bad`, "cut off": `{"key":"bad"`, "text": `"bad"`, "number": `7`, "null": `null`, "leading zero": `{"key":"bad","v":010}`,
		"comment": `{"key":"bad" /* x */}`, "trailing comma": `{"key":"bad",}`, "NaN": `{"key":"bad","v":NaN}`,
	} {
		add(name, "POST", collection, body, bad, "invalid_json")
	}
	add("nothing", "POST", collection, "", bad, "invalid_json")
	for name, value := range map[string]string{"operator": `{"$ne":""}`, "number": `7`, "null": `null`, "array": `["bad"]`, "true": `true`} {
		add("key is "+name, "POST", collection, `{"key":`+value+`}`, bad, "invalid_key")
	}
	add("key is operator in PUT", "PUT", collection+"/bad", `{"key":{"$ne":""}}`, bad, "invalid_key")
	add("keys differ", "PUT", collection+"/bad", `{"key":"worse"}`, http.StatusUnprocessableEntity, "key_mismatch")
	add("ETag without quotes", "PUT", collection+"/bad", "{}", bad, "invalid_etag", "If-Match: 1-1")
	add("If-None-Match with a tag", "PUT", collection+"/bad", "{}", bad, "unsupported_condition", `If-None-Match: "1-1"`)
	add("form", "POST", collection, `{"key":"bad"}`, http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type: application/x-www-form-urlencoded")
	add("compressed", "POST", collection, `{"key":"bad"}`, http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Encoding: gzip")
	add("too large", "POST", collection, `{"key":"bad","v":"`+longKey(1<<20)+`"}`, http.StatusRequestEntityTooLarge, "body_too_large")
	add("unknown collection", "POST", "/v1/nothing", `{"key":"bad"}`, http.StatusNotFound, "collection_not_found")
	add("collection in other case", "POST", "/v1/Records", `{"key":"bad"}`, http.StatusNotFound, "collection_not_found")
	add("collection with a backtick", "POST", "/v1/rec%60ords", `{"key":"bad"}`, http.StatusNotFound, "collection_not_found")
	add("POST to a record", "POST", collection+"/bad", `{}`, http.StatusMethodNotAllowed, "method_not_allowed")
	add("POST with a condition", "POST", collection, `{"key":"bad"}`, bad, "unsupported_condition", "If-None-Match: *")
	const record, tooLarge, elsewhere = collection + "/good", http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity
	add("PATCH of the key", "PATCH", record, `{"key":"bad"}`, elsewhere, "key_mismatch")
	add("PATCH without the key", "PATCH", record, `{"key":null,"v":1}`, elsewhere, "key_mismatch")
	add("PATCH of the key to an operator", "PATCH", record, `{"key":{"$ne":""}}`, bad, "invalid_key")
	add("PATCH with an array", "PATCH", record, `[{"v":1}]`, bad, "invalid_json")
	add("PATCH with a duplicate member", "PATCH", record, `{"v":1,"v":2}`, bad, "invalid_json")
	add("PATCH of operations", "PATCH", record, `[]`, http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type: application/json-patch+json")
	add("PATCH too large", "PATCH", record, `{"v":"`+longKey(1<<20)+`"}`, tooLarge, "body_too_large")
	add("PATCH of a key of 513 bytes", "PATCH", collection+"/"+longKey(513), `{}`, bad, "invalid_key")
	add("PATCH of nobody", "PATCH", collection+"/bad", `{"v":1}`, http.StatusNotFound, "record_not_found")
	for _, name := range []string{"upsert", "key", "key%5B$ne%5D"} {
		add("parameter "+name, "PUT", record+"?"+name+"=1", `{}`, bad, "invalid_parameter")
		add("parameter of DELETE "+name, "DELETE", record+"?"+name+"=1", "", bad, "invalid_parameter")
	}
	add("operator as a parameter", "GET", collection+"?key%5B$ne%5D=", "", bad, "invalid_parameter")
	add("too many keys", "GET", collection+"?"+strings.Repeat("key=a&", 101), "", bad, "invalid_parameter")
	add("unknown op", "POST", collection+"?op=upsert", `[{"key":"bad"}]`, bad, "invalid_parameter")
	add("op with an object", "POST", collection+"?op=put", keyed("bad"), bad, "invalid_json")
	add("op=delete cut off", "POST", collection+"?op=delete", `["good"`, bad, "invalid_json")
	add("op=put with an Idempotency-Key", "POST", collection+"?op=put", `[{"key":"bad"}]`, bad, "invalid_idempotency_key", "Idempotency-Key: x")
	add("op=get of an operator", "POST", collection+"?op=get", `[{"$ne":""}]`, bad, "invalid_key")
	add("answer as text", "PUT", record, `{"v":1}`, http.StatusNotAcceptable, "not_acceptable", "Accept: text/plain")
	return calls
}

// TestBadInput: bad input gets the right error and nothing is written, to the index, the issuer or a node (I6).
func TestBadInput(t *testing.T) {
	s := gateway.NewStack(t, servers.MySQLKind, 2, 10_000_000)
	g := gateway.Start(t, s.Config())
	g.Expect(t, http.StatusCreated, "POST", "/v1/records", `{"key":"good"}`)
	before := dump(t, s)
	for _, c := range badCalls() {
		a, err := g.Call(c.method, c.path, c.body, c.headers...)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if a.Status != c.status || c.code != "" && a.Code() != c.code {
			t.Errorf("%s: got %d %s, want %d %s", c.name, a.Status, a.Body, c.status, c.code)
		}
		if c.code != "" && a.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: Content-Type %q", c.name, a.Header.Get("Content-Type"))
		}
	}
	if after := dump(t, s); after != before {
		t.Error("bad input was written")
		compareLines(t, after, before)
	}
	g.Expect(t, http.StatusOK, "GET", "/v1/records/good", "")
	g.Stop(t)
}

// TestKeysAreBytes: keys that look alike are different records, and the longest one works everywhere.
func TestKeysAreBytes(t *testing.T) {
	keys := []string{
		"a%2Fb", "a%252Fb", "a%20b", "a+b", "A", "a", "a%20", "%20a", "%C3%BC", "u%CC%88", "%2E", "%2E%2E", "a%3Fb", "a%23b", "a;b=c",
		"%24ne", "a%2E%24b", "%27%22%60%5C", "_id", "%F0%9F%98%80", "%EF%BB%BFa", "a%0A", "a%0D%0A", longKey(512), longKey(511),
	}
	stacks(t, func(t *testing.T, kind string) {
		g := gateway.Start(t, gateway.NewStack(t, kind, 2, 10_000_000).Config())
		documents := map[string]string{}
		for i, key := range keys {
			body := fmt.Sprintf(`{"n":%d, "big":18446744073709551615,"more":9007199254740993,"d":1.10,"text":"\u00fc ü 😀\\"}`, i)
			a := g.Expect(t, http.StatusCreated, "PUT", "/v1/records/"+key, body)
			if want := strings.TrimPrefix(body, "{"); !strings.HasSuffix(a.Body, ","+want) {
				t.Errorf("key %.40s: the document came back as %s", key, a.Body)
			}
			documents[key] = a.Body
			if a.Header.Get("Location") == "" || g.Do(t, "GET", a.Header.Get("Location"), "").Body != a.Body {
				t.Errorf("key %.40s: Location %.60q leads elsewhere", key, a.Header.Get("Location"))
			}
		}
		for key, document := range documents {
			a := g.Expect(t, http.StatusOK, "GET", "/v1/records/"+key, "")
			head := g.Expect(t, http.StatusOK, "HEAD", "/v1/records/"+key, "")
			if a.Body != document || head.Body != "" || head.Header.Get("Content-Length") != fmt.Sprint(len(document)) || head.ETag() != a.ETag() {
				t.Errorf("key %.40s: GET %s, HEAD %v %q", key, a.Body, head.Header, head.Body)
			}
		}
		for _, key := range keys {
			g.Expect(t, http.StatusNoContent, "DELETE", "/v1/records/"+key, "")
			g.Expect(t, http.StatusNotFound, "GET", "/v1/records/"+key, "")
		}
		g.Stop(t)
	})
}

// TestRangeExhausted: when the last range is full a create is refused before anything is written, and goes on once a
// node was appended.
func TestRangeExhausted(t *testing.T) {
	const size = 10
	stacks(t, func(t *testing.T, kind string) {
		whole := gateway.NewStack(t, kind, 3, size)
		s := whole.With(func(s *gateway.Stack) { s.Nodes = s.Nodes[:2] })
		g := gateway.Start(t, s.Config())
		made := newAcknowledged()
		for i := range 2 * size {
			if err := made.create(g, fmt.Sprintf("record-%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		before := ""
		if kind != gateway.Embedded {
			before = dump(t, s)
		}
		for _, call := range []exchange{{"POST", "/v1/records", `{"key":"late"}`, nil}, {"PUT", "/v1/records/late", `{}`, nil}} {
			if a := g.Expect(t, http.StatusInsufficientStorage, call.method, call.path, call.body); a.Code() != "range_exhausted" {
				t.Errorf("code: got %q", a.Code())
			}
		}
		if bulk := g.Expect(t, http.StatusOK, "POST", "/v1/records", `[{"key":"late"},{"key":"record-0"}]`); !strings.Contains(bulk.Body, `"range_exhausted"`) {
			t.Errorf("bulk: %s", bulk.Body)
		}
		if kind != gateway.Embedded && dump(t, s) != before {
			t.Error("a refused create was written")
			compareLines(t, dump(t, s), before)
		}
		g.Expect(t, http.StatusNotFound, "GET", "/v1/records/late", "")
		g.Expect(t, http.StatusOK, "PUT", "/v1/records/record-0", `{}`)
		g.Stop(t)
		g = gateway.Start(t, s.Config())
		g.Expect(t, http.StatusInsufficientStorage, "POST", "/v1/records", `{"key":"late"}`)
		g.Stop(t)

		g = gateway.Start(t, whole.Config())
		if err := made.create(g, "late"); err != nil {
			t.Error(err)
		}
		if made.keys[fmt.Sprint(2*size+1)] != "late" {
			t.Errorf("the first ID of the new range was not used: %v", made.keys)
		}
		made.readBack(t, g)
		g.Stop(t)
	})
}
