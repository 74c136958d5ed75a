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
		next := int64(1)
		// One use that ends in the first segment, one that ends with the second prefetched, one on the edge of a segment.
		for _, uses := range []int{3, 77, 100, 1} {
			s := NewSequence(issuer, orders, wide, next, Options{MinStep: 100, MaxStep: 100, LeaseTimeout: patience})
			got := take(t, s, uses)
			if want := sequential(next, next+int64(uses)); !slices.Equal(got, want) {
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
	issuer := newMemory(wide.Lo, wide.Hi)
	var all []int64
	for range 200 {
		s := NewSequence(issuer, orders, wide, 1, Options{MinStep: 8, MaxStep: 8})
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
	distinct(t, all, wide.Lo, wide.Hi)
}

// Close hands back both segments as one when they touch, and only the second when another gateway is between them.
func TestSequenceCloseWithTwoSegments(t *testing.T) {
	for _, c := range []struct {
		name     string
		others   int64 // IDs leased by another gateway between the two segments
		wantNext int64
	}{
		{"contiguous", 0, 7},
		{"separated", 20, 31},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				issuer := newMemory(wide.Lo, wide.Hi)
				s := NewSequence(issuer, orders, wide, 1, Options{MinStep: 10, MaxStep: 10})
				take(t, s, 1)
				issuer.set(func(m *memory) { m.next += c.others })
				take(t, s, 5)
				synctest.Wait()
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if issuer.next != c.wantNext {
					t.Errorf("the issuer goes on at %d, want %d", issuer.next, c.wantNext)
				}
			})
		})
	}
}

// Close waits for a lease that is on its way and hands it back; callers that wait for it are refused at once.
func TestSequenceCloseDuringRefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := newMemory(wide.Lo, wide.Hi)
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
		issuer := newMemory(wide.Lo, wide.Hi)
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
	logger, count := alarms()
	issuer := newMemory(1, 1000)
	s := NewSequence(issuer, orders, Bounds{1, 1000}, 501, Options{Logger: logger})
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrRewound) {
		t.Errorf("got %v", err)
	}
	refuses(t, s, issuer)
	if count() != 1 {
		t.Errorf("%d alarms, want 1", count())
	}
	s = closing(t, NewSequence(newMemory(501, 1000), orders, Bounds{1, 1000}, 501, Options{}))
	if ids := take(t, s, 1); ids[0] != 501 {
		t.Errorf("a segment that starts at the floor: got %v", ids)
	}
}

// I1: an issuer that goes back at run time is refused by what this process has seen, with the IDs at hand.
func TestI1RewindAtRunTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, count := alarms()
		issuer := newMemory(wide.Lo, wide.Hi)
		s := NewSequence(issuer, orders, wide, 1, Options{MinStep: 100, MaxStep: 100, Logger: logger})
		take(t, s, 1)
		issuer.set(func(m *memory) { m.next = 50 })
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
		opts := Options{MinStep: 10, MaxStep: 10, LeaseTimeout: patience}
		emptied := NewSequence(issuer, orders, wide, 1, opts)
		again := NewSequence(issuer, orders, wide, 1, opts)
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
		distinct(t, all, wide.Lo, wide.Hi)
	})
}

// I5: a segment that reaches outside the range is refused as a whole.
func TestI5SegmentOutsideRange(t *testing.T) {
	for name, issuer := range map[string]*memory{"above": newMemory(95, 200), "below": newMemory(5, 200)} {
		t.Run(name, func(t *testing.T) {
			s := NewSequence(issuer, orders, Bounds{10, 100}, 1, Options{})
			if _, err := s.NextN(t.Context(), 10); !errors.Is(err, ErrRewound) {
				t.Errorf("got %v", err)
			}
			refuses(t, s, issuer)
		})
	}
}

func TestSequenceDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, count := alarms()
		issuer := newMemory(wide.Lo, wide.Hi)
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
		issuer := newMemory(wide.Lo, wide.Hi)
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
	b := newBuffer(Segment{11, 21}, false)
	ids := make([]int64, 4)
	if got := b.take(ids); got != 4 || !slices.Equal(ids, sequential(11, 15)) {
		t.Fatalf("got %d: %v", got, ids)
	}
	if got := b.retire(); (got != Segment{15, 21}) {
		t.Errorf("left over: %v", got)
	}
	if got := b.take(ids); got != 0 {
		t.Errorf("issued %v after it was retired", ids[:got])
	}
	if got := b.retire(); got.Start < got.End {
		t.Errorf("retired twice: %v", got)
	}
}
