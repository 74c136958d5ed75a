package idsegment

import (
	"errors"
	"math"
	"slices"
	"testing"

	"keyrange/test/servers"
)

// next reads where an issuer goes on.
func next(t testing.TB, issuer *Issuer, name Name) int64 {
	t.Helper()
	list, err := issuer.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(issued Issued) bool { return issued.Name == name })
	if i < 0 {
		t.Fatalf("no %v in %v", name, list)
	}
	return list[i].Next
}

func TestIssuerRaise(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer, other := open(), open()
		const lo, hi = 1, 1001
		register(t, issuer, orders, lo, hi)
		bounds := issuer.Bounds(lo, hi)
		raise := func(to int64, changed bool, wantNext int64) {
			t.Helper()
			if got, err := other.Raise(t.Context(), orders, to); got != changed || err != nil {
				t.Errorf("raise to %d: got %v, %v", to, got, err)
			}
			if got := next(t, issuer, orders); got != wantNext {
				t.Errorf("raised to %d, the issuer goes on at %d, want %d", to, got, wantNext)
			}
		}
		raise(0, false, bounds.Lo)
		raise(bounds.Lo, false, bounds.Lo)
		raise(nth(bounds, 4)+1, true, nth(bounds, 5)) // rounded up
		raise(nth(bounds, 5), false, nth(bounds, 5))
		raise(nth(bounds, 2), false, nth(bounds, 5)) // never lowered
		raise(nth(bounds, 7), true, nth(bounds, 7))
		if got, err := issuer.Lease(t.Context(), orders, 2); (got != Segment{nth(bounds, 7), nth(bounds, 9)}) || err != nil {
			t.Errorf("a lease afterwards: %v, %v", got, err)
		}
		raise(math.MaxInt64, true, bounds.ceil(hi))
		raise(hi, false, bounds.ceil(hi))
		if _, err := issuer.Lease(t.Context(), orders, 1); !errors.Is(err, ErrExhausted) {
			t.Errorf("raised to the end: %v", err)
		}
		if changed, err := issuer.Raise(t.Context(), Name{"orders", 2}, 5); changed || !errors.Is(err, ErrRewound) {
			t.Errorf("a range without a row: %v, %v", changed, err)
		}
	})
}

// I1: raising while others lease makes no ID come twice.
func TestI1RaiseAgainstLease(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer, other := open(), open()
		register(t, issuer, orders, 1, 100_001)
		bounds := issuer.Bounds(1, 100_001)
		ids := concurrently(8, func(caller int) (ids []int64) {
			for n := range int64(50) {
				if caller == 0 {
					if _, err := other.Raise(t.Context(), orders, n*20); err != nil {
						t.Error(err)
					}
					continue
				}
				segment, err := issuer.Lease(t.Context(), orders, 3)
				if err != nil {
					t.Error(err)
				}
				ids = append(ids, members(bounds, segment.Start, segment.End)...)
			}
			return ids
		})
		if len(ids) != 7*50*3 {
			t.Errorf("got %d IDs", len(ids))
		}
		distinct(t, ids, bounds)
	})
}

func TestIssuerRebuild(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		register(t, issuer, orders, 1, 1001)
		register(t, issuer, Name{"forgotten", 1}, 1, 1001)
		ranges := []Issued{
			{Name: Name{"a", 1}, Bounds: Bounds{Lo: 1, Hi: 1001}, Next: 500},
			{Name: Name{"a", 2}, Bounds: Bounds{Lo: 1001, Hi: 2001, Stride: 7}, Next: 0},
			{Name: Name{"b", 1}, Bounds: Bounds{Lo: 1, Hi: 1001}, Next: 9999},
			{Name: orders, Bounds: Bounds{Lo: 1, Hi: 501}, Next: 1},
		}
		want := func() (want []Issued) {
			for _, r := range ranges {
				b := issuer.Bounds(r.Lo, r.Hi)
				want = append(want, Issued{Name: r.Name, Bounds: b, Next: b.ceil(r.Next)})
			}
			return want
		}
		for range 2 { // the second time it is what it was
			if err := issuer.Rebuild(t.Context(), "renamed", ranges); err != nil {
				t.Fatal(err)
			}
			if got, err := issuer.List(t.Context()); !slices.Equal(got, want()) || err != nil {
				t.Errorf("got  %v, %v\nwant %v", got, err, want())
			}
			if got, err := issuer.Identity(t.Context()); (got != Identity{"renamed", issuer.number, issuer.of}) || err != nil {
				t.Errorf("identity %v, %v", got, err)
			}
		}
		if got, err := issuer.Lease(t.Context(), orders, 1000); (got != Segment{want()[3].Lo, want()[3].ceil(501)}) || err != nil {
			t.Errorf("a lease by the bounds that it remembered from before: %v, %v", got, err)
		}
		for name, bad := range map[string][]Issued{
			"twice":      {ranges[0], ranges[0]},
			"no name":    {{Bounds: Bounds{Lo: 1, Hi: 2}}},
			"no IDs":     {{Name: orders, Bounds: Bounds{Lo: 2, Hi: 2}}},
			"beyond all": {{Name: orders, Bounds: Bounds{Lo: 2, Hi: math.MaxInt64}}},
		} {
			if err := issuer.Rebuild(t.Context(), "bad", bad); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		if err := issuer.Rebuild(t.Context(), "", nil); err == nil {
			t.Error("without a cluster: no error")
		}
		if got, err := issuer.Identity(t.Context()); got.Cluster != "renamed" || err != nil {
			t.Errorf("after refused calls the identity is %v, %v", got, err)
		}
	})
}

