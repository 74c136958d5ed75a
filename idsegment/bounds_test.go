package idsegment

import (
	"math"
	"slices"
	"testing"
)

// The arithmetic of bounds against a list of their IDs, for every class of up to 5 issuers and small ranges.
func TestBounds(t *testing.T) {
	for of := 1; of <= 5; of++ {
		for lo := int64(1); lo < 8; lo++ {
			for hi := lo + 1; hi < 20; hi++ {
				var all []int64
				for number := 1; number <= of; number++ {
					b := boundsOf(class{number, of}, Bounds{Lo: lo, Hi: hi})
					all = append(all, checkBounds(t, b, class{number, of}, lo, hi)...)
				}
				slices.Sort(all)
				if want := members(Bounds{Lo: lo, Hi: hi}, lo, hi); !slices.Equal(all, want) {
					t.Errorf("the classes of %d issuers have %v of [%d, %d), want each ID once", of, all, lo, hi)
				}
			}
		}
	}
}

// checkBounds compares the bounds with a list of the class's IDs in [lo, hi), and returns the list.
func checkBounds(t *testing.T, b Bounds, c class, lo, hi int64) []int64 {
	t.Helper()
	var ids []int64
	for id := lo; id < hi; id++ {
		in := id%int64(c.of) == int64(c.number%c.of)
		if b.contains(id) != in {
			t.Errorf("%v of issuer %v contains %d: %v", b, c, id, !in)
		}
		if in {
			ids = append(ids, id)
		}
	}
	if b.contains(lo-1) || b.contains(hi) || b.count() != int64(len(ids)) || b.Hi != hi || b.Stride != int64(c.of) {
		t.Errorf("%v of issuer %v has %d IDs, want %v", b, c, b.count(), ids)
	}
	for id := lo - 2; id < hi+2; id++ {
		below := int64(0)
		for below < int64(len(ids)) && ids[below] < id {
			below++
		}
		if b.countBelow(id) != below || b.ceil(id) != nth(b, below) {
			t.Errorf("%v of issuer %v: %d IDs below %d and %d next, want %d and %d",
				b, c, b.countBelow(id), id, b.ceil(id), below, nth(b, below))
		}
	}
	return ids
}

func TestBoundsLimits(t *testing.T) {
	b := Bounds{Lo: 1, Hi: math.MaxInt64}
	if b.count() != math.MaxInt64-1 || b.ceil(math.MaxInt64) != math.MaxInt64 || !b.contains(math.MaxInt64-1) {
		t.Errorf("%v has %d IDs", b, b.count())
	}
	if got := (Bounds{Lo: 2, Hi: 101, Stride: 3}).String(); got != "[2, 101) by 3" {
		t.Error(got)
	}
}
