package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keyrange/index"
	"keyrange/test/servers"
)

// scriptedIndex answers each call with the same error, after a while or when the caller gives up.
type scriptedIndex struct {
	index.Index
	err   error
	takes time.Duration
	calls int
}

func (i *scriptedIndex) answer(ctx context.Context) error {
	i.calls++
	select {
	case <-time.After(i.takes):
		return i.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", index.ErrUnavailable, ctx.Err())
	}
}

func (i *scriptedIndex) Insert(ctx context.Context, _ string, entries []index.Entry) []error {
	return repeat(i.answer(ctx), len(entries))
}

func (i *scriptedIndex) Find(ctx context.Context, _ string, _ []string) (map[string]int64, error) {
	return nil, i.answer(ctx)
}

func (i *scriptedIndex) Scan(ctx context.Context, _, _ string, _ int) ([]index.Entry, error) {
	return nil, i.answer(ctx)
}

func (i *scriptedIndex) Replace(ctx context.Context, _, _ string, _, _ int64) (bool, error) {
	return false, i.answer(ctx)
}

func (i *scriptedIndex) Remove(ctx context.Context, _ string, _ []index.Entry) error {
	return i.answer(ctx)
}

// gateCalls are the calls that a gate passes on, with the kind of its circuit that their failures open; "" for none.
var gateCalls = map[string]struct {
	opens string
	call  func(ctx context.Context, g *gatedIndex) error
}{
	"insert": {forWrites, func(ctx context.Context, g *gatedIndex) error {
		return g.Insert(ctx, testCollection, []index.Entry{{Key: "k", ID: 1}})[0]
	}},
	"replace": {forWrites, func(ctx context.Context, g *gatedIndex) error {
		_, err := g.Replace(ctx, testCollection, "k", 1, 2)
		return err
	}},
	"remove": {forWrites, func(ctx context.Context, g *gatedIndex) error {
		return g.Remove(ctx, testCollection, []index.Entry{{Key: "k", ID: 1}})
	}},
	"find": {forReads, func(ctx context.Context, g *gatedIndex) error {
		_, err := g.Find(ctx, testCollection, []string{"k"})
		return err
	}},
	"scan": {"", func(ctx context.Context, g *gatedIndex) error {
		_, err := g.Scan(ctx, testCollection, "", 1)
		return err
	}},
}

// answeredRefusal is an error of an index that is there.
func answeredRefusal(t *testing.T) error {
	t.Helper()
	ix, err := index.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "index.db"), index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ix.Find(t.Context(), "missing", []string{"k"})
	if closeErr := ix.Close(); closeErr != nil || !errors.Is(err, index.ErrUnavailable) {
		t.Fatal(err, closeErr)
	}
	return err
}

// TestGateOpens: three calls in a row without an answer open the circuit of their kind, and nothing else does. Then no call
// reaches the index but one probe after each pause, whose answer closes the circuit.
func TestGateOpens(t *testing.T) {
	refusal := answeredRefusal(t)
	tests := []struct {
		name  string
		err   error
		takes time.Duration
		// within is how much time each caller gives, and gone says that it goes away instead.
		within time.Duration
		gone   bool
		opens  bool
	}{
		{"unavailable", index.ErrUnavailable, 0, time.Second, false, true},
		{"unknown", index.ErrUnknown, 0, time.Second, false, true},
		{"no answer in time", nil, time.Hour, time.Second, false, true},
		{"exists", index.ErrExists, 0, time.Second, false, false},
		{"refused in words", refusal, 0, time.Second, false, false},
		{"no answer to a hurried caller", nil, time.Hour, indexLeast / 2, false, false},
		{"no answer to a caller that goes away", nil, time.Hour, time.Second, true, false},
	}
	for name, c := range gateCalls {
		for _, test := range tests {
			t.Run(name+"/"+test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var changes []string
					ix := &scriptedIndex{err: test.err, takes: test.takes}
					g := newGate(ix, func(kind string, down bool) { changes = append(changes, fmt.Sprint(kind, down)) })
					g.admit()
					call := func() error {
						ctx, cancel := context.WithTimeout(t.Context(), test.within)
						defer cancel()
						if test.gone {
							time.AfterFunc(test.within/2, cancel)
						}
						return c.call(ctx, g)
					}
					for range breakerFailures {
						if g.reads.open() || g.writes.open() {
							t.Fatal("open too early")
						}
						_ = call()
					}
					opens := test.opens && c.opens != ""
					if r, w := opens && c.opens == forReads, opens && c.opens == forWrites; g.reads.open() != r || g.writes.open() != w {
						t.Fatalf("open for reads %v, for writes %v", g.reads.open(), g.writes.open())
					}
					if !opens {
						return
					}
					ix.err, ix.takes, ix.calls = nil, 0, 0
					for range 2 { // before the pause is over and after it
						if err := call(); !errors.Is(err, index.ErrUnavailable) || ix.calls > 0 {
							t.Errorf("%v, %d calls to an index that is down", err, ix.calls)
						}
						time.Sleep(2 * indexPause)
					}
					g.probe(t.Context(), c.opens, testCollection)
					if err := call(); err != nil || ix.calls != 2 || len(changes) != 2 {
						t.Errorf("afterwards: %v, %d calls, changes %v", err, ix.calls, changes)
					}
				})
			})
		}
	}
}

