package handlers

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestReload: the operators' listener answers what became of the config file; the clients' has no such path.
func TestReload(t *testing.T) {
	for name, c := range map[string]struct {
		done Reloaded
		err  error
		code int
	}{
		"applied":   {done: Reloaded{"applied", []string{"nodes[2]: appended (node-3, ranges 3)", "log.level: info -> debug"}}, code: 200},
		"unchanged": {done: Reloaded{Result: "unchanged"}, code: 200},
		"refused":   {err: errors.New("config.yaml:3: server.listn: unknown key; did you mean listen?\nconfig.yaml:9: ranges.size: must be text"), code: 422},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.options.Reload = func(context.Context) (Reloaded, error) { return c.done, c.err }
			request := httptest.NewRequest("POST", patternReload, nil)
			request.Header.Set("X-Request-Id", "test")
			admin := httptest.NewRecorder()
			r.Admin().ServeHTTP(admin, request)
			if admin.Code != c.code {
				t.Errorf("status %d, want %d", admin.Code, c.code)
			}
			golden(t, "reload_"+name, transcript(admin))
			if public := r.do("POST", patternReload, ""); public.Code != 404 {
				t.Errorf("for clients: %d %s", public.Code, public.Body)
			}
		})
	}
}

// TestReloadUnavailable: without a source of configs there is nothing to reload, and a look is no reload.
func TestReloadUnavailable(t *testing.T) {
	r := newRig(t)
	for method, code := range map[string]int{"POST": 404, "GET": 405} {
		admin := httptest.NewRecorder()
		r.Admin().ServeHTTP(admin, httptest.NewRequest(method, patternReload, nil))
		if admin.Code != code {
			t.Errorf("%s: %d, want %d", method, admin.Code, code)
		}
	}
}

// TestReloadOutlivesRequestTimeout: a reload has its own bound, as it may have to wait for a new node.
func TestReloadOutlivesRequestTimeout(t *testing.T) {
	r := newRig(t)
	r.limit(func(l *Limits) { l.RequestTimeout = 1 })
	r.options.Reload = func(ctx context.Context) (Reloaded, error) { return Reloaded{Result: "applied"}, ctx.Err() }
	admin := httptest.NewRecorder()
	r.Admin().ServeHTTP(admin, httptest.NewRequest("POST", patternReload, nil))
	if admin.Code != 200 {
		t.Errorf("%d %s", admin.Code, admin.Body)
	}
}

// TestSetLimits: requests obey the limits that were in force when they began.
func TestSetLimits(t *testing.T) {
	r := newRig(t)
	large := `{"v":"` + strings.Repeat("x", 2000) + `"}`
	r.expect(201, "", "PUT", "/v1/records/a", large)
	r.fake.before = func(_ context.Context, _, key string) error {
		if key == "first" { // the rest of its array is still to come
			r.SetLimits(Limits{RequestTimeout: time.Second, MaxBodyBytes: 1 << 10, MaxBulkBytes: 1500})
		}
		return nil
	}
	array := `[{"key":"first"},{"key":"second",` + large[1:] + `]`
	if answer := r.expect(200, "", "POST", "/v1/records", array); strings.Count(answer.Body.String(), `"status":201`) != 2 {
		t.Errorf("a request under way: %s", answer.Body)
	}
	r.expect(413, "body_too_large", "PUT", "/v1/records/b", large)
	r.expect(413, "bulk_too_large", "POST", "/v1/records", array)
	r.limit(func(l *Limits) { l.MaxBodyBytes = 4 << 10 })
	r.expect(201, "", "PUT", "/v1/records/b", large)
}
