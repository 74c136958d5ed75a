package handlers

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"keyrange/handlers/access"
)

// guardedClients is the file of keys of newGuardedRig: a client's key is its name with -key behind it.
const guardedClients = `clients:
  - {name: reader, keys: [READER], roles: {records: read}}
  - {name: writer, keys: [WRITER], roles: {records: write, orders: read}}
  - {name: root, keys: [ROOT], roles: {"*": admin}}
  - {name: tenant, keys: [TENANT], roles: {"*": admin}, key_prefix: "t/1-"}
  - {name: slow, keys: [SLOW], roles: {"*": write}, requests_per_second: 0.01, burst: 2}
  - {name: narrow, keys: [NARROW], roles: {"*": write}, concurrent: 1}
`

// newGuard makes a guard of the clients.
func newGuard(t *testing.T) *access.Guard {
	t.Helper()
	text := guardedClients
	for _, name := range []string{"reader", "writer", "root", "tenant", "slow", "narrow"} {
		text = strings.ReplaceAll(text, "["+strings.ToUpper(name)+"]", fmt.Sprintf("[%x]", sha256.Sum256([]byte(name+"-key"))))
	}
	clients, err := access.ParseClients([]byte(text), []string{"records", "orders"})
	if err != nil {
		t.Fatal(err)
	}
	return access.NewGuard(clients, nil)
}

// newGuardedRig is newRig with clients, and with other changes of the options.
func newGuardedRig(t *testing.T, changes ...func(*Options)) *rig {
	t.Helper()
	r := newRig(t)
	options := r.options
	options.Guard = newGuard(t)
	for _, change := range changes {
		change(&options)
	}
	r.Server = New(r.fake, options)
	return r
}

// as is the header of a client.
func as(name string) string { return "Authorization: Bearer " + name + "-key" }

// TestUnauthenticated: whoever does not say who it is gets 401 on every route for records, and nothing happens.
func TestUnauthenticated(t *testing.T) {
	r := newGuardedRig(t)
	for _, c := range []struct{ header, detail, challenge string }{
		{"", "send Authorization: Bearer", challenge},
		{"Authorization: Basic cm9vdDpyb290LWtleQ==", "must be Bearer", challenge},
		{"Authorization: Bearer wrong-key", "the API key is unknown", challengeInvalid},
		{"Authorization: Bearer", "the API key is unknown", challengeInvalid},
		{"Authorization: root-key", "must be Bearer", challenge},
		{"X-API-Key: wrong-key", "the API key is unknown", challengeInvalid},
		{"X-API-Key: ", "the API key is unknown", challengeInvalid},
	} {
		for _, target := range [][2]string{{"GET", "/v1/records/a"}, {"HEAD", "/v1/records/a"}, {"PUT", "/v1/records/a"}, {"DELETE", "/v1/records/a"}, {"POST", "/v1/records"}, {"GET", "/v1/nothing/a"}} {
			var headers []string
			if c.header != "" {
				headers = []string{c.header}
			}
			answer := r.do(target[0], target[1], `{"key":"a"}`, headers...)
			if answer.Code != 401 || answer.Header().Get("WWW-Authenticate") != c.challenge || target[0] != "HEAD" && !strings.Contains(answer.Body.String(), c.detail) {
				t.Errorf("%q %v: %d %v %s", c.header, target, answer.Code, answer.Header(), answer.Body)
			}
		}
	}
	r.expect(401, "unauthenticated", "GET", "/v1/records/a", "", as("root"), "X-API-Key: root-key")
	r.expect(401, "unauthenticated", "GET", "/v1/records/a", "", as("root"), as("reader"))
	if r.fake.count() != 0 || strings.Contains(r.log.String(), "wrong-key") || strings.Contains(r.log.String(), "root-key") {
		t.Errorf("%d records, log %s", r.fake.count(), r.log)
	}
	for _, open := range []string{"/healthz", "/readyz"} {
		r.expect(200, "", "GET", open, "")
		r.expect(200, "", "HEAD", open, "")
	}
	r.expect(201, "", "PUT", "/v1/records/a", "{}", "X-API-Key: writer-key")
	r.expect(200, "", "GET", "/v1/records/a", "", "authorization: bearer reader-key")
}