// TestGateFailuresInARow: an answer in between proves that the index is up.
func TestGateFailuresInARow(t *testing.T) {
	ix := &scriptedIndex{}
	g := newGate(ix, func(string, bool) {})
	g.admit()
	for i := range 5 * breakerFailures {
		if ix.err = index.ErrUnavailable; i%breakerFailures == 0 {
			ix.err = nil
		}
		_, _ = g.Find(t.Context(), testCollection, []string{"k"})
	}
	if g.reads.open() {
		t.Error("open")
	}
}

// circuitValue is the metric of the circuit of the index for a kind of calls.
func circuitValue(t *testing.T, s *Store, kind string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(circuitsCollector{s})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].Metric {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["kind"] == "index" && labels["for"] == kind {
			return m.Gauge.GetValue()
		}
	}
	t.Fatalf("no metric for %s: %v", kind, families)
	return 0
}

// downIndex is a store whose index is away.
type downIndex struct {
	*opened
	asked int
}

const (
	// downDeadline is what each request has, downLasts how long the index is away.
	downDeadline, downLasts = 300 * time.Millisecond, 1500 * time.Millisecond
	// atOnce is far below the deadline and above what a busy machine adds.
	atOnce = 50 * time.Millisecond
	// indexBack bounds how long service may be away after the index is back; a busy machine adds up to busySlack.
	indexBack, busySlack = time.Second, time.Second
)

// ask sends a request that needs the index, for a key of its own, and says how long it took.
func (d *downIndex) ask(kind, key string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), downDeadline)
	defer cancel()
	start := time.Now()
	var err error
	if kind == forWrites {
		_, err = d.Create(ctx, testCollection, key, doc("x"))
	} else if _, err = d.Get(ctx, testCollection, key); errors.Is(err, ErrNotFound) {
		err = nil
	}
	return time.Since(start), err
}

