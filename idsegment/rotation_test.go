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

// Records that are created one after another get neighbouring IDs, and of those that several issuers gave to one caller
// none is lost.
func TestRotationTakesTurns(t *testing.T) {
	rotating(t, func(t *testing.T, r *trio) {
		ids := steadily(t, r, 200)
		for n, id := range ids {
			if want := int64(n + 1); id < want-6 || id > want+6 { // two turns
				t.Errorf("ID %d in place %d", id, want)
			}
		}
		slices.Sort(ids)
		distinct(t, ids, wide)
		if !slices.Equal(ids[:190], run(wide, 0, 190)) {
			t.Errorf("got %v", ids)
		}
		if issued := r.Issued(); issued < 200 || issued > 200+3*20 {
			t.Errorf("%d IDs are leased", issued)
		}
	})
}

// The turns of an issuer that is not there fall to the others in equal shares.
func TestRotationSharesTheTurnsOfTheMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrio(wide)
		r.Drop(2)
		count := map[int]int{}
		for _, id := range steadily(t, r, 200) {
			i, _ := r.slotOf(id)
			count[i]++
		}
		if count[0] < 95 || count[2] < 95 {
			t.Errorf("IDs by issuer: %v", count)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Issuers that are down cost the others nothing, and get a lease to fail a second.
func TestRotationTwoUnavailable(t *testing.T) {
	rotating(t, func(t *testing.T, r *trio) {
		r.fail(ErrUnavailable, 0, 2)
		started := time.Now()
		var ids []int64
		for range 1000 {
			ids = append(ids, take(t, r, 1)...)
			time.Sleep(10 * time.Millisecond)
		}
		only(t, r, ids, 1)
		if waited := time.Since(started) - 10*time.Second; waited > 0 {
			t.Errorf("callers waited %v", waited)
		}
		for _, i := range []int{0, 2} {
			// One more when the first ID of all was asked for.
			if leases := len(r.issuers[i].asked()); leases < 9 || leases > 12 {
				t.Errorf("%d leases in 10 s at an issuer that is down", leases)
			}
		}
		if missing := r.Missing(); len(missing) > 0 {
			t.Errorf("missing: %v", missing)
		}
		r.fail(nil)
		time.Sleep(refillPause)
		take(t, r, 3)
		synctest.Wait()
		if ids := take(t, r, 30); !slices.ContainsFunc(ids, func(id int64) bool { return id%3 == 1 }) {
			t.Errorf("an issuer that is up again is not used: %v", ids)
		}
	})
}

// Stalled issuers do not delay what another one can give, from the first ID on.
func TestRotationTwoStalled(t *testing.T) {
	rotating(t, func(t *testing.T, r *trio) {
		resume := r.stall(0, 1)
		started := time.Now()
		ids := concurrently(20, func(int) []int64 { return take(t, r, 50) })
		only(t, r, ids, 2)
		distinct(t, ids, r.bounds(2))
		if waited := time.Since(started); waited > 0 {
			t.Errorf("callers waited %v", waited)
		}
		resume()
		synctest.Wait() // their leases come in
		ids = take(t, r, 30)
		if !slices.ContainsFunc(ids, func(id int64) bool { return id%3 == 1 }) || !slices.ContainsFunc(ids, func(id int64) bool { return id%3 == 2 }) {
			t.Errorf("issuers that answer again are not used: %v", ids)
		}
	})
}

// When no issuer answers, callers wait for the end of the lease or of their own deadline.
func TestRotationAllStalled(t *testing.T) {
	rotating(t, func(t *testing.T, r *trio) {
		resume := r.stall(0, 1, 2)
		started := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := r.Next(ctx); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(started); waited != 300*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
		if _, err := r.Next(t.Context()); !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(started); waited != defaultLeaseTimeout {
			t.Errorf("waited %v", waited)
		}
		resume()
		take(t, r, 3)
	})
}

// Which error it is when several issuers fail for different reasons.
func TestRotationErrors(t *testing.T) {
	unavailable := func(r *trio, i int) { r.issuers[i].set(func(m *memory) { m.fail = ErrUnavailable }) }
	mismatch := func(r *trio, i int) { r.issuers[i].set(func(m *memory) { m.fail = ErrMismatch }) }
	exhausted := func(r *trio, i int) { r.issuers[i].set(func(m *memory) { m.next = m.hi }) }
	rewound := func(r *trio, i int) { r.issuers[i].set(func(m *memory) { m.fail = ErrRewound }) }
	dropped := func(r *trio, i int) { r.Drop(r.bounds(i).Lo) }
	missing := func(r *trio, i int) { r.slots[i].sequence.Store(nil) }
	type state = func(r *trio, i int)
	for name, c := range map[string]struct {
		states [3]state
		want   error
	}{
		"all unavailable":               {[3]state{unavailable, unavailable, unavailable}, ErrUnavailable},
		"all missing":                   {[3]state{missing, missing, missing}, ErrUnavailable},
		"mismatch":                      {[3]state{mismatch, missing, mismatch}, ErrUnavailable},
		"all exhausted":                 {[3]state{exhausted, exhausted, exhausted}, ErrExhausted},
		"exhausted and unavailable":     {[3]state{unavailable, exhausted, unavailable}, ErrExhausted},
		"exhausted, missing, rewound":   {[3]state{missing, rewound, exhausted}, ErrExhausted},
		"all rewound":                   {[3]state{rewound, rewound, rewound}, ErrRewound},
		"rewound, dropped, missing":     {[3]state{rewound, dropped, missing}, ErrRewound},
		"one dropped and two missing":   {[3]state{missing, dropped, missing}, ErrRewound},
		"rewound, missing, unavailable": {[3]state{rewound, missing, unavailable}, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			rotating(t, func(t *testing.T, r *trio) {
				for i, state := range c.states {
					state(r, i)
				}
				for range 3 {
					refused(t, r, c.want)
				}
				time.Sleep(time.Minute)
				refused(t, r, c.want)
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
				refused(t, r, ErrClosed)
			})
		})
	}
}

