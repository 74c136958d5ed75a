package idsegment

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"keyrange/test/servers"
)

// wide is a range, all of its IDs. It ends in the middle of a stride of three issuers.
var wide = Bounds{Lo: 1, Hi: 10_000_001}

// patience is the lease timeout on real servers, which may be slow but do answer.
const patience = 30 * time.Second

// I1: two gateways issue from one range at once, and no ID twice.
func TestI1TwoGatewaysShareARange(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		gateways := make([]*Sequence, 2)
		var bounds Bounds
		for g := range gateways {
			issuer := open()
			register(t, issuer, orders, wide.Lo, wide.Hi)
			bounds = issuer.Bounds(wide.Lo, wide.Hi)
			gateways[g] = closing(t, NewSequence(issuer, orders, bounds, 1, Options{MinStep: 10, MaxStep: 40, LeaseTimeout: patience}))
		}
		const callers, each = 32, 100
		ids := concurrently(callers, func(caller int) []int64 {
			s := gateways[caller%2]
			if caller < callers/2 {
				return take(t, s, each)
			}
			ids, err := s.NextN(t.Context(), each)
			if err != nil {
				t.Error(err)
			}
			return ids
		})
		if len(ids) != callers*each {
			t.Errorf("got %d IDs, want %d", len(ids), callers*each)
		}
		distinct(t, ids, bounds)
	})
}

// Many more callers than the step has IDs.
func TestSequenceSmallStepManyCallers(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		register(t, issuer, orders, wide.Lo, wide.Hi)
		bounds := issuer.Bounds(wide.Lo, wide.Hi)
		s := closing(t, NewSequence(issuer, orders, bounds, 1, Options{MinStep: 10, MaxStep: 10, LeaseTimeout: patience}))
		ids := concurrently(1000, func(int) []int64 {
			id, err := s.Next(t.Context())
			if err != nil {
				t.Error(err)
			}
			return []int64{id}
		})
		distinct(t, ids, bounds)
	})
}

// A refill leases enough for all callers that wait, and they share it.
func TestSequenceRefillCoversWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := newMemory(wide)
		issuer.stall = make(chan struct{})
		s := closing(t, NewSequence(issuer, orders, wide, 1, Options{MinStep: 10, MaxStep: 10}))
		go func() {
			synctest.Wait() // all callers wait
			close(issuer.stall)
		}()
		ids := concurrently(1000, func(int) []int64 { return take(t, s, 1) })
		synctest.Wait()
		distinct(t, ids, wide)
		if leases := issuer.asked(); len(leases) > 5 || leases[1] < 900 {
			t.Errorf("leases of %v, want the second to cover all who waited", leases)
		}
	})
}

// A batch larger than the step is one larger lease.
func TestSequenceLargeBatch(t *testing.T) {
	onClasses(t, func(t *testing.T, bounds Bounds) {
		issuer := newMemory(bounds)
		s := closing(t, NewSequence(issuer, orders, bounds, 1, Options{MinStep: 10, MaxStep: 10}))
		ids, err := s.NextN(t.Context(), 5000)
		if err != nil || !slices.Equal(ids, run(bounds, 0, 5000)) {
			t.Errorf("got %d IDs, %v", len(ids), err)
		}
		if leases := issuer.asked(); leases[0] != 5000 {
			t.Errorf("leases of %v", leases)
		}
	})
}

// Ranges with fewer IDs than any step issue each of them once, and then say so.
func TestSequenceTinyRanges(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() *Issuer) {
		issuer := open()
		for number, size := range []int64{1, 2, 5, 10, 1500} {
			name, bounds := Name{"tiny", int64(number + 1)}, issuer.Bounds(100, 100+size)
			register(t, issuer, name, 100, 100+size)
			s := closing(t, NewSequence(issuer, name, bounds, 1, Options{LeaseTimeout: patience}))
			ids := concurrently(4, func(int) []int64 {
				var ids []int64
				for {
					id, err := s.Next(t.Context())
					if errors.Is(err, ErrExhausted) {
						return ids
					}
					if err != nil {
						t.Error(err)
						return ids
					}
					ids = append(ids, id)
				}
			})
			if !slices.Equal(ids, members(bounds, 100, 100+size)) {
				t.Errorf("%d IDs: got %v", size, ids)
			}
			if s.Leased() != bounds.Hi || s.issued() != int64(len(ids)) {
				t.Errorf("%d IDs: leased up to %d when exhausted, %d IDs", size, s.Leased(), s.issued())
			}
		}
	})
}

