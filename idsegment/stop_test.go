package idsegment

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A graceful stop leaves no gap: the next sequence goes on where this one ended.
func TestSequenceCloseReturnsTail(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		register(t, issuer, orders, wide.Lo, wide.Hi)
		bounds, next := issuer.Bounds(wide.Lo, wide.Hi), int64(0)
		// One use that ends in the first segment, one that ends with the second prefetched, one on the edge of a segment.
		for _, uses := range []int{3, 77, 100, 1} {
			s := NewSequence(issuer, orders, bounds, nth(bounds, next), Options{MinStep: 100, MaxStep: 100, LeaseTimeout: patience})
			got := take(t, s, uses)
			if want := run(bounds, next, next+int64(uses)); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			next += int64(uses)
			for range 2 {
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.Next(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// I1: IDs that Next issued while the sequence was closing are not handed back.
func TestI1CloseAgainstNext(t *testing.T) {
	onClasses(t, func(t *testing.T, bounds Bounds) {
		issuer := newMemory(bounds)
		var all []int64
		for range 200 {
			s := NewSequence(issuer, orders, bounds, 1, Options{MinStep: 8, MaxStep: 8})
			all = append(all, concurrently(5, func(caller int) []int64 {
				if caller == 0 {
					if _, err := s.Next(t.Context()); err != nil && !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					if err := s.Close(t.Context()); err != nil {
						t.Error(err)
					}
					return nil
				}
				var ids []int64
				for {
					id, err := s.Next(t.Context())
					if errors.Is(err, ErrClosed) {
						return ids
					}
					if err != nil {
						t.Error(err)
						return ids
					}
					ids = append(ids, id)
				}
			})...)
		}
		slices.Sort(all)
		distinct(t, all, bounds)
	})
}

// Close hands back both segments as one when they touch, and only the second when another gateway is between them.
func TestSequenceCloseWithTwoSegments(t *testing.T) {
	for _, c := range []struct {
		name     string
		others   int64 // IDs leased by another gateway between the two segments
		wantNext int64 // as the number of the ID
	}{
		{"contiguous", 0, 6},
		{"separated", 20, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctests(t, func(t *testing.T, bounds Bounds) {
				issuer := newMemory(bounds)
				s := NewSequence(issuer, orders, bounds, 1, Options{MinStep: 10, MaxStep: 10})
				take(t, s, 1)
				issuer.set(func(m *memory) { m.next += c.others * m.stride })
				take(t, s, 5)
				synctest.Wait()
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if issuer.next != nth(bounds, c.wantNext) {
					t.Errorf("the issuer goes on at %d, want %d", issuer.next, nth(bounds, c.wantNext))
				}
			})
		})
	}
}

// Close waits for a lease that is on its way and hands it back; callers that wait for it are refused at once.
func TestSequenceCloseDuringRefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := newMemory(wide)
		issuer.stall = make(chan struct{})
		s := NewSequence(issuer, orders, wide, 1, Options{})
		waiter, closer := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := s.Next(t.Context())
			waiter <- err
		}()
		synctest.Wait()
		go func() { closer <- s.Close(t.Context()) }()
		if err := <-waiter; !errors.Is(err, ErrClosed) {
			t.Errorf("waiter: %v", err)
		}
		close(issuer.stall)
		if err := <-closer; err != nil {
			t.Error(err)
		}
		if issuer.next != wide.Lo {
			t.Errorf("the issuer goes on at %d", issuer.next)
		}
	})
}

func TestSequenceCloseDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := newMemory(wide)
		s := NewSequence(issuer, orders, wide, 1, Options{MinStep: 10, MaxStep: 10, LeaseTimeout: time.Minute})
		take(t, s, 1)
		stall := make(chan struct{})
		issuer.set(func(m *memory) { m.stall = stall })
		take(t, s, 5)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			if err := s.Close(ctx); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		close(stall)
		synctest.Wait()
		if issuer.next != 21 {
			t.Errorf("the issuer goes on at %d, want 21: what came in after Close gave up is lost", issuer.next)
		}
	})
}

