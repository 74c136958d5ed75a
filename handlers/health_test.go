package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"keyrange/store"
)

// TestHealthz: both listeners say that the process is there, whatever its databases do.
func TestHealthz(t *testing.T) {
	r := newRig(t)
	r.fake.health = []store.Health{{Kind: "index", Name: "index", Err: errors.New("down")}}
	for _, listener := range []*httptest.ResponseRecorder{httptest.NewRecorder(), httptest.NewRecorder()} {
		r.Admin().ServeHTTP(listener, httptest.NewRequest("GET", "/healthz", nil))
		if listener.Code != 200 || listener.Body.String() != "{\"status\":\"ok\"}\n" {
			t.Errorf("%d %s", listener.Code, listener.Body)
		}
	}
	r.expect(200, "", "GET", "/healthz", "")
	r.expect(200, "", "HEAD", "/healthz", "")
}

// TestReadyz: the index or all nodes make it unavailable, anything else only degraded.
func TestReadyz(t *testing.T) {
	down := errors.New("dial: refused")
	all := func(index, issuer, node1, node2 error) []store.Health {
		return []store.Health{
			{Kind: "index", Name: "index", Err: index, Took: 1500 * time.Microsecond}, {Kind: "issuer", Name: "issuer", Err: issuer},
			{Kind: "node", Name: "node-1", Err: node1}, {Kind: "node", Name: "node-2", Err: node2},
		}
	}
	readsOnly := all(down, nil, nil, nil)
	readsOnly[0].ReadsGoOn = true
	for name, c := range map[string]struct {
		health []store.Health
		code   int
		status string
	}{
		"ready":       {all(nil, nil, nil, nil), 200, "ready"},
		"index":       {all(down, nil, nil, nil), 503, "unavailable"},
		"index_reads": {readsOnly, 200, "degraded"},
		"issuer":      {all(nil, down, nil, nil), 200, "degraded"},
		"one_node":    {all(nil, nil, nil, down), 200, "degraded"},
		"all_nodes":   {all(nil, nil, down, down), 503, "unavailable"},
		"no_database": {nil, 200, "ready"},
	} {
		r := newRig(t)
		r.fake.health = c.health
		answer := r.expect(c.code, "", "GET", "/readyz", "")
		if !strings.HasPrefix(answer.Body.String(), `{"status":"`+c.status+`"`) {
			t.Errorf("%s: %s", name, answer.Body)
		}
		golden(t, "readyz_"+name, transcript(answer))
		admin := httptest.NewRecorder()
		r.Admin().ServeHTTP(admin, httptest.NewRequest("GET", "/readyz", nil))
		if admin.Body.String() != answer.Body.String() {
			t.Errorf("%s, admin: %s", name, admin.Body)
		}
	}
	r := newRig(t)
	admin := httptest.NewRecorder()
	r.Admin().ServeHTTP(admin, httptest.NewRequest("GET", "/v1/records/a", nil))
	if admin.Code != 404 {
		t.Errorf("records on the admin listener: %d", admin.Code)
	}
}

// TestOperatorsPages: metrics and profiles are on the operators' listener and not on the clients'.
func TestOperatorsPages(t *testing.T) {
	r := newRig(t)
	r.options.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "gateway_up 1\n") })
	for path, want := range map[string]string{
		"/metrics": "gateway_up 1", "/debug/pprof/": "goroutine", "/debug/pprof/cmdline": "handlers", "/debug/pprof/goroutine?debug=1": "goroutine profile",
	} {
		admin, public := httptest.NewRecorder(), httptest.NewRecorder()
		r.Admin().ServeHTTP(admin, httptest.NewRequest("GET", path, nil))
		r.Public().ServeHTTP(public, httptest.NewRequest("GET", path, nil))
		if admin.Code != 200 || !strings.Contains(admin.Body.String(), want) {
			t.Errorf("%s: %d %.100s", path, admin.Code, admin.Body)
		}
		if public.Code != 404 {
			t.Errorf("%s for clients: %d", path, public.Code)
		}
	}
}
