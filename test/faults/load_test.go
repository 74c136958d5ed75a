package faults

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"keyrange/test/gateway"
)

const (
	// clientPatience is what a client waits for an answer; no gateway of these tests may take that long.
	clientPatience = 8 * time.Second
	// thinkTime is the pause of a client between two operations, backOff the one after a refusal.
	thinkTime, backOff = 2 * time.Millisecond, 20 * time.Millisecond
	// shownFaults bounds how many complaints of one kind are printed.
	shownFaults = 5
)

// loadOptions says how much load there is.
type loadOptions struct {
	clients, hotKeys int
	// hotShare is how many percent of the operations are on hot keys.
	hotShare int
	// pinned makes each client keep to one gateway; otherwise each request goes to any.
	pinned bool
	// coldKeys bounds how many keys are created that have one client each.
	coldKeys int
	seed     uint64
}

// load is the clients of one or more gateways: some keys belong to one client each, some are fought over by all. It can
// be begun and ended again and again, and remembers what was acknowledged all the while.
type load struct {
	options  loadOptions
	client   *http.Client
	start    time.Time
	bases    atomic.Pointer[[]string]
	stopping chan struct{}
	busy     bool // between begin and end
	working  sync.WaitGroup
	cold     [][]*belief // by client
	hot      []atomic.Pointer[history]
	ids      sync.Map     // key by ID, of the creates that were acknowledged
	made     atomic.Int64 // cold keys
	slowest  atomic.Int64 // nanoseconds, of the answers since the last takeSlowest

	mu        sync.Mutex
	counts    map[string]int // since takeCounts
	totals    map[string]int
	histories []*history
	faults    []string
}

// newLoad prepares a load on gateways that are set by serve.
func newLoad(t *testing.T, options loadOptions) *load {
	t.Helper()
	l := &load{
		options: options, start: time.Now(), counts: map[string]int{}, totals: map[string]int{},
		cold: make([][]*belief, options.clients), hot: make([]atomic.Pointer[history], options.hotKeys),
		client: &http.Client{Timeout: clientPatience, Transport: gateway.Checked(&http.Transport{MaxIdleConnsPerHost: options.clients, DisableCompression: true})},
	}
	for slot := range l.hot {
		l.replaceHot(slot)
	}
	t.Cleanup(func() {
		l.end()
		l.client.CloseIdleConnections()
	})
	return l
}

// serve names the gateways that take the requests from now on.
func (l *load) serve(bases ...string) { l.bases.Store(&bases) }

// clock is the time since the load was made.
func (l *load) clock() time.Duration { return time.Since(l.start) }

// begin lets the clients send until end.
func (l *load) begin() {
	l.stopping, l.busy = make(chan struct{}), true
	for c := range l.options.clients {
		l.working.Go(func() {
			random := rand.New(rand.NewPCG(l.options.seed, uint64(l.clock())+uint64(c)))
			for !l.paused(thinkTime) {
				if l.operate(c, random).outcome != done && l.paused(backOff) {
					return
				}
			}
		})
	}
}

// paused waits, and reports whether the load has ended meanwhile.
func (l *load) paused(pause time.Duration) bool {
	select {
	case <-l.stopping:
		return true
	case <-time.After(pause):
		return false
	}
}

// end stops the clients and waits for the last answer. It may be called twice.
func (l *load) end() {
	if l.busy {
		close(l.stopping)
		l.busy = false
	}
	l.working.Wait()
}

// operate carries out one operation of a client.
func (l *load) operate(c int, random *rand.Rand) reply {
	if len(l.hot) > 0 && random.IntN(100) < l.options.hotShare {
		return l.operateHot(c, random)
	}
	keys := l.cold[c]
	if made := int(l.made.Load()); made < l.options.coldKeys && (len(keys) == 0 || random.IntN(100) < 40) {
		l.made.Add(1)
		b := &belief{key: fmt.Sprintf("cold-%d-%d", c, len(keys))}
		l.cold[c] = append(keys, b)
		return l.ask(c, b, post, random)
	}
	if len(keys) == 0 {
		return l.operateHot(c, random)
	}
	b, next := keys[random.IntN(len(keys))], get
	switch n := random.IntN(100); {
	case n < 25:
		next = put
	case n < 40 && b.document != "":
		next = ifMatch
	case n < 50:
		next = remove
	case n < 55 && b.document != "":
		next = removeIf
	case n < 65:
		next = post
	}
	return l.ask(c, b, next, random)
}

