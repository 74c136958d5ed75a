package idsegment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"keyrange/store/sqldb"
	"keyrange/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// class is an issuer's number and how many there are.
type class struct{ number, of int }

// classes are those that the suites run with: a single issuer, and one whose IDs do not begin with the ranges.
var classes = []class{{1, 1}, {2, 3}}

func (c class) String() string { return fmt.Sprintf("%d-of-%d", c.number, c.of) }

// onEngines runs a test on every engine, for each class. open opens one more issuer on the test's own fresh database.
func onEngines(t *testing.T, test func(t *testing.T, open func() *Issuer)) {
	for _, engine := range servers.SQLEngines(t) {
		for _, c := range classes {
			t.Run(engine.Name+"/"+c.String(), func(t *testing.T) {
				t.Parallel()
				rawURL := engine.Fresh(t)
				test(t, func() *Issuer { return openIssuer(t, rawURL, c) })
			})
		}
	}
}

// onClasses runs a test with bounds in each class, of more IDs than any test uses up.
func onClasses(t *testing.T, test func(t *testing.T, bounds Bounds)) {
	for _, c := range classes {
		t.Run(c.String(), func(t *testing.T) { test(t, boundsOf(c, Bounds{Lo: 1, Hi: 1 << 40})) })
	}
}

// synctests is onClasses with a fake clock.
func synctests(t *testing.T, test func(t *testing.T, bounds Bounds)) {
	onClasses(t, func(t *testing.T, bounds Bounds) {
		synctest.Test(t, func(t *testing.T) { test(t, bounds) })
	})
}

// boundsOf is the class's part of a range.
func boundsOf(c class, whole Bounds) Bounds {
	return (&Issuer{number: c.number, of: c.of}).Bounds(whole.Lo, whole.Hi)
}

// openIssuer opens a database as the issuer of the class.
func openIssuer(t testing.TB, rawURL string, c class) *Issuer {
	t.Helper()
	issuer := unjoined(t, rawURL, c)
	if _, err := issuer.JoinCluster(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	return issuer
}

// unjoined opens a database as the issuer of the class, outside any cluster, and closes it with the test.
func unjoined(t testing.TB, rawURL string, c class) *Issuer {
	t.Helper()
	db, err := sqldb.Open(t.Context(), rawURL, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	issuer := NewIssuer(db, c.number, c.of)
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
	stride   int64
	counts   []int64 // of each lease that was asked for
	fail     error
	stall    chan struct{} // leases wait until it is closed, or for their deadline
}

// newMemory makes an issuer that gives the IDs in bounds.
func newMemory(b Bounds) *memory { return &memory{next: b.Lo, hi: b.Hi, stride: b.stride()} }

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
	left := Bounds{m.next, m.hi, m.stride}
	segment := Segment{Start: m.next, End: left.ceil(m.next + count*m.stride)}
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

// issuing is a Sequence or a Rotation.
type issuing interface {
	Next(ctx context.Context) (int64, error)
}

// take issues n IDs one after another.
func take(t testing.TB, s issuing, n int) []int64 {
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

// distinct checks I1 on sorted IDs, and that they are within the bounds.
func distinct(t testing.TB, ids []int64, b Bounds) {
	t.Helper()
	for i, id := range ids {
		if i > 0 && ids[i-1] == id {
			t.Fatalf("ID %d was issued twice", id)
		}
		if stride := max(b.Stride, 1); id < b.Lo || id >= b.Hi || id%stride != b.Lo%stride {
			t.Fatalf("ID %d is not in %v", id, b)
		}
	}
}

// nth is ID n of the bounds, from 0; also behind their end.
func nth(b Bounds, n int64) int64 { return b.Lo + n*max(b.Stride, 1) }

// run lists the IDs of the bounds from number `from` to before number `to`, both counted from 0.
func run(b Bounds, from, to int64) []int64 {
	var ids []int64
	for n := from; n < to; n++ {
		ids = append(ids, nth(b, n))
	}
	return ids
}

// members lists the IDs of the bounds in [lo, hi), found in the simplest way.
func members(b Bounds, lo, hi int64) []int64 {
	var ids []int64
	for id := max(lo, b.Lo); id < min(hi, b.Hi); id++ {
		if id%max(b.Stride, 1) == b.Lo%max(b.Stride, 1) {
			ids = append(ids, id)
		}
	}
	return ids
}
