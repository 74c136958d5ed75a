package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"keyrange/test/gateway"
)

// TestIdempotencyKey: a POST that is sent again under its Idempotency-Key gets the answer of the first, also without a key
// of its own and in bulk; another body under it is 422, and without it there is a conflict with the ETag of the record.
func TestIdempotencyKey(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		g := gateway.Start(t, gateway.NewStack(t, kind, 1, 10_000_000).Config())
		const mark, other = "Idempotency-Key: 5f0c-first", "Idempotency-Key: 5f0c-second"
		for _, body := range []string{`{"key":"order-1","total":12.50}`, `{"total":12.50}`} {
			first := g.Expect(t, http.StatusCreated, "POST", "/v1/records", body, mark)
			again := g.Expect(t, http.StatusCreated, "POST", "/v1/records", body, mark)
			for _, name := range []string{"ETag", "Location", "Last-Modified", "Content-Type"} {
				if first.Header.Get(name) != again.Header.Get(name) || first.Header.Get(name) == "" {
					t.Errorf("%s: %q, then %q", name, first.Header.Get(name), again.Header.Get(name))
				}
			}
			if again.Body != first.Body || first.Header.Get("Idempotency-Replayed") != "" || again.Header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("%s %v, then %s %v", first.Body, first.Header, again.Body, again.Header)
			}
			a := g.Expect(t, http.StatusUnprocessableEntity, "POST", "/v1/records", strings.Replace(body, "12.50", "13", 1), mark)
			if a.Code() != "idempotency_key_reused" {
				t.Errorf("another body: %s", a.Body)
			}
		}
		for _, headers := range [][]string{nil, {other}} {
			a := g.Expect(t, http.StatusConflict, "POST", "/v1/records", `{"key":"order-1","total":12.50}`, headers...)
			if a.Header.Get("ETag") == "" {
				t.Errorf("a conflict without the ETag of the record: %v", a.Header)
			}
		}
		g.Expect(t, http.StatusBadRequest, "POST", "/v1/records", `{"key":"order-2"}`, "Idempotency-Key: "+strings.Repeat("x", 256))
		g.Expect(t, http.StatusNotFound, "GET", "/v1/records/order-2", "")

		const bulk = `[{"key":"a"},{"n":1},{"key":"order-1"},{"n":1}]`
		first := g.Expect(t, http.StatusOK, "POST", "/v1/records", bulk, mark)
		again := g.Expect(t, http.StatusOK, "POST", "/v1/records", bulk, mark)
		if first.Body != again.Body || strings.Count(first.Body, `"status":201`) != 3 || strings.Count(first.Body, `"status":422`) != 1 {
			t.Errorf("bulk: %s, then %s", first.Body, again.Body)
		}
		err := gateway.Together(16, func(int) error {
			a, err := g.Call("POST", "/v1/records", `{"n":2}`, "Idempotency-Key: together")
			if err == nil && (a.Status != http.StatusCreated || a.ETag() == "") {
				err = fmt.Errorf("together: %d %s", a.Status, a.Body)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		g.Stop(t)
	})
}