// alarms makes a logger, and counts the lines at level error.
func alarms() (*slog.Logger, func() int) {
	var log bytes.Buffer
	return slog.New(slog.NewTextHandler(&log, nil)), func() int { return strings.Count(log.String(), "level=ERROR") }
}

// refuses checks that s says ErrRewound, also when it holds IDs or is given some, and hands nothing back.
func refuses(t *testing.T, s *Sequence, issuer *memory) {
	t.Helper()
	next := issuer.next
	for range 3 {
		s.Reuse(1)
		if _, err := s.Next(t.Context()); !errors.Is(err, ErrRewound) {
			t.Errorf("Next: %v", err)
		}
		if ids, err := s.NextN(t.Context(), 2); len(ids) > 0 || !errors.Is(err, ErrRewound) {
			t.Errorf("NextN: %v, %v", ids, err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if issuer.next != next {
		t.Errorf("Close moved the issuer from %d to %d", next, issuer.next)
	}
}

// I1: an issuer that was restored from a backup is refused by what the range table holds.
func TestI1RewindBelowFloor(t *testing.T) {
	onClasses(t, func(t *testing.T, bounds Bounds) {
		logger, count := alarms()
		issuer := newMemory(bounds)
		issuer.next = nth(bounds, 499)
		s := NewSequence(issuer, orders, bounds, nth(bounds, 499)+1, Options{Logger: logger})
		if _, err := s.Next(t.Context()); !errors.Is(err, ErrRewound) {
			t.Errorf("got %v", err)
		}
		refuses(t, s, issuer)
		if count() != 1 {
			t.Errorf("%d alarms, want 1", count())
		}
		issuer = newMemory(bounds)
		issuer.next = nth(bounds, 500)
		s = closing(t, NewSequence(issuer, orders, bounds, nth(bounds, 499)+1, Options{}))
		if ids := take(t, s, 1); ids[0] != nth(bounds, 500) {
			t.Errorf("a segment that starts at the floor: got %v", ids)
		}
	})
}

// I1: an issuer that goes back at run time is refused by what this process has seen, with the IDs at hand.
func TestI1RewindAtRunTime(t *testing.T) {
	synctests(t, func(t *testing.T, bounds Bounds) {
		logger, count := alarms()
		issuer := newMemory(bounds)
		s := NewSequence(issuer, orders, bounds, 1, Options{MinStep: 100, MaxStep: 100, Logger: logger})
		take(t, s, 1)
		issuer.set(func(m *memory) { m.next = nth(bounds, 49) })
		take(t, s, 50) // the last one starts a prefetch
		synctest.Wait()
		refuses(t, s, issuer)
		if count() != 1 {
			t.Errorf("%d alarms, want 1", count())
		}
	})
}

// The issuer's rows are emptied at run time, and even registered again.
func TestI1IssuerEmptied(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		register(t, issuer, orders, wide.Lo, wide.Hi)
		bounds := issuer.Bounds(wide.Lo, wide.Hi)
		opts := Options{MinStep: 10, MaxStep: 10, LeaseTimeout: patience}
		emptied := NewSequence(issuer, orders, bounds, 1, opts)
		again := NewSequence(issuer, orders, bounds, 1, opts)
		all := append(take(t, emptied, 1), take(t, again, 1)...)
		drain := func(s *Sequence) {
			t.Helper()
			for {
				id, err := s.Next(t.Context())
				if err != nil {
					if !errors.Is(err, ErrRewound) {
						t.Errorf("got %v", err)
					}
					break
				}
				all = append(all, id)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		execute(t, issuer, "DELETE FROM id_segment")
		drain(emptied)
		register(t, issuer, orders, wide.Lo, wide.Hi)
		drain(again)
		slices.Sort(all)
		distinct(t, all, bounds)
	})
}

// I5: a segment that reaches outside the range, or outside the issuer's class, is refused as a whole.
func TestI5SegmentOutsideRange(t *testing.T) {
	whole, third := Bounds{Lo: 10, Hi: 100}, Bounds{11, 100, 3}
	for _, c := range []struct {
		name   string
		issuer *memory
		bounds Bounds
	}{
		{"above", newMemory(Bounds{Lo: 95, Hi: 200}), whole},
		{"below", newMemory(Bounds{Lo: 5, Hi: 200}), whole},
		{"above the class", newMemory(Bounds{95, 200, 3}), third},
		{"below the class", newMemory(Bounds{5, 200, 3}), third},
		{"another class", newMemory(Bounds{12, 100, 3}), third},
		{"another stride", newMemory(Bounds{11, 100, 2}), third},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewSequence(c.issuer, orders, c.bounds, 1, Options{})
			if _, err := s.NextN(t.Context(), 10); !errors.Is(err, ErrRewound) {
				t.Errorf("got %v", err)
			}
			refuses(t, s, c.issuer)
		})
	}
}

// I5: both ends of a segment are looked at.
func TestI5SegmentCheck(t *testing.T) {
	s := NewSequence(newMemory(wide), orders, Bounds{11, 100, 3}, 1, Options{})
	for segment, ok := range map[Segment]bool{
		{11, 14}:   true,
		{98, 101}:  true,
		{11, 101}:  true,
		{12, 32}:   false, // begins in another class
		{11, 30}:   false, // ends in another class
		{11, 104}:  false,
		{101, 104}: false,
		{8, 14}:    false,
		{14, 14}:   false,
		{17, 14}:   false,
	} {
		if err := s.check(segment); (err == nil) != ok || err != nil && !errors.Is(err, ErrRewound) {
			t.Errorf("%v: %v", segment, err)
		}
	}
}

func TestSequenceDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, count := alarms()
		issuer := newMemory(wide)
		s := NewSequence(issuer, orders, wide, 1, Options{MinStep: 10, MaxStep: 10, Logger: logger})
		ids := take(t, s, 6) // and a second segment is prefetched
		synctest.Wait()
		s.Reuse(ids[0])
		s.Drop()
		s.Drop()
		refuses(t, s, issuer)
		if count() != 1 {
			t.Errorf("%d alarms, want 1", count())
		}
	})
}

