package idsegment

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// trio is a rotation of three issuers in this process.
type trio struct {
	*Rotation
	issuers []*memory
	opts    Options
	whole   Bounds // of the range
}

// newTrio makes a rotation of three issuers over the IDs of a range. Leases are of ten.
func newTrio(whole Bounds) *trio {
	r := &trio{Rotation: NewRotation(3), whole: whole, opts: Options{MinStep: 10, MaxStep: 10}}
	for i := range 3 {
		r.issuers = append(r.issuers, newMemory(r.bounds(i)))
		r.set(i, 1)
	}
	return r
}

// bounds are the IDs of issuer i, from 0.
func (r *trio) bounds(i int) Bounds { return boundsOf(class{i + 1, 3}, r.whole) }

// set puts a new sequence in slot i.
func (r *trio) set(i int, floor int64) {
	r.Set(i, NewSequence(r.issuers[i], orders, r.bounds(i), floor, r.opts))
}

// fail makes the given issuers fail, and the others not.
func (r *trio) fail(err error, which ...int) {
	for i, issuer := range r.issuers {
		issuer.set(func(m *memory) {
			m.fail = nil
			if slices.Contains(which, i) {
				m.fail = err
			}
		})
	}
}

// stall makes the given issuers stall until the returned function is called.
func (r *trio) stall(which ...int) (resume func()) {
	stall := make(chan struct{})
	for _, i := range which {
		r.issuers[i].set(func(m *memory) { m.stall = stall })
	}
	return func() {
		for _, i := range which {
			r.issuers[i].set(func(m *memory) { m.stall = nil })
		}
		close(stall)
	}
}

// rewind makes the given issuers start over.
func (r *trio) rewind(which ...int) {
	for _, i := range which {
		r.issuers[i].set(func(m *memory) { m.next = r.bounds(i).Lo })
	}
}

// rotating runs a test of three issuers of a wide range with a fake clock.
func rotating(t *testing.T, test func(t *testing.T, r *trio)) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrio(wide)
		test(t, r)
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// steadily issues IDs one after another, each after all prefetches have come in. It needs a fake clock.
func steadily(t testing.TB, r *trio, n int) []int64 {
	t.Helper()
	var ids []int64
	for range n {
		synctest.Wait()
		ids = append(ids, take(t, r, 1)...)
	}
	return ids
}

// only checks that IDs are of the given issuers.
func only(t testing.TB, r *trio, ids []int64, which ...int) {
	t.Helper()
	for _, id := range ids {
		if i, ok := r.slotOf(id); !ok || !slices.Contains(which, i) {
			t.Errorf("ID %d is of issuer %d, want one of %v", id, i, which)
		}
	}
}

// refused checks that Next fails with want and with no other of the package's errors, at once.
func refused(t testing.TB, r *trio, want error) {
	t.Helper()
	started := time.Now()
	_, err := r.Next(t.Context())
	matches := slices.DeleteFunc([]error{ErrExhausted, ErrUnavailable, ErrRewound, ErrClosed, ErrMismatch},
		func(sentinel error) bool { return !errors.Is(err, sentinel) })
	if !slices.Equal(matches, []error{want}) {
		t.Errorf("got %v, want %v", err, want)
	}
	if waited := time.Since(started); waited > 0 {
		t.Errorf("refused after %v", waited)
	}
}

// goesOn checks that the given issuers go on right behind the highest of their IDs.
func goesOn(t testing.TB, r *trio, ids []int64, which ...int) {
	t.Helper()
	for _, i := range which {
		want := r.bounds(i).Lo
		for _, id := range ids {
			if r.bounds(i).contains(id) {
				want = max(want, id+3)
			}
		}
		if got := r.issuers[i].next; got != want {
			t.Errorf("issuer %d goes on at %d, want %d", i, got, want)
		}
	}
}
