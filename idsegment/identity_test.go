package idsegment

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"keyrange/store/sqldb"
	"keyrange/test/servers"
)

// TestIssuerFresh: a database that no gateway has used yet is empty, and looking at it leaves it so.
func TestIssuerFresh(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			issuer := unjoined(t, engine.Fresh(t), class{2, 3})
			if identity, err := issuer.Identity(t.Context()); identity != (Identity{}) || err != nil {
				t.Errorf("identity %v, %v", identity, err)
			}
			if list, err := issuer.List(t.Context()); len(list) > 0 || err != nil {
				t.Errorf("list %v, %v", list, err)
			}
			for _, table := range []string{segmentTable, clusterTable} {
				if exists, err := issuer.db.TableExists(t.Context(), table); exists || err != nil {
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
			issuers := []*Issuer{unjoined(t, url, class{2, 3}), unjoined(t, url, class{2, 3})}
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
			identity, err := issuers[0].Identity(t.Context())
			if seen[identity.Cluster] != 16 || identity.Number != 2 || identity.Of != 3 || err != nil {
				t.Errorf("afterwards the database is %v, %v", identity, err)
			}
			if _, err := issuers[0].JoinCluster(t.Context(), ""); err == nil {
				t.Error("an empty proposal: no error")
			}
		})
	}
}

// A database that is opened as another issuer, or as one of another number of issuers, is refused, whoever asks.
func TestI1IssuerMistaken(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		for name, as := range map[string]class{"swapped": {1, 3}, "fewer": {2, 2}, "more": {2, 4}, "single": {1, 1}} {
			t.Run(engine.Name+"/"+name, func(t *testing.T) {
				url := engine.Fresh(t)
				right := openIssuer(t, url, class{2, 3})
				register(t, right, orders, 1, 1001)
				wrong := unjoined(t, url, as)
				_, err := wrong.JoinCluster(t.Context(), "test")
				refused := func(what string, err error) {
					t.Helper()
					if !errors.Is(err, ErrMismatch) {
						t.Errorf("%s: %v", what, err)
					}
				}
				refused("join", err)
				for _, side := range []string{"issuer 2 of 3", fmt.Sprintf("issuer %d of %d", as.number, as.of)} {
					if !strings.Contains(err.Error(), side) {
						t.Errorf("join: %v, want it to name %q", err, side)
					}
				}
				refused("register the same range", wrong.Register(t.Context(), orders, 1, 1001))
				other := Name{"orders", 2}
				refused("register another range", wrong.Register(t.Context(), other, 1001, 2001))
				_, err = wrong.Lease(t.Context(), orders, 10)
				refused("lease", err)
				_, err = wrong.Lease(t.Context(), other, 10)
				refused("lease from a range without a row", err)
				_, err = wrong.Raise(t.Context(), orders, 500)
				refused("raise", err)
				list, err := wrong.List(t.Context())
				if want := (Issued{Name: orders, Bounds: Bounds{2, 1001, 3}, Next: 2}); len(list) != 1 || list[0] != want || err != nil {
					t.Errorf("the database holds %v, %v, want only %v", list, err, want)
				}
				if identity, err := wrong.Identity(t.Context()); (identity != Identity{"test", 2, 3}) || err != nil {
					t.Errorf("the database is %v, %v", identity, err)
				}
			})
		}
	}
}

// A database without an identity takes no ranges: they would be of an unknown class.
func TestIssuerRegisterBeforeJoin(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		execute(t, issuer, "DELETE FROM id_cluster")
		if err := issuer.Register(t.Context(), orders, 1, 100); !errors.Is(err, ErrMismatch) {
			t.Errorf("got %v", err)
		}
	})
}

func TestNewIssuerNumbers(t *testing.T) {
	db, err := sqldb.Open(t.Context(), servers.FreshSQLite(t), sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, bad := range []class{{0, 1}, {2, 1}, {0, 0}, {-1, 3}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("issuer %v was accepted", bad)
				}
			}()
			NewIssuer(db, bad.number, bad.of)
		}()
	}
	if got := NewIssuer(db, 2, 3).Number(); got != 2 {
		t.Errorf("number %d", got)
	}
}

func TestIssuerUnavailable(t *testing.T) {
	db, err := sqldb.Open(t.Context(), servers.FreshSQLite(t), sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	if _, err := NewIssuer(db, 1, 1).Identity(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("closed database: %v", err)
	}
}