// What is left of a range goes to a batch that wants more.
func TestSequenceBatchAtTheEnd(t *testing.T) {
	for _, bounds := range []Bounds{{Lo: 1, Hi: 6}, {2, 16, 3}, {2, 15, 3}} { // five IDs each
		s := closing(t, NewSequence(newMemory(bounds), orders, bounds, 1, Options{}))
		ids, err := s.NextN(t.Context(), 8)
		if !slices.Equal(ids, run(bounds, 0, 5)) || !errors.Is(err, ErrExhausted) {
			t.Errorf("%v: got %v, %v", bounds, ids, err)
		}
		third := nth(bounds, 2)
		s.Reuse(third)
		if ids, err := s.NextN(t.Context(), 2); !slices.Equal(ids, []int64{third}) || !errors.Is(err, ErrExhausted) {
			t.Errorf("%v: got %v, %v", bounds, ids, err)
		}
	}
}

func TestSequenceLeased(t *testing.T) {
	for _, bounds := range []Bounds{{Lo: 1, Hi: 21}, {2, 60, 3}} { // 20 IDs each
		synctest.Test(t, func(t *testing.T) {
			issuer := newMemory(bounds)
			issuer.next = nth(bounds, 4)
			// The floor is between two IDs of the class.
			s := closing(t, NewSequence(issuer, orders, bounds, nth(bounds, 3)+1, Options{}))
			if s.Leased() != nth(bounds, 4) || s.issued() != 4 {
				t.Errorf("before the first lease: %d, %d IDs", s.Leased(), s.issued())
			}
			if _, err := s.NextN(t.Context(), 8); err != nil { // the range's step is 1, and the next one is fetched ahead
				t.Fatal(err)
			}
			synctest.Wait()
			if leased := s.Leased(); leased < nth(bounds, 12) || leased > nth(bounds, 13) {
				t.Errorf("after 8 IDs: %d", leased)
			}
			if issued := s.issued(); issued < 12 || issued > 13 {
				t.Errorf("after 8 IDs: %d IDs", issued)
			}
		})
	}
}

// Callers do not wait while the issuer stalls, as long as the buffer lasts.
func TestSequencePrefetch(t *testing.T) {
	synctests(t, func(t *testing.T, bounds Bounds) {
		issuer := newMemory(bounds)
		s := closing(t, NewSequence(issuer, orders, bounds, 1, Options{MinStep: 100, MaxStep: 100, LeaseTimeout: time.Hour}))
		take(t, s, 50)
		synctest.Wait()
		if leases := issuer.asked(); len(leases) != 1 {
			t.Fatalf("leases of %v before half of the first is used", leases)
		}
		stall := make(chan struct{})
		issuer.set(func(m *memory) { m.stall = stall })
		started := time.Now()
		if got := take(t, s, 50); !slices.Equal(got, run(bounds, 50, 100)) {
			t.Errorf("got %v", got)
		}
		if waited := time.Since(started); waited > 0 {
			t.Errorf("callers waited %v", waited)
		}
		synctest.Wait()
		if leases := issuer.asked(); len(leases) != 2 {
			t.Errorf("leases of %v, want one on its way", leases)
		}
		close(stall)
		take(t, s, 100)
	})
}

// A caller waits for a stalled issuer until its own deadline, and the refill goes on for the others.
func TestSequenceWaitersKeepTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := newMemory(wide)
		issuer.stall = make(chan struct{})
		s := closing(t, NewSequence(issuer, orders, wide, 1, Options{LeaseTimeout: time.Minute}))
		started := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := s.Next(ctx)
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(started); waited != 300*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
		go func() {
			synctest.Wait()
			close(issuer.stall)
		}()
		if ids := take(t, s, 1); ids[0] != 1 {
			t.Errorf("got %v, want the first ID of the refill that the other caller started", ids)
		}
	})
}

// A stalled lease ends by its own timeout, which no caller takes for the end of its own deadline.
func TestSequenceLeaseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := newMemory(wide)
		issuer.stall = make(chan struct{})
		s := closing(t, NewSequence(issuer, orders, wide, 1, Options{}))
		started := time.Now()
		_, err := s.Next(t.Context())
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(started); waited != defaultLeaseTimeout {
			t.Errorf("waited %v", waited)
		}
	})
}

// A failed refill fails those who wait, at once, and the next caller tries again.
func TestSequenceRecovers(t *testing.T) {
	issuer := newMemory(wide)
	issuer.fail = ErrUnavailable
	s := closing(t, NewSequence(issuer, orders, wide, 1, Options{}))
	for range 3 {
		if _, err := s.Next(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	issuer.set(func(m *memory) { m.fail = nil })
	if ids := take(t, s, 3); !slices.Equal(ids, run(wide, 0, 3)) {
		t.Errorf("got %v", ids)
	}
}

// An outage that begins and ends while the buffer lasts goes unnoticed, and the prefetch is made up for.
func TestSequencePrefetchIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := newMemory(wide)
		s := closing(t, NewSequence(issuer, orders, wide, 1, Options{MinStep: 100, MaxStep: 100}))
		take(t, s, 1)
		issuer.set(func(m *memory) { m.fail = ErrUnavailable })
		take(t, s, 60)
		synctest.Wait()
		issuer.set(func(m *memory) { m.fail = nil })
		take(t, s, 30)
		synctest.Wait()
		if leases := issuer.asked(); len(leases) != 3 {
			t.Errorf("leases of %v, want one that failed and one that made up for it", leases)
		}
		issuer.set(func(m *memory) { m.fail = ErrUnavailable })
		if ids := take(t, s, 30); !slices.Equal(ids, run(wide, 91, 121)) {
			t.Errorf("got %v", ids)
		}
	})
}