// A lease that comes in after Drop is not used, and those who wait for it do not wait any longer.
func TestSequenceDropDuringRefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := newMemory(wide)
		issuer.stall = make(chan struct{})
		s := NewSequence(issuer, orders, wide, 1, Options{})
		waiter := make(chan error, 1)
		go func() {
			_, err := s.Next(t.Context())
			waiter <- err
		}()
		synctest.Wait()
		s.Drop()
		if err := <-waiter; !errors.Is(err, ErrRewound) {
			t.Errorf("waiter: %v", err)
		}
		close(issuer.stall)
		synctest.Wait()
		refuses(t, s, issuer)
	})
}

// I1: a caller that still holds a pointer to a retired buffer gets nothing from it.
func TestI1RetiredBufferIssuesNothing(t *testing.T) {
	for _, bounds := range []Bounds{{11, 21, 1}, {11, 39, 3}} { // ten IDs each
		b := newBuffer(Segment{bounds.Lo, nth(bounds, 10)}, bounds.Stride, false)
		ids := make([]int64, 4)
		if got := b.take(ids); got != 4 || !slices.Equal(ids, run(bounds, 0, 4)) {
			t.Fatalf("got %d: %v", got, ids)
		}
		if got := b.retire(); (got != Segment{nth(bounds, 4), nth(bounds, 10)}) {
			t.Errorf("left over: %v", got)
		}
		if got := b.take(ids); got != 0 {
			t.Errorf("issued %v after it was retired", ids[:got])
		}
		if got := b.retire(); got.Start < got.End {
			t.Errorf("retired twice: %v", got)
		}
	}
}