// TestRoles: each method needs its role on its collection; a refusal does not tell which collections there are.
func TestRoles(t *testing.T) {
	r := newGuardedRig(t)
	r.expect(201, "", "PUT", "/v1/records/a", "{}", as("root"))
	r.expect(201, "", "PUT", "/v1/orders/a", "{}", as("root"))
	for _, c := range []struct {
		client, method, path string
		status               int
	}{
		{"reader", "GET", "/v1/records/a", 200}, {"reader", "HEAD", "/v1/records/a", 200}, {"reader", "GET", "/v1/records/b", 404},
		{"reader", "PUT", "/v1/records/a", 403}, {"reader", "DELETE", "/v1/records/a", 403}, {"reader", "POST", "/v1/records", 403},
		{"reader", "GET", "/v1/orders/a", 403}, {"reader", "GET", "/v1/orders/nothing", 403}, {"reader", "GET", "/v1/nothing/a", 403},
		{"writer", "PUT", "/v1/records/a", 200}, {"writer", "POST", "/v1/records", 201}, {"writer", "GET", "/v1/orders/a", 200},
		{"writer", "PUT", "/v1/orders/a", 403}, {"writer", "POST", "/v1/orders", 403}, {"root", "GET", "/v1/nothing/a", 404},
		{"writer", "DELETE", "/v1/records/a", 204}, {"root", "DELETE", "/v1/orders/a", 204},
	} {
		code := map[int]string{403: "forbidden"}[c.status]
		answer := r.do(c.method, c.path, "{}", as(c.client))
		if answer.Code != c.status || code != "" && !strings.Contains(answer.Body.String(), code) {
			t.Errorf("%s %s %s: %d %s, want %d", c.client, c.method, c.path, answer.Code, answer.Body, c.status)
		}
	}
	log := r.log.String()
	if !strings.Contains(log, `"client":"reader"`) || strings.Contains(log, "-key") || strings.Contains(log, "nothing") {
		t.Errorf("log: %s", log)
	}
}

// TestRoleOf has the roles of requests on a whole collection, which other routes make.
func TestRoleOf(t *testing.T) {
	r := newGuardedRig(t)
	for _, c := range []struct {
		client, method, target string
		ok                     bool
	}{
		{"reader", "GET", "/v1/records?limit=5", true}, {"reader", "GET", "/v1/orders?limit=5", false},
		{"reader", "POST", "/v1/records?op=get", true}, {"reader", "POST", "/v1/records?op=put", false},
		{"reader", "POST", "/v1/records?op=get&op=put", false}, {"reader", "POST", "/v1/records?op=put&op=get", false},
		{"writer", "POST", "/v1/records?op=delete", true}, {"writer", "DELETE", "/v1/records?group=g", false}, {"root", "DELETE", "/v1/records?group=g", true},
		{"tenant", "GET", "/v1/records", false}, {"tenant", "GET", "/v1/records?limit=1", false}, {"tenant", "DELETE", "/v1/records?group=t%2F1-", false},
		{"tenant", "GET", "/v1/records?key=t%2F1-a&key=t/1-b&fields=x", true}, {"tenant", "GET", "/v1/records?key=t%2F1-a&key=t%252F1-a", false},
		{"tenant", "GET", "/v1/records?key=t%2F1-a&group=g", false}, {"tenant", "GET", "/v1/records?key=t%2F1-a&key=%zz", false},
		{"tenant", "GET", "/v1/records?key=t%2F1-a;key=b", false}, {"tenant", "POST", "/v1/records?op=get", true},
	} {
		x := &exchange{Context: r.public.NewContext(httptest.NewRequest(c.method, "/v1/records", nil), httptest.NewRecorder())}
		x.Request().URL.RawQuery = c.target[strings.Index(c.target+"?", "?")+min(1, strings.Count(c.target, "?")):]
		x.client, _ = r.options.Guard.Authenticate(t.Context(), c.client+"-key")
		collection := strings.TrimPrefix(strings.SplitN(c.target, "?", 2)[0], "/v1/")
		if err := r.permitCollection(x, collection); (err == nil) != c.ok {
			t.Errorf("%s %s %s: %v", c.client, c.method, c.target, err)
		}
	}
	// A route that forgot to ask who it is from lets nobody in.
	x := &exchange{Context: r.public.NewContext(httptest.NewRequest("GET", "/", nil), httptest.NewRecorder())}
	if r.permitCollection(x, "records") == nil || r.permitKey(x, "a") == nil {
		t.Error("a request without a client was let in")
	}
}