// ask sends a request for a key of one client and checks the answer against what the client knows.
func (l *load) ask(c int, b *belief, k kind, random *rand.Rand) reply {
	r := l.send(c, request{kind: k, key: b.key, tag: b.found.String()}, random)
	if err := b.learn(r); err != nil {
		l.complain("%v", err)
	}
	return r
}

// operateHot sends a request for a key that all clients share.
func (l *load) operateHot(c int, random *rand.Rand) reply {
	slot := random.IntN(len(l.hot))
	h := l.hot[slot].Load()
	kinds := []kind{get, get, get, put, put, ifMatch, ifMatch, post, remove, removeIf}
	r := l.send(c, request{kind: kinds[random.IntN(len(kinds))], key: h.key, tag: h.tag()}, random)
	if h.add(r) && l.hot[slot].Load() == h {
		l.replaceHot(slot)
	}
	return r
}

// replaceHot puts another key in a slot.
func (l *load) replaceHot(slot int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &history{key: fmt.Sprintf("hot-%d", len(l.histories))}
	l.histories = append(l.histories, h)
	l.hot[slot].Store(h)
}

// send completes a request of a client, sends it to a gateway, and counts the answer.
func (l *load) send(c int, r request, random *rand.Rand) reply {
	if r.kind == post || r.kind == put || r.kind == ifMatch {
		r.document = fmt.Sprintf(`{"key":%q,"g":%q,"n":"%x"}`, r.key, groupOf(r.key), random.Uint64())
	}
	bases := *l.bases.Load()
	base := bases[random.IntN(len(bases))]
	if l.options.pinned {
		base = bases[c%len(bases)]
	}
	answer := send(l.client, base, r, l.clock)
	l.count(answer)
	if answer.odd != "" {
		l.complain("%s", answer.odd)
	}
	if answer.outcome == done && answer.kind == get && answer.status == http.StatusOK && !strings.HasPrefix(answer.body, fmt.Sprintf(`{"key":%q,`, r.key)) {
		l.complain("I4: the record of %s was read as %s", r.key, answer.body)
	}
	if answer.status == http.StatusCreated {
		if other, twice := l.ids.LoadOrStore(answer.found.id, r.key); twice {
			l.complain("I1: ID %d was issued to %s and to %s", answer.found.id, other, r.key)
		}
	}
	return answer
}

// count notes what came of an operation and how long it took.
func (l *load) count(r reply) {
	took := int64(l.clock() - r.called)
	for {
		slowest := l.slowest.Load()
		if took <= slowest || l.slowest.CompareAndSwap(slowest, took) {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[r.name()]++
	l.totals[r.name()]++
}

// complain notes that something is not as it must be.
func (l *load) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf("after %s: ", l.clock().Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// takeSlowest returns the longest time that an answer took since it was last called.
func (l *load) takeSlowest() time.Duration { return time.Duration(l.slowest.Swap(0)) }

// takeCounts returns what came of the operations since it was last called, sorted.
func (l *load) takeCounts() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for name, n := range l.counts {
		lines = append(lines, fmt.Sprintf("%s x%d", name, n))
	}
	slices.Sort(lines)
	l.counts = map[string]int{}
	return strings.Join(lines, ", ")
}

// report fails the test with the complaints.
func (l *load) report(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, fault := range l.faults {
		if i < shownFaults {
			t.Errorf("%s", fault)
		}
	}
	if n := len(l.faults); n > shownFaults {
		t.Errorf("and %d more", n-shownFaults)
	}
}

// beliefs lists the keys that have one client each; the load has ended.
func (l *load) beliefs() []*belief { return slices.Concat(l.cold...) }
