package idsegment

import (
	"slices"
	"testing"
	"time"
)

func TestStepFollowsUse(t *testing.T) {
	clock := time.Unix(0, 0)
	s := newStep(Bounds{Lo: 1, Hi: 1_000_001}, Options{MinStep: 100, MaxStep: 500})
	var got []int64
	for _, life := range []time.Duration{0, 29, 29, 29, 29, 30, 60, 61, 61, 61, 61, 45, 1} {
		clock = clock.Add(life * time.Second)
		got = append(got, s.next(clock))
		s.leased(clock)
	}
	want := []int64{100, 200, 400, 500, 500, 500, 500, 250, 125, 100, 100, 100, 200}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// An outage is one short segment, however often the lease is tried.
func TestStepCountsAnOutageOnce(t *testing.T) {
	clock := time.Unix(0, 0)
	s := newStep(Bounds{Lo: 1, Hi: 1_000_001}, Options{MinStep: 100, MaxStep: 1000})
	s.next(clock)
	s.leased(clock)
	for range 5 {
		if got := s.next(clock); got != 200 {
			t.Errorf("got %d, want 200", got)
		}
	}
}

func TestStepBounds(t *testing.T) {
	for _, c := range []struct {
		rangeIDs, minStep, maxStep int64
		wantMin, wantMax           int64
	}{
		{10_000_000, 100, 10_000, 100, 10_000},
		{10_000_000, 100, 50_000, 100, 10_000},
		{10_000, 100, 10_000, 10, 10},
		{5, 100, 10_000, 1, 1},
		{10_000_000, 100, 50, 50, 50},
	} {
		for _, stride := range []int64{1, 3} { // what counts is how many IDs the issuer has
			bounds := Bounds{1, 1 + c.rangeIDs*stride, stride}
			s := newStep(bounds, Options{MinStep: c.minStep, MaxStep: c.maxStep})
			if s.min != c.wantMin || s.max != c.wantMax || s.size != c.wantMin {
				t.Errorf("%+v, %v: got %+v", c, bounds, s)
			}
		}
	}
}