// TestKeyPrefix: a client with a prefix touches no other key, however it is written, also within a bulk.
func TestKeyPrefix(t *testing.T) {
	r := newGuardedRig(t)
	r.expect(201, "", "PUT", "/v1/records/other", "{}", as("root"))
	r.expect(201, "", "PUT", "/v1/records/t%252F1-x", "{}", as("root"))
	for path, status := range map[string]int{
		"t%2F1-a": 201, "%74%2f1%2Db": 201, "other": 403, "t%252F1-x": 403, "t%2F1": 403, "T%2F1-a": 403, "absent": 403, "t%2F1-%00": 400,
	} {
		r.expect(status, "", "PUT", "/v1/records/"+path, "{}", as("tenant"))
		if status == 403 {
			r.expect(403, "forbidden", "GET", "/v1/records/"+path, "", as("tenant"))
			r.expect(403, "forbidden", "DELETE", "/v1/records/"+path, "", as("tenant"))
		}
	}
	r.expect(201, "", "POST", "/v1/records", `{"key":"t/1-c"}`, as("tenant"))
	r.expect(403, "forbidden", "POST", "/v1/records", `{"key":"u"}`, as("tenant"))
	r.expect(403, "forbidden", "POST", "/v1/records", `{"v":"made keys are outside"}`, as("tenant"))
	r.expect(403, "forbidden", "POST", "/v1/records", `{"v":1}`, as("tenant"), "Idempotency-Key: t/1-")
	for _, stream := range []bool{false, true} {
		prefix := fmt.Sprintf("t/1-%t-", stream)
		body, headers := bulkBody([]string{`{"key":"` + prefix + `a"}`, `{"key":"other"}`, `{}`, `{"key":"` + prefix + `b"}`, `{"key":"t\/1-` + prefix + `"}`}, stream)
		var statuses []int
		for _, one := range results(t, r.expect(200, "", "POST", "/v1/records", body, append(headers, as("tenant"))...).Body.String()) {
			if statuses = append(statuses, one.Status); one.Status == 403 && (one.Error.Code != "forbidden" || one.ETag != "") {
				t.Errorf("%+v", one)
			}
		}
		if fmt.Sprint(statuses) != "[201 403 403 201 201]" {
			t.Errorf("bulk: %v", statuses)
		}
	}
	if n := r.fake.count(); n != 2+3+6 {
		t.Errorf("%d records", n)
	}
}

// TestConfinedTouchesNothingElse: no request on a collection, of whatever operation and form, lets a client with a prefix reach
// another key.
func TestConfinedTouchesNothingElse(t *testing.T) {
	r := newGuardedRig(t)
	r.expect(201, "", "PUT", "/v1/records/other", `{"v":1}`, as("root"))
	var mu sync.Mutex
	var touched []string
	r.fake.before = func(_ context.Context, op, key string) error {
		mu.Lock()
		defer mu.Unlock()
		if !strings.HasPrefix(key, "t/1-") {
			touched = append(touched, op+" "+key)
		}
		return nil
	}
	for _, op := range []string{"", "?op=get", "?op=put", "?op=delete"} {
		for _, stream := range []bool{false, true} {
			body, headers := bulkBody([]string{`"t/1-a"`, `"other"`}, stream)
			if answer := r.do("POST", "/v1/records"+op, body, append(headers, as("tenant"))...); op == "?op=get" && answer.Code != 403 {
				t.Errorf("%s: %d %s", op, answer.Code, answer.Body)
			}
		}
		for _, item := range []string{`"other"`, `{"key":"other"}`, `{"key":"other","etag":"\"1-1\""}`, `{"v":1}`} {
			for _, stream := range []bool{false, true} {
				body, headers := bulkBody([]string{item, `"t/1-a"`, `{"key":"t/1-a"}`}, stream)
				answer := r.do("POST", "/v1/records"+op, body, append(headers, as("tenant"))...)
				if answer.Code >= 500 || strings.Contains(answer.Body.String(), `"v":1`) {
					t.Errorf("%s %s: %d %s", op, item, answer.Code, answer.Body)
				}
			}
		}
	}
	for _, query := range []string{"", "?limit=5", "?key=other", "?key=t/1-a&key=other", "?order=desc", "?group=t/1-", "?group=t/1-&count=true&limit=0", "?count=true", "?deletion=d2"} {
		for _, method := range []string{"GET", "HEAD", "DELETE"} {
			for _, accept := range []string{"application/json", "application/x-ndjson"} {
				if answer := r.do(method, "/v1/records"+query, "", as("tenant"), "Accept: "+accept); answer.Code != 403 {
					t.Errorf("%s %s: %d %s", method, query, answer.Code, answer.Body)
				}
			}
		}
	}
	if len(touched) > 0 {
		t.Errorf("touched: %q", touched)
	}
}

