package idsegment

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A graceful stop hands the tail of each issuer back.
func TestRotationCloseReturnsTails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrio(wide)
		ids := steadily(t, r, 65)
		synctest.Wait() // the last prefetch
		for range 2 {
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := r.Next(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
		goesOn(t, r, ids, 0, 1, 2)
	})
}

// The tails of the others are handed back although one issuer does not answer while the rotation closes.
func TestRotationCloseDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrio(wide)
		r.opts.LeaseTimeout = time.Minute
		r.Drop(1)
		r.set(0, 1)
		resume := r.stall(0)
		ids := steadily(t, r, 6)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			if err := r.Close(ctx); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		goesOn(t, r, ids, 1, 2)
		resume()
		synctest.Wait() // the lease ends
	})
}

// Callers that wait for IDs are refused at once when the rotation closes.
func TestRotationCloseRefusesWaiters(t *testing.T) {
	rotating(t, func(t *testing.T, r *trio) {
		resume := r.stall(0, 1, 2)
		waiters := make(chan error, 10)
		for range cap(waiters) {
			go func() {
				_, err := r.Next(t.Context())
				waiters <- err
			}()
		}
		synctest.Wait()
		started := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- r.Close(t.Context()) }()
		for range cap(waiters) {
			if err := <-waiters; !errors.Is(err, ErrClosed) {
				t.Errorf("waiter: %v", err)
			}
		}
		if waited := time.Since(started); waited > 0 {
			t.Errorf("waiters were refused after %v", waited)
		}
		resume()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		goesOn(t, r, nil, 0, 1, 2)
	})
}

// A sequence for a taken slot, or for a closed rotation, is not used.
func TestRotationSetInVain(t *testing.T) {
	rotating(t, func(t *testing.T, r *trio) {
		take(t, r, 3)
		synctest.Wait()
		before := r.slots[0].sequence.Load()
		r.set(0, 1)
		if r.slots[0].sequence.Load() != before {
			t.Error("a sequence in force was replaced")
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		empty := NewRotation(3)
		if err := empty.Close(t.Context()); err != nil {
			t.Error(err)
		}
		r.Rotation = empty
		r.set(0, 1)
		refused(t, r, ErrClosed)
		if missing := r.Missing(); !slices.Equal(missing, []int{0, 1, 2}) {
			t.Errorf("missing: %v", missing)
		}
	})
}

// I1 with every method at once, over three issuers.
func TestI1RotationReuseUnderLoad(t *testing.T) {
	r := newTrio(wide)
	reuseUnderLoad(t, r)
}

// With a single issuer a rotation does what its sequence does.
func TestRotationOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer, r := newMemory(wide), NewRotation(1)
		if _, err := r.Next(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("without a sequence: %v", err)
		}
		set := func(floor int64) {
			r.Set(0, NewSequence(issuer, orders, wide, floor, Options{MinStep: 10, MaxStep: 10}))
		}
		set(1)
		if ids := take(t, r, 100); !slices.Equal(ids, run(wide, 0, 100)) {
			t.Errorf("got %v", ids)
		}
		synctest.Wait()
		r.Reuse(7)
		if ids := take(t, r, 2); !slices.Equal(ids, []int64{7, 101}) {
			t.Errorf("got %v", ids)
		}
		if issued := r.Issued(); issued != 110 {
			t.Errorf("%d IDs are leased", issued)
		}
		r.Drop(101)
		for range 2 {
			if _, err := r.Next(t.Context()); !errors.Is(err, ErrRewound) {
				t.Errorf("after Drop: %v", err)
			}
		}
		set(102)
		if ids := take(t, r, 1); ids[0] != 111 {
			t.Errorf("got %v", ids)
		}
		issuer.set(func(m *memory) { m.next = 1 })
		for {
			if _, err := r.Next(t.Context()); err != nil {
				if !errors.Is(err, ErrRewound) {
					t.Error(err)
				}
				break
			}
		}
		if missing := r.Missing(); !slices.Equal(missing, []int{0}) {
			t.Errorf("missing: %v", missing)
		}
		for range 2 {
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, err := r.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