// A lease whose reply is lost is never used: its IDs are a gap.
func TestSequenceLostReply(t *testing.T) {
	server := servers.MySQL(t)[0]
	proxy, rawURL := servers.NewProxyFor(t, servers.FreshMySQL(t, server))
	issuer := openIssuer(t, rawURL, classes[0])
	register(t, issuer, orders, wide.Lo, wide.Hi)
	s := closing(t, NewSequence(issuer, orders, wide, 1, Options{MinStep: 10, MaxStep: 10, LeaseTimeout: patience}))
	happened := proxy.SwallowReply([]byte("UPDATE id_segment"))
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("lost reply: %v", err)
	}
	<-happened
	if ids := take(t, s, 1); ids[0] != 11 {
		t.Errorf("got %v, want the first ID after the lost segment", ids)
	}
}

// Stalled: the issuer neither answers nor closes, and then goes on.
func TestSequenceStalledServer(t *testing.T) {
	server := servers.MySQL(t)[0]
	proxy, rawURL := servers.NewProxyFor(t, servers.FreshMySQL(t, server))
	issuer := openIssuer(t, rawURL, classes[0])
	register(t, issuer, orders, wide.Lo, wide.Hi)
	s := closing(t, NewSequence(issuer, orders, wide, 1, Options{MinStep: 10, MaxStep: 10, LeaseTimeout: 200 * time.Millisecond}))
	ids := []int64{eventually(t, s)}
	proxy.Stall()
	for {
		id, err := s.Next(t.Context())
		if err != nil {
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("stalled: %v", err)
			}
			break
		}
		ids = append(ids, id)
	}
	proxy.Resume()
	ids = append(ids, eventually(t, s))
	slices.Sort(ids)
	distinct(t, ids, wide)
}

// eventually asks for an ID until there is one.
func eventually(t *testing.T, s *Sequence) int64 {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		id, err := s.Next(t.Context())
		if err == nil {
			return id
		}
		if time.Now().After(deadline) {
			t.Fatalf("no ID in %v: %v", patience, err)
		}
	}
}

func TestSequenceReuse(t *testing.T) {
	for _, bounds := range []Bounds{{Lo: 1, Hi: 1001}, {2, 3001, 3}} {
		s := closing(t, NewSequence(newMemory(bounds), orders, bounds, 1, Options{}))
		take(t, s, 5)
		s.Reuse(nth(bounds, 1))
		s.Reuse(nth(bounds, 3))
		s.Reuse(nth(bounds, -1))   // outside the range
		s.Reuse(nth(bounds, 1000)) // outside the range
		for range bounds.Stride - 1 {
			s.Reuse(nth(bounds, 2) + 1) // of another class
		}
		got := take(t, s, 3)
		slices.Sort(got)
		if !slices.Equal(got, []int64{nth(bounds, 1), nth(bounds, 3), nth(bounds, 5)}) {
			t.Errorf("%v: got %v", bounds, got)
		}
	}
}

// I1 with every method at once: IDs that are given back come out again, but never while somebody holds them.
func TestI1ReuseUnderLoad(t *testing.T) {
	onClasses(t, func(t *testing.T, bounds Bounds) {
		reuseUnderLoad(t, NewSequence(newMemory(bounds), orders, bounds, 1, Options{MinStep: 10, MaxStep: 100}))
	})
}

// reuseUnderLoad takes IDs and gives some back, on 16 goroutines, until one of them closes s.
func reuseUnderLoad(t *testing.T, s interface {
	issuing
	Reuse(id int64)
	Close(ctx context.Context) error
}) {
	t.Helper()
	var held sync.Map
	var closed atomic.Int64
	concurrently(16, func(caller int) []int64 {
		for n := 0; ; n++ {
			id, err := s.Next(t.Context())
			if err != nil {
				if !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
				closed.Add(1)
				return nil
			}
			if _, twice := held.LoadOrStore(id, caller); twice {
				t.Errorf("ID %d was issued twice", id)
				return nil
			}
			if n%3 == 0 {
				held.Delete(id)
				s.Reuse(id)
			}
			if n == 3000 && caller == 0 {
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	if closed.Load() != 16 {
		t.Errorf("%d callers were refused after Close, want all", closed.Load())
	}
}
