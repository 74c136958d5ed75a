package rangeshard_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"keyrange/rangeshard"
	"keyrange/store/sqldb"
	"keyrange/test/servers"
)

func stamp(t *testing.T, cluster, node string, size int64, ranges string) rangeshard.Stamp {
	t.Helper()
	r, err := rangeshard.ParseRanges(ranges)
	if err != nil {
		t.Fatal(err)
	}
	return rangeshard.Stamp{Cluster: cluster, Node: node, RangeSize: size, Ranges: r}
}

func openDB(t *testing.T, url string) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), url, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestClaimNode(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			db := openDB(t, engine.Fresh(t))
			if _, ok, err := rangeshard.ReadStamp(t.Context(), db); ok || err != nil {
				t.Fatalf("a fresh database has a stamp: %v, %v", ok, err)
			}
			first := stamp(t, "c", "node-1", 10, "1")
			grown := stamp(t, "c", "node-1", 10, "1,4-5")
			for _, want := range []rangeshard.Stamp{first, first, grown, grown} {
				if err := rangeshard.ClaimNode(t.Context(), db, want, time.Now()); err != nil {
					t.Fatal(err)
				}
				have, ok, err := rangeshard.ReadStamp(t.Context(), db)
				if err != nil || !ok || have.String() != want.String() {
					t.Fatalf("stamped %s, found %s, %v", want, have, err)
				}
			}
			for _, other := range []rangeshard.Stamp{
				stamp(t, "d", "node-1", 10, "1,4-5"),
				stamp(t, "c", "node-2", 10, "1,4-5"),
				stamp(t, "c", "node-1", 20, "1,4-5"),
				stamp(t, "c", "node-1", 10, "1"),
				stamp(t, "c", "node-1", 10, "1,4,6"),
			} {
				err := rangeshard.ClaimNode(t.Context(), db, other, time.Now())
				if !errors.Is(err, rangeshard.ErrStamp) || !strings.Contains(err.Error(), other.String()) || !strings.Contains(err.Error(), grown.String()) {
					t.Errorf("claimed as %s: %v", other, err)
				}
			}
			if have, _, _ := rangeshard.ReadStamp(t.Context(), db); have.String() != grown.String() {
				t.Errorf("a refused claim changed the stamp to %s", have)
			}
		})
	}
}

// TestClaimNodeRace: of two gateways that claim one fresh database for different nodes, one is refused.
func TestClaimNodeRace(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			db := openDB(t, engine.Fresh(t))
			claims := []rangeshard.Stamp{stamp(t, "c", "node-1", 10, "1"), stamp(t, "c", "node-2", 10, "2")}
			errs := make([]error, 16)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { errs[i] = rangeshard.ClaimNode(t.Context(), db, claims[i%2], time.Now()) })
			}
			wg.Wait()
			have, _, err := rangeshard.ReadStamp(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			for i, err := range errs {
				mine := claims[i%2].Node == have.Node
				if mine && err != nil || !mine && !errors.Is(err, rangeshard.ErrStamp) {
					t.Errorf("the stamp says %s; claim of %s: %v", have.Node, claims[i%2].Node, err)
				}
			}
		})
	}
}
