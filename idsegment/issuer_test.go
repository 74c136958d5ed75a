package idsegment

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"keyrange/store/sqldb"
	"keyrange/test/servers"
)

var orders = Name{Collection: "orders", Range: 1}

// I1: every ID is leased to exactly one, by several gateways that lease at once until the range is exhausted.
func TestI1IssuerLeasesEveryIDOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		const lo, hi = 1001, 6001
		issuers := []*Issuer{open(), open()}
		register(t, issuers[0], orders, lo, hi)
		ids := concurrently(32, func(caller int) []int64 {
			var ids []int64
			for {
				segment, err := issuers[caller%2].Lease(t.Context(), orders, rand.Int64N(50)+1)
				if errors.Is(err, ErrExhausted) {
					return ids
				}
				if err != nil {
					t.Error(err)
					return ids
				}
				ids = append(ids, sequential(segment.Start, segment.End)...)
			}
		})
		if !slices.Equal(ids, sequential(lo, hi)) {
			t.Errorf("%d IDs from [%d, %d), want each of them once", len(ids), lo, hi)
		}
	})
}

func TestIssuerLease(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		register(t, issuer, orders, 11, 31)
		lease := func(issuer *Issuer, count int64, want Segment) {
			t.Helper()
			if got, err := issuer.Lease(t.Context(), orders, count); got != want || err != nil {
				t.Fatalf("lease %d: got %v, %v, want %v", count, got, err, want)
			}
		}
		lease(issuer, 5, Segment{11, 16})
		lease(open(), 5, Segment{16, 21}) // by an issuer that has not registered the range itself
		if _, err := issuer.Lease(t.Context(), orders, 0); err == nil {
			t.Error("leasing 0 IDs: no error")
		}
		lease(issuer, 1<<62, Segment{21, 31})
		if _, err := issuer.Lease(t.Context(), orders, 1); !errors.Is(err, ErrExhausted) {
			t.Errorf("lease of an exhausted range: %v", err)
		}
	})
}

func TestIssuerLeaseOfMissingRow(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		if _, err := issuer.Lease(t.Context(), orders, 1); !errors.Is(err, ErrRewound) {
			t.Errorf("never registered: %v", err)
		}
		register(t, issuer, orders, 1, 100)
		execute(t, issuer, "DELETE FROM id_segment")
		if _, err := issuer.Lease(t.Context(), orders, 1); !errors.Is(err, ErrRewound) {
			t.Errorf("row deleted: %v", err)
		}
	})
}

// The upper bound in the database decides, not the one that an issuer remembers.
func TestIssuerLeaseAfterBoundsChanged(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		register(t, issuer, orders, 1, 100)
		execute(t, issuer, "UPDATE id_segment SET hi = 10")
		if got, err := issuer.Lease(t.Context(), orders, 50); (got != Segment{1, 10}) || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestIssuerLeaseUnavailable(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		register(t, issuer, orders, 1, 100)
		execute(t, issuer, "DROP TABLE id_segment")
		_, err := issuer.Lease(t.Context(), orders, 1)
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("without its table: %v", err)
		}
		for _, outcome := range []error{sqldb.ErrRejected, sqldb.ErrUnavailable, sqldb.ErrUnknown} {
			if errors.Is(err, outcome) {
				t.Errorf("the error matches sqldb's %v", outcome)
			}
		}
	})
}

func TestIssuerReturn(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer, other := open(), open()
		register(t, issuer, orders, 1, 100)
		giveBack := func(tail Segment, want bool) {
			t.Helper()
			if got, err := issuer.Return(t.Context(), orders, tail); got != want || err != nil {
				t.Errorf("return %v: got %v, %v, want %v", tail, got, err, want)
			}
		}
		if _, err := issuer.Lease(t.Context(), orders, 10); err != nil {
			t.Fatal(err)
		}
		giveBack(Segment{5, 11}, true)
		giveBack(Segment{5, 11}, false) // it is back already
		giveBack(Segment{5, 5}, false)
		giveBack(Segment{0, 5}, false) // starts outside the range
		if got, err := other.Lease(t.Context(), orders, 10); (got != Segment{5, 15}) || err != nil {
			t.Fatalf("got %v, %v", got, err)
		}
		giveBack(Segment{3, 5}, false) // somebody has leased since
	})
}

