package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// contended starts a gateway on MySQL and MongoDB for clients that want the same record.
func contended(t *testing.T) *gateway.Process {
	t.Helper()
	g := gateway.Start(t, gateway.NewStack(t, servers.MySQLKind, 2, 10_000_000).Config())
	t.Cleanup(func() { g.Stop(t) })
	return g
}

// tally counts the answers of a kind.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

// add counts an answer by its status and code.
func (c *tally) add(a gateway.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count = map[string]int{}
	}
	c.count[strings.TrimSpace(fmt.Sprint(a.Status, " ", a.Code()))]++
}

// want compares the counts.
func (c *tally) want(t *testing.T, want map[string]int) {
	t.Helper()
	if fmt.Sprint(c.count) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", c.count, want)
	}
}

// TestPutWithOneETag: of clients that all put with the same ETag, exactly one wins, round after round, and nobody waits.
func TestPutWithOneETag(t *testing.T) {
	const clients, rounds = 16, 1_000
	g := contended(t)
	etag := g.Expect(t, http.StatusCreated, "PUT", "/v1/records/a", `{"n":0}`).ETag()
	for round := 1; round <= rounds; round++ {
		var winner atomic.Pointer[gateway.Answer]
		err := gateway.Together(clients, func(c int) error {
			a, err := g.Call("PUT", "/v1/records/a", fmt.Sprintf(`{"n":%d,"by":%d}`, round, c), `If-Match: "`+etag+`"`)
			switch {
			case err != nil:
				return err
			case a.Status == http.StatusOK && !winner.CompareAndSwap(nil, &a):
				return fmt.Errorf("two clients won: %s and %s", a.Body, winner.Load().Body)
			case a.Status != http.StatusOK && a.Code() != "precondition_failed":
				return fmt.Errorf("%d %s", a.Status, a.Body)
			}
			return nil
		})
		if err != nil || winner.Load() == nil {
			t.Fatalf("round %d with %s: %v, winner %v", round, etag, err, winner.Load())
		}
		etag = winner.Load().ETag()
		if round%100 == 0 {
			if a := g.Expect(t, http.StatusOK, "GET", "/v1/records/a", ""); a.ETag() != etag || a.Body != winner.Load().Body {
				t.Fatalf("round %d: stored is %s %s, acknowledged was %s %s", round, a.ETag(), a.Body, etag, winner.Load().Body)
			}
		}
	}
	if etag != fmt.Sprintf("1-%d", rounds+1) {
		t.Errorf("after %d rounds the record is at %s", rounds, etag)
	}
}