// A database without tables is rebuilt too.
func TestIssuerRebuildFresh(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			issuer := unjoined(t, engine.Fresh(t), class{3, 3})
			if err := issuer.Rebuild(t.Context(), "new", []Issued{{Name: orders, Bounds: Bounds{Lo: 1, Hi: 101}, Next: 50}}); err != nil {
				t.Fatal(err)
			}
			if id, err := issuer.JoinCluster(t.Context(), "other"); id != "new" || err != nil {
				t.Errorf("joined %q, %v", id, err)
			}
			if got, err := issuer.Lease(t.Context(), orders, 1); (got != Segment{51, 54}) || err != nil {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// I1: gateways that still count the issuers as before get nothing from a database that was rebuilt behind their back,
// neither IDs nor new ranges, and hand nothing back to it; also when only the numbers were swapped.
func TestI1RebuiltBehindAGateway(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		for name, to := range map[string]class{"grown": {1, 3}, "swapped": {2, 2}} {
			t.Run(engine.Name+"/"+name, func(t *testing.T) {
				url := engine.Fresh(t)
				before := openIssuer(t, url, class{1, 2})
				register(t, before, orders, 1, 1_000_001)
				held, err := before.Lease(t.Context(), orders, 9) // its end, 19, is also an ID of issuer 1 of 3
				if err != nil {
					t.Fatal(err)
				}
				s := closing(t, NewSequence(before, orders, before.Bounds(1, 1_000_001), 1, Options{LeaseTimeout: patience}))
				rebuilt := unjoined(t, url, to)
				err = rebuilt.Rebuild(t.Context(), "test", []Issued{{Name: orders, Bounds: Bounds{Lo: 1, Hi: 1_000_001}, Next: held.End}})
				if err != nil {
					t.Fatal(err)
				}
				wantNext := rebuilt.Bounds(1, 1_000_001).ceil(held.End)
				if _, err := before.Lease(t.Context(), orders, 10); !errors.Is(err, ErrMismatch) {
					t.Errorf("lease: %v", err)
				}
				if _, err := s.Next(t.Context()); !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrMismatch) {
					t.Errorf("sequence: %v", err)
				}
				if err := before.Register(t.Context(), Name{"orders", 2}, 1_000_001, 2_000_001); !errors.Is(err, ErrMismatch) {
					t.Errorf("register: %v", err)
				}
				if ok, err := before.Return(t.Context(), orders, held); ok || err != nil {
					t.Errorf("return: %v, %v", ok, err)
				}
				list, err := rebuilt.List(t.Context())
				if len(list) != 1 || list[0].Next != wantNext || err != nil {
					t.Errorf("the database holds %v, %v, want it to go on at %d", list, err, wantNext)
				}
			})
		}
	}
}

// Rebuilding while gateways still register and lease leaves only what belongs to the new class.
func TestI1RebuildAgainstRegister(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			url := engine.Fresh(t)
			before, after := openIssuer(t, url, class{1, 1}), unjoined(t, url, class{1, 2})
			concurrently(9, func(caller int) []int64 {
				if caller == 0 {
					if err := after.Rebuild(t.Context(), "test", nil); err != nil {
						t.Error(err)
					}
					return nil
				}
				for n := range int64(20) {
					err := before.Register(t.Context(), Name{"c", int64(caller)*100 + n}, 1, 100)
					if err != nil && !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrUnavailable) {
						t.Error(err)
					}
				}
				return nil
			})
			if list, err := after.List(t.Context()); len(list) > 0 || err != nil {
				t.Errorf("rows of the old class are left: %v, %v", list, err)
			}
		})
	}
}