// TestEveryRouteAsks: no route for records lets anybody in who does not say who it is.
func TestEveryRouteAsks(t *testing.T) {
	r := newGuardedRig(t)
	r.fake.before = func(_ context.Context, op, key string) error {
		t.Errorf("the store was asked to %s %s", op, key)
		return nil
	}
	for _, route := range r.publicRoutes() {
		if strings.HasPrefix(route.pattern, "/v1/") {
			target := strings.NewReplacer(":collection", "records", "*", "a", ":key", "a").Replace(route.pattern)
			if answer := r.do(route.method, target, "{}"); answer.Code != 401 {
				t.Errorf("%s %s: %d", route.method, target, answer.Code)
			}
		}
	}
}

// TestRateLimited: the request after the burst is told when to come back, and other clients go on.
func TestRateLimited(t *testing.T) {
	r := newGuardedRig(t)
	for range 2 {
		r.expect(404, "", "GET", "/v1/records/a", "", as("slow"))
	}
	answer := r.expect(429, "rate_limited", "GET", "/v1/records/a", "", as("slow"))
	if wait, err := strconv.Atoi(answer.Header().Get("Retry-After")); err != nil || wait < 90 || wait > 100 {
		t.Errorf("Retry-After: %v", answer.Header())
	}
	if !strings.Contains(answer.Body.String(), "the client slow may send 0.01 requests a second") {
		t.Error(answer.Body)
	}
	r.expect(404, "", "GET", "/v1/records/a", "", as("root"))
}

// TestConcurrentLimited: a second request of a client that may have one is refused until the first is over.
func TestConcurrentLimited(t *testing.T) {
	r := newGuardedRig(t)
	r.limit(func(l *Limits) { l.MaxRequests, l.MaxRequestBytes = 10, 1<<20 })
	began, end := make(chan struct{}), make(chan struct{})
	r.fake.before = func(_ context.Context, _, key string) error {
		if key == "slow" {
			close(began)
			<-end
		}
		return nil
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.do("GET", "/v1/records/slow", "", as("narrow"))
	}()
	<-began
	answer := r.expect(429, "rate_limited", "GET", "/v1/records/a", "", as("narrow"))
	if answer.Header().Get("Retry-After") != "1" {
		t.Errorf("%v", answer.Header())
	}
	r.expect(404, "", "GET", "/v1/records/a", "", as("root"))
	close(end)
	<-over
	r.expect(404, "", "GET", "/v1/records/a", "", as("narrow"))
}