// TestPutsOfOneMissingKey: a hundred clients put a key that has no record; one record comes of it and no fault.
func TestPutsOfOneMissingKey(t *testing.T) {
	g := contended(t)
	for round := range 5 {
		var answers tally
		path := fmt.Sprintf("/v1/records/key-%d", round)
		err := gateway.Together(100, func(c int) error {
			a, err := g.Call("PUT", path, fmt.Sprintf(`{"n":%d}`, c))
			answers.add(a)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		answers.want(t, map[string]int{"201": 1, "200": 99})
		if a := g.Expect(t, http.StatusOK, "GET", path, ""); !strings.HasSuffix(a.ETag(), "-100") {
			t.Errorf("after 100 writes the record is at %s", a.ETag())
		}
	}
}

// TestPostsOfOneKey: of many clients that post one key, one creates it and the others are told that it exists, within their deadlines.
func TestPostsOfOneKey(t *testing.T) {
	const clients = 64
	g := contended(t)
	for round := range 20 {
		var answers tally
		err := gateway.Together(clients, func(c int) error {
			a, err := g.Call("POST", "/v1/records", fmt.Sprintf(`{"key":"key-%d","by":%d}`, round, c))
			answers.add(a)
			if err == nil && a.ETag() == "" {
				err = fmt.Errorf("no ETag: %d %s", a.Status, a.Body)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		answers.want(t, map[string]int{"201": 1, "409 record_exists": clients - 1})
	}
}

// TestDeleteAgainstPost: a key is deleted and posted at once, in loops: nobody stalls, every answer fits one serial order,
// and the key can be posted right after it was deleted.
func TestDeleteAgainstPost(t *testing.T) {
	g := contended(t)
	for round := range 25 {
		path, body := fmt.Sprintf("/v1/records/key-%d", round), fmt.Sprintf(`{"key":"key-%d"}`, round)
		g.Expect(t, http.StatusCreated, "POST", "/v1/records", body)
		var posted, deleted gateway.Answer
		err := gateway.Together(2, func(client int) (err error) {
			if client == 0 {
				posted, err = g.Call("POST", "/v1/records", body)
			} else {
				deleted, err = g.Call("DELETE", path, "")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		// Either the post came first and met the record, or the delete did and made room.
		want := map[int]int{http.StatusConflict: http.StatusNotFound, http.StatusCreated: http.StatusOK}[posted.Status]
		if a := g.Do(t, "GET", path, ""); deleted.Status != http.StatusNoContent || a.Status != want {
			t.Fatalf("round %d: POST %d %s, DELETE %d %s, then GET %d", round, posted.Status, posted.Body, deleted.Status, deleted.Body, a.Status)
		}
		if want == http.StatusOK {
			g.Expect(t, http.StatusNoContent, "DELETE", path, "")
		}
		for range 5 {
			g.Expect(t, http.StatusCreated, "POST", "/v1/records", body)
			g.Expect(t, http.StatusNoContent, "DELETE", path, "")
			g.Expect(t, http.StatusNotFound, "GET", path, "")
		}
	}
}

// TestBulkDuplicateKey: a key that is twice in one bulk is created once, the other items are done, and the whole bulk may
// be sent again, by several clients at once.
func TestBulkDuplicateKey(t *testing.T) {
	g := contended(t)
	var items []string
	for i := range 300 {
		items = append(items, fmt.Sprintf(`{"key":"key-%d","i":%d}`, i%200, i))
	}
	body := "[" + strings.Join(items, ",") + "]"
	if a := g.Expect(t, http.StatusOK, "POST", "/v1/records", body); strings.Count(a.Body, `"status":201`) != 200 || strings.Count(a.Body, `"status":409`) != 100 {
		t.Errorf("%d created: %.200s", strings.Count(a.Body, `"status":201`), a.Body)
	}
	err := gateway.Together(4, func(int) error {
		a, err := g.Call("POST", "/v1/records", body)
		if n := strings.Count(a.Body, `"status":409`); err == nil && n != 300 {
			err = fmt.Errorf("sent again: %d conflicts: %.200s", n, a.Body)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, i := range []int{0, 99, 199} {
		if a := g.Expect(t, http.StatusOK, "GET", fmt.Sprintf("/v1/records/key-%d", i), ""); a.Body != items[i] {
			t.Errorf("the first of two did not win: %s", a.Body)
		}
	}
}

// TestPatchesOfOneRecord: clients that patch different members of one record at once all get through, and none undoes
// another's patch.
func TestPatchesOfOneRecord(t *testing.T) {
	const clients, rounds = 8, 25
	g := contended(t)
	g.Expect(t, http.StatusCreated, "PUT", "/v1/records/a", `{"big":18446744073709551615}`)
	err := gateway.Together(clients, func(c int) error {
		for i := range rounds {
			for {
				a, err := g.Call("PATCH", "/v1/records/a", fmt.Sprintf(`{"m-%d-%d":12.50}`, c, i))
				if err != nil {
					return err
				}
				if a.Status == http.StatusOK {
					break
				}
				if a.Code() != "busy" || a.Header.Get("Retry-After") == "" {
					return fmt.Errorf("%d %s", a.Status, a.Body)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	a := g.Expect(t, http.StatusOK, "GET", "/v1/records/a", "")
	if n := strings.Count(a.Body, `:12.50`); n != clients*rounds || a.ETag() != fmt.Sprintf("1-%d", clients*rounds+1) || !strings.Contains(a.Body, `"big":18446744073709551615`) {
		t.Errorf("%d members of %d, at %s: %.200s", n, clients*rounds, a.ETag(), a.Body)
	}
}
