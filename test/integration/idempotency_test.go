package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestIdempotencyKey: a POST that is sent again under its Idempotency-Key gets the answer of the first, also without a key
// of its own and in bulk; another body under it is 422, and without it there is a conflict with the ETag of the record.
func TestIdempotencyKey(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		g := startGateway(t, newStack(t, kind, 1, 10_000_000).config())
		const mark, other = "Idempotency-Key: 5f0c-first", "Idempotency-Key: 5f0c-second"
		for _, body := range []string{`{"key":"order-1","total":12.50}`, `{"total":12.50}`} {
			first := g.expect(t, http.StatusCreated, "POST", "/v1/records", body, mark)
			again := g.expect(t, http.StatusCreated, "POST", "/v1/records", body, mark)
			for _, name := range []string{"ETag", "Location", "Last-Modified", "Content-Type"} {
				if first.header.Get(name) != again.header.Get(name) || first.header.Get(name) == "" {
					t.Errorf("%s: %q, then %q", name, first.header.Get(name), again.header.Get(name))
				}
			}
			if again.body != first.body || first.header.Get("Idempotency-Replayed") != "" || again.header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("%s %v, then %s %v", first.body, first.header, again.body, again.header)
			}
			a := g.expect(t, http.StatusUnprocessableEntity, "POST", "/v1/records", strings.Replace(body, "12.50", "13", 1), mark)
			if a.code() != "idempotency_key_reused" {
				t.Errorf("another body: %s", a.body)
			}
		}
		for _, headers := range [][]string{nil, {other}} {
			a := g.expect(t, http.StatusConflict, "POST", "/v1/records", `{"key":"order-1","total":12.50}`, headers...)
			if a.header.Get("ETag") == "" {
				t.Errorf("a conflict without the ETag of the record: %v", a.header)
			}
		}
		g.expect(t, http.StatusBadRequest, "POST", "/v1/records", `{"key":"order-2"}`, "Idempotency-Key: "+strings.Repeat("x", 256))
		g.expect(t, http.StatusNotFound, "GET", "/v1/records/order-2", "")

		const bulk = `[{"key":"a"},{"n":1},{"key":"order-1"},{"n":1}]`
		first := g.expect(t, http.StatusOK, "POST", "/v1/records", bulk, mark)
		again := g.expect(t, http.StatusOK, "POST", "/v1/records", bulk, mark)
		if first.body != again.body || strings.Count(first.body, `"status":201`) != 3 || strings.Count(first.body, `"status":422`) != 1 {
			t.Errorf("bulk: %s, then %s", first.body, again.body)
		}
		err := together(16, func(int) error {
			a, err := g.call("POST", "/v1/records", `{"n":2}`, "Idempotency-Key: together")
			if err == nil && (a.status != http.StatusCreated || a.etag() == "") {
				err = fmt.Errorf("together: %d %s", a.status, a.body)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		g.stop(t)
	})
}