// TestGuardAdmin: the operators' listener asks for the admin role for all collections, if it is told to.
func TestGuardAdmin(t *testing.T) {
	ask := func(r *rig, path, header string) int {
		request := httptest.NewRequest("GET", path, nil)
		if header != "" {
			request.Header.Set("Authorization", strings.TrimPrefix(header, "Authorization: "))
		}
		answer := httptest.NewRecorder()
		r.Admin().ServeHTTP(answer, request)
		return answer.Code
	}
	asks, open := newGuardedRig(t, func(o *Options) { o.GuardAdmin = true }), newGuardedRig(t)
	for _, path := range []string{"/admin/ranges", "/admin/sweeper", "/admin/status", "/admin/history", "/debug/pprof/cmdline"} {
		for header, want := range map[string]int{"": 401, as("nobody"): 401, as("writer"): 403, as("root"): 200} {
			if got := ask(asks, path, header); got != want {
				t.Errorf("%s as %q: %d, want %d", path, header, got, want)
			}
			if got := ask(open, path, header); got != 200 {
				t.Errorf("%s on a listener that does not ask: %d", path, got)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/ui/", "/ui/page.js"} {
		if got := ask(asks, path, ""); got != 200 {
			t.Errorf("%s: %d", path, got)
		}
	}
	for _, route := range asks.guardOperators(asks.adminRoutes()) {
		if slices.Contains([]string{"/healthz", "/readyz", "/ui", "/ui/*"}, route.pattern) {
			continue
		}
		x := &exchange{Context: asks.admin.NewContext(httptest.NewRequest(route.method, "/", nil), httptest.NewRecorder())}
		if err := route.handle(t.Context(), x); err == nil {
			t.Errorf("%s %s lets everybody in", route.method, route.pattern)
		}
	}
}

// TestForwardedAddress: X-Forwarded-For counts as far as the peers are trusted proxies.
func TestForwardedAddress(t *testing.T) {
	const peer = "192.0.2.1" // of httptest
	for _, c := range []struct{ trusted, forwarded, want string }{
		{"", "6.6.6.6", peer},
		{"10.0.0.0/8", "6.6.6.6", peer},
		{"192.0.2.0/24", "6.6.6.6", "6.6.6.6"},
		{"192.0.2.0/24", "7.7.7.7, 6.6.6.6", "6.6.6.6"},
		{"192.0.2.0/24,6.6.6.0/24", "7.7.7.7, 6.6.6.6", "7.7.7.7"},
		{"192.0.2.0/24", "", peer},
		{"2001:db8::/32", "6.6.6.6", peer},
	} {
		r := newGuardedRig(t, func(o *Options) {
			o.Guard = nil
			for _, text := range strings.Split(c.trusted, ",") {
				if text != "" {
					o.TrustedProxies = append(o.TrustedProxies, netip.MustParsePrefix(text))
				}
			}
		})
		r.do("GET", "/v1/records/a", "", "X-Forwarded-For: "+c.forwarded, "X-Real-Ip: 8.8.8.8")
		if !strings.Contains(r.log.String(), `"remote":"`+c.want+`"`) {
			t.Errorf("%+v: %s", c, r.log)
		}
	}
}

// TestCORS: pages of listed origins may use the API, with their headers and with preflights that need no key; no others.
func TestCORS(t *testing.T) {
	r := newGuardedRig(t, func(o *Options) { o.CORSOrigins = []string{"https://app.example", "http://localhost:3000"} })
	preflight := func(r *rig, origin string) http.Header {
		status := 204
		if r.options.CORSOrigins == nil {
			status = 405
		}
		return r.expect(status, "", "OPTIONS", "/v1/records/a", "", "Origin: "+origin, "Access-Control-Request-Method: PUT",
			"Access-Control-Request-Headers: authorization,content-type").Header()
	}
	got := preflight(r, "https://app.example")
	if got.Get("Access-Control-Allow-Origin") != "https://app.example" || !strings.Contains(got.Get("Access-Control-Allow-Methods"), "PUT") ||
		!strings.Contains(got.Get("Access-Control-Allow-Headers"), "Authorization,X-API-Key,Content-Type") || got.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("preflight: %v", got)
	}
	for _, other := range []string{"https://app.example.evil", "http://app.example", "https://app-example", "https://x.app.example", "null", ""} {
		if got := preflight(r, other); got.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", other, got)
		}
	}
	for _, header := range []string{as("root"), as("nobody")} {
		got = r.do("GET", "/v1/records/a", "", "Origin: http://localhost:3000", header).Header()
		if got.Get("Access-Control-Allow-Origin") != "http://localhost:3000" || got.Get("Access-Control-Expose-Headers") != "Etag,Location,Link,Retry-After,X-Request-Id,Idempotency-Replayed,Preference-Applied,Record-Expires,Accept-Patch,WWW-Authenticate" ||
			!strings.Contains(strings.Join(got["Vary"], ","), "Origin") {
			t.Errorf("%s: %v", header, got)
		}
	}
	any := newGuardedRig(t, func(o *Options) { o.CORSOrigins = []string{"*"} })
	if got := preflight(any, "https://x.example"); got.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("any: %v", got)
	}
	off := newGuardedRig(t)
	if got := preflight(off, "https://app.example"); got.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("off: %v", got)
	}
}
