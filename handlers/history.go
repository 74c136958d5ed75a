package handlers

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// historyStep is the time that one slot covers, historySlots how many whole ones are kept: 15 minutes.
	historyStep  = 5 * time.Second
	historySlots = 180
	// minuteSlots are the last minute.
	minuteSlots = int(time.Minute / historyStep)
	// Latencies are counted in classes whose bounds grow by the fourth root of two from fastest on: a quantile is at most a
	// tenth off. The last class, beyond 100 s, has no upper bound.
	fastest        = 100 * time.Microsecond
	latencyClasses = 81
	classesPerTwo  = 4
)

// slot counts the requests of one step.
type slot struct {
	requests, failed uint32
	latencies        [latencyClasses]uint32
}

// add counts the requests of another slot as well.
func (s *slot) add(other *slot) {
	s.requests += other.requests
	s.failed += other.failed
	for i := range s.latencies {
		s.latencies[i] += other.latencies[i]
	}
}

// history remembers how the requests for records went in the last 15 minutes, in 60 KiB. It is safe for concurrent use.
type history struct {
	began time.Time // with its monotonic clock, which nobody sets back
	mu    sync.Mutex
	// slots is a ring: that of step n is at n modulo its length. last is the step that was written last, and all slots of
	// steps that were passed over are empty.
	slots [historySlots + 1]slot
	last  int64
}

func newHistory(now time.Time) *history { return &history{began: now} }

// add counts a request that was answered at a moment.
func (h *history) add(at time.Time, took time.Duration, failed bool) {
	class := latencyClass(took)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forward(at)
	s := &h.slots[h.last%int64(len(h.slots))]
	s.requests++
	s.latencies[class]++
	if failed {
		s.failed++
	}
}

// forward begins the step of a moment, unless it has begun. It needs mu.
func (h *history) forward(at time.Time) {
	step := int64(at.Sub(h.began) / historyStep)
	for n := max(h.last+1, step-historySlots); n <= step; n++ {
		h.slots[n%int64(len(h.slots))] = slot{}
	}
	h.last = max(h.last, step)
}

// latencyClass is the class that a latency is counted in.
func latencyClass(took time.Duration) int {
	if took <= fastest {
		return 0
	}
	return min(int(math.Ceil(classesPerTwo*math.Log2(float64(took)/float64(fastest)))), latencyClasses-1)
}

// quantile is the latency that a share of the requests did not exceed, in milliseconds; nil without requests.
func (s *slot) quantile(share float64) *float64 {
	if s.requests == 0 {
		return nil
	}
	rank := max(1, uint32(math.Ceil(share*float64(s.requests))))
	class, seen := 0, uint32(0)
	for i, n := range s.latencies {
		if seen += n; seen >= rank {
			class = i
			break
		}
	}
	// The middle of the class, on the scale of its bounds.
	ms := milliseconds(fastest) * math.Exp2((float64(class)-0.5)/classesPerTwo)
	ms = math.Round(ms*1000) / 1000
	return &ms
}

// History is the answer of GET /admin/history: the requests for records of the last 15 minutes, one element a step, oldest
// first. The step under way is left out.
type History struct {
	// At is the end of the last step.
	At          time.Time `json:"at"`
	StepSeconds float64   `json:"step_seconds"`
	// Requests were answered, Errors of them with a status from 500 on.
	Requests []uint32 `json:"requests"`
	Errors   []uint32 `json:"errors"`
	// Latencies in milliseconds, at most a tenth off; null where there was no request.
	P50 []*float64 `json:"p50_ms"`
	P95 []*float64 `json:"p95_ms"`
	P99 []*float64 `json:"p99_ms"`
	// Minute is the last minute as a whole.
	Minute HistorySum `json:"last_minute"`
}

// HistorySum is several steps together.
type HistorySum struct {
	Requests uint32   `json:"requests"`
	Errors   uint32   `json:"errors"`
	P50      *float64 `json:"p50_ms"`
	P95      *float64 `json:"p95_ms"`
	P99      *float64 `json:"p99_ms"`
}

// series is the history at a moment.
func (h *history) series(now time.Time) History {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forward(now)
	answer := History{At: h.began.Add(time.Duration(h.last) * historyStep).UTC(), StepSeconds: historyStep.Seconds()}
	var minute slot
	for k := range historySlots {
		s := &h.slots[(h.last+1+int64(k))%int64(len(h.slots))]
		answer.Requests, answer.Errors = append(answer.Requests, s.requests), append(answer.Errors, s.failed)
		answer.P50, answer.P95, answer.P99 = append(answer.P50, s.quantile(.5)), append(answer.P95, s.quantile(.95)), append(answer.P99, s.quantile(.99))
		if k >= historySlots-minuteSlots {
			minute.add(s)
		}
	}
	answer.Minute = HistorySum{minute.requests, minute.failed, minute.quantile(.5), minute.quantile(.95), minute.quantile(.99)}
	return answer
}

// requestHistory says how the requests for records went.
func (s *Server) requestHistory(_ context.Context, x *exchange) error {
	if err := x.readQuery(nil); err != nil {
		return err
	}
	body, err := json.Marshal(s.history.series(time.Now()))
	if err != nil {
		return err
	}
	return x.sendJSON(http.StatusOK, append(body, '\n'))
}