func TestIssuerRegister(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer, other := open(), open()
		concurrently(8, func(caller int) []int64 {
			if err := []*Issuer{issuer, other}[caller%2].Register(t.Context(), orders, 1, 100); err != nil {
				t.Error(err)
			}
			return nil
		})
		if _, err := issuer.Lease(t.Context(), orders, 10); err != nil {
			t.Fatal(err)
		}
		register(t, issuer, orders, 1, 100) // keeps what is leased
		if got, err := issuer.Lease(t.Context(), orders, 10); (got != Segment{11, 21}) || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
		for _, bounds := range []Bounds{{1, 101}, {2, 100}} {
			if err := other.Register(t.Context(), orders, bounds.Lo, bounds.Hi); !errors.Is(err, ErrMismatch) {
				t.Errorf("register with %v: %v", bounds, err)
			}
		}
		for _, bad := range []struct {
			Name
			Bounds
		}{
			{Name{"", 1}, Bounds{1, 2}},
			{Name{strings.Repeat("x", 65), 1}, Bounds{1, 2}},
			{Name{"a", 0}, Bounds{1, 2}},
			{Name{"a", 1}, Bounds{0, 2}},
			{Name{"a", 1}, Bounds{2, 2}},
		} {
			if err := issuer.Register(t.Context(), bad.Name, bad.Lo, bad.Hi); err == nil {
				t.Errorf("register %v: no error", bad)
			}
		}
	})
}

// Collections whose names an engine might fold into one are different sequences.
func TestIssuerNamesAreBytes(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		var want []Issued
		for n, collection := range []string{"Orders", "orders", "orders ", "orders\x00", "örders", strings.Repeat("x", 64)} {
			for number := int64(1); number <= 2; number++ {
				name := Name{collection, number}
				lo := number * 1000
				register(t, issuer, name, lo, lo+1000)
				if _, err := issuer.Lease(t.Context(), name, int64(n+1)); err != nil {
					t.Fatal(err)
				}
				want = append(want, Issued{Name: name, Next: lo + int64(n+1), End: lo + 1000})
			}
		}
		slices.SortFunc(want, func(a, b Issued) int {
			return cmp.Or(strings.Compare(a.Collection, b.Collection), cmp.Compare(a.Range, b.Range))
		})
		got, err := issuer.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

// TestIssuerFresh: a database that no gateway has used yet is empty, and looking at it leaves it so.
func TestIssuerFresh(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			db, err := sqldb.Open(t.Context(), engine.Fresh(t), sqldb.Options{})
			if err != nil {
				t.Fatal(err)
			}
			issuer := NewIssuer(db)
			defer issuer.Close()
			if cluster, err := issuer.Cluster(t.Context()); cluster != "" || err != nil {
				t.Errorf("cluster %q, %v", cluster, err)
			}
			if list, err := issuer.List(t.Context()); len(list) > 0 || err != nil {
				t.Errorf("list %v, %v", list, err)
			}
			for _, table := range []string{segmentTable, clusterTable} {
				if exists, err := db.TableExists(t.Context(), table); exists || err != nil {
					t.Errorf("table %s: %v, %v", table, exists, err)
				}
			}
		})
	}
}

func TestIssuerClusterRace(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			url := engine.Fresh(t)
			var issuers []*Issuer
			for range 2 {
				db, err := sqldb.Open(t.Context(), url, sqldb.Options{})
				if err != nil {
					t.Fatal(err)
				}
				issuers = append(issuers, NewIssuer(db))
				defer db.Close()
			}
			var mu sync.Mutex
			seen := map[string]int{}
			concurrently(16, func(caller int) []int64 {
				id, err := issuers[caller%2].JoinCluster(t.Context(), fmt.Sprint("cluster-", caller))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				seen[id]++
				return nil
			})
			if len(seen) != 1 || seen[""] > 0 {
				t.Errorf("16 callers got %v, want one id for all", seen)
			}
			if id, err := issuers[0].Cluster(t.Context()); seen[id] != 16 || err != nil {
				t.Errorf("afterwards the cluster is %q, %v", id, err)
			}
			if _, err := issuers[0].JoinCluster(t.Context(), ""); err == nil {
				t.Error("an empty proposal: no error")
			}
		})
	}
}

// An issuer whose tables exist opens for a user who may not create any.
func TestIssuerReopen(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		register(t, open(), orders, 1, 100)
		again := open()
		if err := again.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if list, err := again.List(t.Context()); len(list) != 1 || err != nil {
			t.Errorf("list: %v, %v", list, err)
		}
		if !strings.Contains(again.Describe(), "://") {
			t.Errorf("describe: %q", again.Describe())
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestIssuerUnavailable(t *testing.T) {
	db, err := sqldb.Open(t.Context(), servers.FreshSQLite(t), sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	if _, err := NewIssuer(db).Cluster(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("closed database: %v", err)
	}
}
