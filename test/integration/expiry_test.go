package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"keyrange/test/gateway"
)

// TestExpiry: a record with a time to live is there until it is over, for every gateway and every call, and then as if it
// had never been. The sweeper or fsck takes what is left of it.
func TestExpiry(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		s := gateway.NewStack(t, kind, 2, 1000)
		config := s.Config() + "\ncollections:\n  - {name: records, ttl: expires_in}\n"
		one := gateway.Start(t, config)
		other := one
		if kind != gateway.Embedded { // whose files only one may use
			other = gateway.Start(t, config)
		}
		one.Expect(t, http.StatusCreated, "PUT", "/v1/records/stays", `{"n":1}`)
		for _, key := range []string{"posted", "deleted", "patched", "many", "once", "raced"} {
			one.Expect(t, http.StatusCreated, "POST", "/v1/records", `{"key":"`+key+`"}`, "TTL: 1", "Idempotency-Key: x")
		}
		// It goes last.
		old := one.Expect(t, http.StatusCreated, "PUT", "/v1/records/goes", `{"expires_in":2,"n":1}`)
		expires, err := time.Parse(time.RFC3339Nano, old.Header.Get("Record-Expires"))
		if err != nil {
			t.Fatalf("Record-Expires: %v", err)
		}
		etag := `If-Match: ` + old.Header.Get("ETag")
		for {
			before := time.Now()
			a, err := other.Call("GET", "/v1/records/goes", "")
			after := time.Now()
			if err != nil {
				t.Fatal(err)
			}
			if a.Status == http.StatusOK && before.After(expires.Add(10*time.Millisecond)) || a.Status != http.StatusOK && after.Before(expires.Add(-10*time.Millisecond)) {
				t.Fatalf("%d %v after its expiry", a.Status, before.Sub(expires))
			}
			if a.Status != http.StatusOK {
				break
			}
		}
		for _, g := range []*gateway.Process{one, other} {
			for _, key := range []string{"goes", "posted", "deleted", "patched"} {
				g.Expect(t, http.StatusNotFound, "GET", "/v1/records/"+key, "")
				g.Expect(t, http.StatusNotFound, "HEAD", "/v1/records/"+key, "")
			}
			g.Expect(t, http.StatusPreconditionFailed, "PUT", "/v1/records/goes", `{}`, etag)
			g.Expect(t, http.StatusPreconditionFailed, "DELETE", "/v1/records/goes", "", etag)
			g.Expect(t, http.StatusNotFound, "DELETE", "/v1/records/deleted", "")
			g.Expect(t, http.StatusNotFound, "PATCH", "/v1/records/patched", `{"n":1}`)
			if a := g.Expect(t, http.StatusOK, "GET", "/v1/records?key=many&key=stays", ""); !strings.Contains(a.Body, `"missing":["many"]`) {
				t.Errorf("many at once: %s", a.Body)
			}
		}
		again := other.Expect(t, http.StatusCreated, "PUT", "/v1/records/goes", `{"n":2}`)
		if again.Header.Get("ETag") == old.Header.Get("ETag") || again.Header.Get("Record-Expires") != "" {
			t.Errorf("created again with %v", again.Header)
		}
		if a := one.Expect(t, http.StatusCreated, "POST", "/v1/records", `{"key":"once"}`, "Idempotency-Key: x"); a.Header.Get("Idempotency-Replayed") != "" {
			t.Errorf("what has expired is replayed: %v", a.Header)
		}
		one.Expect(t, http.StatusOK, "GET", "/v1/records/goes", "")
		var made atomic.Int64
		if err := gateway.Together(16, func(i int) error {
			a, err := []*gateway.Process{one, other}[i%2].Call("PUT", "/v1/records/raced", fmt.Sprintf(`{"n":%d}`, i))
			if a.Status == http.StatusCreated {
				made.Add(1)
			} else if err == nil && a.Status != http.StatusOK {
				err = fmt.Errorf("put %d: %d %s", i, a.Status, a.Body)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if made.Load() != 1 {
			t.Errorf("16 clients created it %d times", made.Load())
		}
		if one.Stop(t); other != one {
			other.Stop(t)
		}
	})
}
