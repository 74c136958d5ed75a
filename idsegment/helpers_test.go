package idsegment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"keyrange/store/sqldb"
	"keyrange/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onEngines runs a test on every engine. open opens one more issuer on the test's own fresh database.
func onEngines(t *testing.T, test func(t *testing.T, open func() *Issuer)) {
	for _, engine := range servers.SQLEngines(t) {
		t.Run(engine.Name, func(t *testing.T) {
			rawURL := engine.Fresh(t)
			test(t, func() *Issuer { return openIssuer(t, rawURL) })
		})
	}
}

func openIssuer(t testing.TB, rawURL string) *Issuer {
	t.Helper()
	db, err := sqldb.Open(t.Context(), rawURL, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	issuer := NewIssuer(db)
	if _, err := issuer.JoinCluster(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := issuer.Close(); err != nil {
			t.Error(err)
		}
	})
	return issuer
}

func register(t testing.TB, issuer *Issuer, name Name, lo, hi int64) {
	t.Helper()
	if err := issuer.Register(t.Context(), name, lo, hi); err != nil {
		t.Fatal(err)
	}
}

// execute changes the issuer's tables behind its back.
func execute(t testing.TB, issuer *Issuer, statement string) {
	t.Helper()
	if _, err := issuer.db.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// memory is an issuer of one range in this process.
type memory struct {
	mu       sync.Mutex
	next, hi int64
	counts   []int64 // of each lease that was asked for
	fail     error
	stall    chan struct{} // leases wait until it is closed, or for their deadline
}

func newMemory(lo, hi int64) *memory { return &memory{next: lo, hi: hi} }

// set changes the issuer between leases.
func (m *memory) set(change func(m *memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// asked returns the count of every lease so far.
func (m *memory) asked() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.counts)
}

func (m *memory) Lease(ctx context.Context, _ Name, count int64) (Segment, error) {
	m.mu.Lock()
	m.counts = append(m.counts, count)
	stall := m.stall
	m.mu.Unlock()
	if stall != nil {
		select {
		case <-stall:
		case <-ctx.Done():
			return Segment{}, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return Segment{}, m.fail
	}
	if m.next >= m.hi {
		return Segment{}, ErrExhausted
	}
	segment := Segment{Start: m.next, End: min(m.next+count, m.hi)}
	m.next = segment.End
	return segment, nil
}

func (m *memory) Return(_ context.Context, _ Name, tail Segment) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next != tail.End {
		return false, nil
	}
	m.next = tail.Start
	return true, nil
}

// closing closes the sequence with the test.
func closing(t testing.TB, s *Sequence) *Sequence {
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// take issues n IDs one after another.
func take(t testing.TB, s *Sequence, n int) []int64 {
	t.Helper()
	ids := make([]int64, n)
	for i := range ids {
		id, err := s.Next(t.Context())
		if err != nil {
			t.Fatalf("ID %d of %d: %v", i+1, n, err)
		}
		ids[i] = id
	}
	return ids
}

// concurrently runs n calls of fn at once and collects their IDs, sorted.
func concurrently(n int, fn func(caller int) []int64) []int64 {
	var mu sync.Mutex
	var all []int64
	var wg sync.WaitGroup
	for caller := range n {
		wg.Go(func() {
			ids := fn(caller)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, ids...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all
}

// distinct checks I1 on sorted IDs, and that they are in [lo, hi).
func distinct(t testing.TB, ids []int64, lo, hi int64) {
	t.Helper()
	for i, id := range ids {
		if i > 0 && ids[i-1] == id {
			t.Fatalf("ID %d was issued twice", id)
		}
		if id < lo || id >= hi {
			t.Fatalf("ID %d is outside [%d, %d)", id, lo, hi)
		}
	}
}

// sequential lists the IDs [lo, hi).
func sequential(lo, hi int64) []int64 {
	var ids []int64
	for id := lo; id < hi; id++ {
		ids = append(ids, id)
	}
	return ids
}
