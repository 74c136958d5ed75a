package idsegment

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
		bounds := issuers[0].Bounds(lo, hi)
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
				for id := segment.Start; id < segment.End; id += bounds.Stride {
					ids = append(ids, id)
				}
			}
		})
		if !slices.Equal(ids, members(bounds, lo, hi)) {
			t.Errorf("%d IDs from %v, want each of them once", len(ids), bounds)
		}
	})
}

func TestIssuerLease(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		const lo = 10 // which is no ID of every class
		of := int64(issuer.of)
		hi := lo + 20*of // an end of the last segment in the middle of a stride
		register(t, issuer, orders, lo, hi)
		bounds := issuer.Bounds(lo, hi)
		segment := func(from, to int64) Segment { return Segment{nth(bounds, from), nth(bounds, to)} }
		lease := func(issuer *Issuer, count int64, want Segment) {
			t.Helper()
			if got, err := issuer.Lease(t.Context(), orders, count); got != want || err != nil {
				t.Fatalf("lease %d: got %v, %v, want %v", count, got, err, want)
			}
		}
		lease(issuer, 5, segment(0, 5))
		lease(open(), 5, segment(5, 10)) // by an issuer that has not registered the range itself
		if _, err := issuer.Lease(t.Context(), orders, 0); err == nil {
			t.Error("leasing 0 IDs: no error")
		}
		lease(issuer, 1<<62, segment(10, 20))
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
		bounds := issuer.Bounds(1, 10)
		want := Segment{bounds.Lo, bounds.ceil(10)}
		if got, err := issuer.Lease(t.Context(), orders, 50); got != want || err != nil {
			t.Errorf("got %v, %v, want %v", got, err, want)
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
		bounds := issuer.Bounds(1, 100)
		segment := func(from, to int64) Segment { return Segment{nth(bounds, from), nth(bounds, to)} }
		giveBack := func(tail Segment, want bool) {
			t.Helper()
			if got, err := issuer.Return(t.Context(), orders, tail); got != want || err != nil {
				t.Errorf("return %v: got %v, %v, want %v", tail, got, err, want)
			}
		}
		if _, err := issuer.Lease(t.Context(), orders, 10); err != nil {
			t.Fatal(err)
		}
		if bounds.Stride > 1 {
			giveBack(Segment{nth(bounds, 4) + 1, nth(bounds, 10)}, false) // starts in another issuer's class
			giveBack(Segment{nth(bounds, 4), nth(bounds, 10) + 1}, false)
		}
		giveBack(segment(4, 10), true)
		giveBack(segment(4, 10), false) // it is back already
		giveBack(segment(4, 4), false)
		giveBack(segment(-1, 4), false) // starts outside the range
		if got, err := other.Lease(t.Context(), orders, 10); got != segment(4, 14) || err != nil {
			t.Fatalf("got %v, %v", got, err)
		}
		giveBack(segment(2, 4), false) // somebody has leased since
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
		own := issuer.Bounds(1, 100)
		if got, err := issuer.Lease(t.Context(), orders, 10); (got != Segment{nth(own, 10), nth(own, 20)}) || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
		for _, bounds := range []Bounds{{Lo: 1, Hi: 101}, {Lo: own.Lo + 1, Hi: 100}} {
			if err := other.Register(t.Context(), orders, bounds.Lo, bounds.Hi); !errors.Is(err, ErrMismatch) {
				t.Errorf("register with %v: %v", bounds, err)
			}
		}
		for _, bad := range []struct {
			Name
			Bounds
		}{
			{Name{"", 1}, Bounds{Lo: 1, Hi: 2}},
			{Name{strings.Repeat("x", 65), 1}, Bounds{Lo: 1, Hi: 2}},
			{Name{"a", 0}, Bounds{Lo: 1, Hi: 2}},
			{Name{"a", 1}, Bounds{Lo: 0, Hi: 2}},
			{Name{"a", 1}, Bounds{Lo: 2, Hi: 2}},
			{Name{"a", 1}, Bounds{Lo: 1, Hi: math.MaxInt64}},
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
				bounds := issuer.Bounds(lo, lo+1000)
				want = append(want, Issued{Name: name, Bounds: bounds, Next: nth(bounds, int64(n+1))})
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

// The largest bounds that a row can hold are leased to their end.
func TestIssuerLeaseHighestIDs(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		hi := math.MaxInt64 - int64(issuer.of)
		register(t, issuer, orders, hi-10, hi)
		bounds := issuer.Bounds(hi-10, hi)
		if got, err := issuer.Lease(t.Context(), orders, math.MaxInt64); (got != Segment{bounds.Lo, bounds.ceil(hi)}) || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
		if _, err := issuer.Lease(t.Context(), orders, math.MaxInt64); !errors.Is(err, ErrExhausted) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A range that is smaller than the number of issuers has no IDs for some of them.
func TestIssuerWithoutIDs(t *testing.T) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			issuer := openIssuer(t, engine.Fresh(t), class{3, 3})
			register(t, issuer, orders, 1, 3)
			register(t, issuer, orders, 1, 3)
			if _, err := issuer.Lease(t.Context(), orders, 1); !errors.Is(err, ErrExhausted) {
				t.Errorf("lease: %v", err)
			}
			s := closing(t, NewSequence(issuer, orders, issuer.Bounds(1, 3), 1, Options{LeaseTimeout: patience}))
			if _, err := s.Next(t.Context()); !errors.Is(err, ErrExhausted) || s.issued() != 0 {
				t.Errorf("sequence: %v, %d issued", err, s.issued())
			}
		})
	}
}