// refusals lets clients ask for as long as the index is to be away, and returns how long nine of ten refusals took at most:
// on a busy machine single ones say nothing.
func (d *downIndex) refusals(t *testing.T) time.Duration {
	t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for c := range 32 {
		kind := []string{forReads, forWrites}[c%2]
		wg.Go(func() {
			begin := time.Now()
			for i := 0; time.Since(begin) < downLasts; i++ {
				took, err := d.ask(kind, fmt.Sprintf("k-%d-%d", c, i))
				if !errors.Is(err, ErrUnavailable) {
					t.Errorf("%s: %v", kind, err)
				}
				mu.Lock()
				all = append(all, took)
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all[len(all)*9/10]
}

// back returns how long it takes until a request of a kind succeeds.
func (d *downIndex) back(t *testing.T, kind string) time.Duration {
	t.Helper()
	start := time.Now()
	eventually(t, kind+" go on", func() bool {
		d.asked++
		_, err := d.ask(kind, fmt.Sprintf("again-%d", d.asked))
		return err == nil
	})
	return time.Since(start)
}

// TestStoreIndexDown: the index is away in each of three ways. After three requests all others are refused at once, what
// needs only a node goes on, nothing piles up, and service is back within a second of its return (I8).
func TestStoreIndexDown(t *testing.T) {
	proxied := func(t *testing.T) (*servers.Proxy, string) {
		t.Helper()
		return servers.NewProxyFor(t, servers.FreshMongo(t))
	}
	tests := map[string]func(t *testing.T) (uri string, down, up func()){
		"Stalled": func(t *testing.T) (string, func(), func()) {
			proxy, uri := proxied(t)
			return uri, proxy.Stall, proxy.Resume
		},
		"Refused": func(t *testing.T) (string, func(), func()) {
			proxy, uri := proxied(t)
			return uri, func() { proxy.Refuse(true) }, func() { proxy.Refuse(false) }
		},
		"Halted": func(t *testing.T) (string, func(), func()) {
			private := servers.PrivateMongo(t)
			uri, _ := private.FreshIndex(t)
			return uri, func() { private.Stop(t) }, func() { private.Continue(t) }
		},
	}
	for name, build := range tests {
		t.Run(name, func(t *testing.T) {
			uri, down, up := build(t)
			d := fresh(t, servers.Engine{Name: "sqlite", Fresh: servers.FreshSQLite})
			d.Index = uri
			s := &downIndex{opened: d.open(t)}
			mustCreate(t, s.opened, "known", "one")
			down()
			for _, kind := range []string{forReads, forWrites} {
				for failed := 0; failed < breakerFailures; s.asked++ {
					_, err := s.ask(kind, fmt.Sprintf("first-%d", s.asked))
					switch {
					case errors.Is(err, ErrUnavailable):
						failed++
					case err != nil || failed > 0: // a process that is being halted may still answer at first
						t.Fatalf("%s: %v", kind, err)
					}
				}
			}
			before := runtime.NumGoroutine()
			refusals := s.refusals(t)
			if grown := runtime.NumGoroutine() - before; refusals > atOnce || grown > 10 {
				t.Errorf("refusals took %s; %d goroutines more", refusals, grown)
			}
			wantDocument(t, s.opened, "known", doc("one").Document)
			if _, _, err := s.Put(t.Context(), testCollection, "known", doc("two"), Condition{Exists: true}); err != nil {
				t.Errorf("put of a known key: %v", err)
			}
			h := s.Health(t.Context())[0]
			if h.Kind != "index" || h.Err == nil || h.Took > downDeadline || circuitValue(t, s.Store, forReads)+circuitValue(t, s.Store, forWrites) != 2 {
				t.Errorf("health: %+v, or the metrics differ", h)
			}
			up()
			writes, reads := s.back(t, forWrites), s.back(t, forReads)
			t.Logf("refusals took %s at most, but for one of ten; creates were back after %s, reads %s later", refusals, writes, reads)
			if writes+reads > indexBack+busySlack {
				t.Errorf("service was back after %s", writes+reads)
			}
			if circuitValue(t, s.Store, forReads)+circuitValue(t, s.Store, forWrites) != 0 {
				t.Error("the metrics say that it is down")
			}
			if log := s.log.String(); strings.Count(log, "index is down") != 2 || strings.Count(log, "index is up") != 2 {
				t.Errorf("not one line for each change:\n%s", log)
			}
			d.checkInvariants(t, s.opened)
		})
	}
}

// TestStoreIndexElection: for as long as an election takes there is nobody to connect to. Requests that have more time than
// that wait for it and succeed: the circuit does not open under them.
func TestStoreIndexElection(t *testing.T) {
	const election = 1500 * time.Millisecond
	d := fresh(t, servers.Engine{Name: "sqlite", Fresh: servers.FreshSQLite})
	proxy, uri := servers.NewProxyFor(t, servers.FreshMongo(t))
	d.Index = uri
	s := d.open(t)
	mustCreate(t, s, "known", "one")
	proxy.Refuse(true)
	time.AfterFunc(election, func() { proxy.Refuse(false) })
	hurried, cancel := context.WithTimeout(t.Context(), election/10)
	defer cancel()
	_, _ = s.Get(hurried, testCollection, "first") // it finds the old connection cut
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if _, err := s.Create(t.Context(), testCollection, fmt.Sprintf("k%d", i), doc("x")); err != nil {
				t.Errorf("create: %v", err)
			}
			if _, err := s.Get(t.Context(), testCollection, fmt.Sprintf("absent-%d", i)); !errors.Is(err, ErrNotFound) {
				t.Errorf("get: %v", err)
			}
		})
	}
	wg.Wait()
	if strings.Contains(s.log.String(), "index is down") {
		t.Error(s.log.String())
	}
	d.checkInvariants(t, s)
}