// Every ID of the range is issued before it is exhausted, by issuers that come to the end at different times.
func TestRotationUntilExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrio(Bounds{Lo: 1, Hi: 500})
		r.issuers[1].next = r.bounds(1).ceil(400)
		ids := concurrently(8, func(int) (ids []int64) {
			for {
				id, err := r.Next(t.Context())
				if err != nil {
					if !errors.Is(err, ErrExhausted) {
						t.Error(err)
					}
					return ids
				}
				ids = append(ids, id)
			}
		})
		want := slices.Concat(run(r.bounds(0), 0, 167), members(r.bounds(1), 400, 500), run(r.bounds(2), 0, 166))
		slices.Sort(want)
		if !slices.Equal(ids, want) {
			t.Errorf("got %d IDs, want %d", len(ids), len(want))
		}
		if r.Issued() != 499 {
			t.Errorf("%d IDs are leased", r.Issued())
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An exhausted issuer is not asked at every call, but now and then, because another gateway may hand IDs back.
func TestRotationExhaustedRests(t *testing.T) {
	rotating(t, func(t *testing.T, r *trio) {
		take(t, r, 1)
		synctest.Wait()
		for i := range 3 {
			r.issuers[i].set(func(m *memory) { m.hi = m.next })
		}
		for {
			if _, err := r.Next(t.Context()); err != nil {
				break
			}
		}
		asked := func() (n int) {
			for _, issuer := range r.issuers {
				n += len(issuer.asked())
			}
			return n
		}
		before := asked()
		for range 100 {
			refused(t, r, ErrExhausted)
		}
		if asked() != before {
			t.Errorf("%d leases at exhausted issuers", asked()-before)
		}
		r.issuers[1].set(func(m *memory) { m.hi = wide.Hi })
		time.Sleep(refillPause)
		_, _ = r.Next(t.Context()) // starts the leases, and need not wait for them
		synctest.Wait()
		only(t, r, take(t, r, 5), 1)
	})
}

// With one issuer at its end and one that stalls, callers wait for the latter at most once.
func TestRotationExhaustedAndStalled(t *testing.T) {
	rotating(t, func(t *testing.T, r *trio) {
		r.issuers[0].set(func(m *memory) { m.next = m.hi })
		r.fail(ErrUnavailable, 1)
		resume := r.stall(2)
		started := time.Now()
		if _, err := r.Next(t.Context()); !errors.Is(err, ErrExhausted) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(started); waited != defaultLeaseTimeout {
			t.Errorf("waited %v", waited)
		}
		for range 1000 {
			refused(t, r, ErrExhausted)
			time.Sleep(10 * time.Millisecond)
		}
		resume()
		r.fail(nil)
		time.Sleep(time.Minute)
		only(t, r, take(t, r, 1), 1, 2) // a failure of long ago keeps nobody from asking
	})
}

// An issuer that begins to stall delays nobody whom one can serve that has just come back.
func TestRotationStalledAndBack(t *testing.T) {
	rotating(t, func(t *testing.T, r *trio) {
		r.issuers[0].set(func(m *memory) { m.next = m.hi })
		r.fail(ErrUnavailable, 1)
		for { // until the first segments of issuer 2 are used up
			steadily(t, r, 1)
			if r.slots[2].sequence.Load().current.Load().left() == 0 {
				break
			}
		}
		resume := r.stall(2)
		started := time.Now()
		only(t, r, take(t, r, 10), 2) // of its next segment
		r.fail(nil)
		only(t, r, take(t, r, 1), 1)
		if waited := time.Since(started); waited > 0 {
			t.Errorf("callers waited %v", waited)
		}
		resume()
	})
}

// A failing issuer is told of once, not at each try.
func TestRotationWarnsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newTrio(wide)
		r.Drop(2)
		r.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		r.set(1, 1)
		for outage := range 2 {
			steadily(t, r, 60)
			r.fail(ErrUnavailable, 1)
			for range 60 {
				steadily(t, r, 2)
				time.Sleep(time.Second)
			}
			if lines := strings.Count(log.String(), "level=WARN"); lines != outage+1 {
				t.Errorf("%d lines after %d outages", lines, outage+1)
			}
			r.fail(nil)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// I1: the sequence of a rewound issuer is taken out, with all that it holds, and the others go on; a new one may take its
// place.
func TestI1RotationOneRewound(t *testing.T) {
	rotating(t, func(t *testing.T, r *trio) {
		all := take(t, r, 9)
		synctest.Wait()
		r.rewind(1)
		all = append(all, steadily(t, r, 60)...)
		synctest.Wait()
		if missing := r.Missing(); !slices.Equal(missing, []int{1}) {
			t.Errorf("missing: %v", missing)
		}
		rest := take(t, r, 60)
		only(t, r, rest, 0, 2)
		all = append(all, rest...)
		// An ID from before is not issued again by the new sequence: while its issuer was rewound it may have gone elsewhere.
		r.Reuse(2)
		floor := slices.MaxFunc(all, func(a, b int64) int { return int(a - b) }) + 1
		r.issuers[1].set(func(m *memory) { m.next = r.bounds(1).ceil(floor) })
		r.set(1, floor)
		r.Reuse(2)
		if missing := r.Missing(); len(missing) > 0 {
			t.Errorf("missing: %v", missing)
		}
		all = append(all, steadily(t, r, 60)...)
		if !slices.ContainsFunc(all, func(id int64) bool { return id >= floor && id%3 == 2 }) {
			t.Error("the new sequence is not used")
		}
		slices.Sort(all)
		distinct(t, all, wide)
	})
}

// A rewind that nobody has met yet but a prefetch is seen by who looks for missing issuers.
func TestRotationMissingFindsRewound(t *testing.T) {
	for _, issuers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := NewRotation(issuers)
			if missing := r.Missing(); len(missing) != issuers {
				t.Errorf("missing: %v", missing)
			}
			issuer, bounds := newMemory(boundsOf(class{1, issuers}, wide)), boundsOf(class{1, issuers}, wide)
			r.Set(0, NewSequence(issuer, orders, bounds, 1, Options{MinStep: 10, MaxStep: 10}))
			take(t, r, 1)
			issuer.set(func(m *memory) { m.next = bounds.Lo })
			take(t, r, 5)
			synctest.Wait()
			if missing := r.Missing(); len(missing) != issuers || missing[0] != 0 {
				t.Errorf("missing: %v", missing)
			}
			if _, err := r.Next(t.Context()); !errors.Is(err, ErrRewound) {
				t.Errorf("got %v", err)
			}
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRotationDropAndReuse(t *testing.T) {
	rotating(t, func(t *testing.T, r *trio) {
		take(t, r, 30)
		synctest.Wait()
		r.Drop(0) // no ID
		r.Drop(-1)
		r.Reuse(-1)
		r.Reuse(wide.Hi) // outside the range
		r.Reuse(4)
		r.Reuse(5)
		got := take(t, r, 3)
		if !slices.Contains(got, 4) || !slices.Contains(got, 5) {
			t.Errorf("got %v, want it to have the IDs that were given back", got)
		}
		r.Drop(5)
		r.Drop(5)
		r.Reuse(5)
		if missing := r.Missing(); !slices.Equal(missing, []int{1}) {
			t.Errorf("missing: %v", missing)
		}
		only(t, r, take(t, r, 20), 0, 2)
	})
}
