package handlers

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestOverload: beyond the limits a request is refused at once with 503 and Retry-After, whatever those under way do; the
// operators' routes and health are not counted, and when one has ended the next gets in.
func TestOverload(t *testing.T) {
	const body = `{"v":1}`
	for name, limits := range map[string]Limits{
		"requests": {MaxRequests: 3, MaxRequestBytes: 1 << 20},
		"bytes":    {MaxRequests: 100, MaxRequestBytes: 3 * int64(len(body))},
	} {
		t.Run(name, func(t *testing.T) {
			limits.RequestTimeout, limits.MaxBodyBytes, limits.MaxBulkBytes = time.Minute, 1<<20, 1<<20
			fake, hold, began := newFake(), make(chan struct{}), make(chan struct{}, 100)
			fake.before = func(_ context.Context, op, _ string) error {
				if op == "put" {
					began <- struct{}{}
					<-hold
				}
				return nil
			}
			s := New(fake, Options{Limits: limits, Collections: []Collection{{Name: "records", KeyMember: "key"}}})
			r := &rig{Server: s, t: t, fake: fake}
			send := func(method, path string) *httptest.ResponseRecorder {
				return r.serve(httptest.NewRequest(method, path, strings.NewReader(body)))
			}
			var underWay sync.WaitGroup
			for i := range 3 {
				underWay.Go(func() {
					if a := send("PUT", fmt.Sprintf("/v1/records/k%d", i)); a.Code != http.StatusCreated {
						t.Errorf("a request that got in: %d %s", a.Code, a.Body)
					}
				})
				<-began
			}
			a := send("PUT", "/v1/records/one-more")
			if a.Code != http.StatusServiceUnavailable || a.Header().Get("Retry-After") == "" || !strings.Contains(a.Body.String(), `"code":"overloaded"`) {
				t.Errorf("one more: %d %v %s", a.Code, a.Header(), a.Body)
			}
			if a := send("GET", "/healthz"); a.Code != http.StatusOK {
				t.Errorf("healthz: %d", a.Code)
			}
			if got := s.Load(); got != (Load{3, 3 * int64(len(body)), 1}) {
				t.Errorf("load %+v", got)
			}
			close(hold)
			underWay.Wait()
			if a := send("PUT", "/v1/records/one-more"); a.Code != http.StatusCreated {
				t.Errorf("afterwards: %d %s", a.Code, a.Body)
			}
			if got := s.Load(); got != (Load{0, 0, 1}) {
				t.Errorf("load afterwards %+v", got)
			}
		})
	}
}
