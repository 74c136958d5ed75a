package handlers

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"keyrange/store"
)

// TestHistory: each request is in the step in which it was answered, steps without any are empty, and what is older than 15
// minutes is forgotten.
func TestHistory(t *testing.T) {
	began := time.Now()
	h := newHistory(began)
	at := func(step int) time.Time { return began.Add(time.Duration(step)*historyStep + time.Second) }
	for range 3 {
		h.add(at(0), time.Millisecond, false)
	}
	h.add(at(2), time.Second, true)
	h.add(at(1), time.Second, false) // answered before, told later: it is not lost
	got := h.series(at(3))
	n := historySlots
	if len(got.Requests) != n || fmt.Sprint(got.Requests[n-3:], got.Errors[n-3:]) != "[3 0 2] [0 0 1]" || got.P50[n-2] != nil || got.P99[n-4] != nil {
		t.Errorf("%v %v", got.Requests[n-4:], got.Errors[n-4:])
	}
	if got.Minute.Requests != 5 || got.Minute.Errors != 1 || !got.At.Equal(began.Add(3*historyStep)) {
		t.Errorf("%+v at %s", got.Minute, got.At)
	}
	for step, want := range map[int]uint32{historySlots: 5, historySlots + 1: 2, historySlots + 3: 0, 10 * historySlots: 0} {
		copied := &history{began: h.began, slots: h.slots, last: h.last}
		if sum := total(copied.series(at(step)).Requests); sum != want {
			t.Errorf("after %d steps: %d requests, want %d", step, sum, want)
		}
	}
	h.series(at(5 * historySlots))
	h.add(at(5*historySlots), time.Millisecond, false)
	if got := h.series(at(5*historySlots + 1)); total(got.Requests) != 1 || got.Requests[n-1] != 1 {
		t.Errorf("after a long silence: %v", got.Requests)
	}
}

func total(counts []uint32) (sum uint32) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// TestHistoryQuantiles: quantiles are at most a tenth off, over the whole range of latencies.
func TestHistoryQuantiles(t *testing.T) {
	for _, scale := range []time.Duration{200 * time.Microsecond, time.Millisecond, 130 * time.Millisecond, 2 * time.Second} {
		var s slot
		for i := range 1000 {
			s.requests++
			s.latencies[latencyClass(scale*time.Duration(i+1)/100)]++
		}
		for share, want := range map[float64]float64{.5: 5, .95: 9.5, .99: 9.9} {
			want *= milliseconds(scale)
			if got := *s.quantile(share); got < want*.9 || got > want*1.1 {
				t.Errorf("of %s, %v: %v, want %v", scale, share, got, want)
			}
		}
	}
	if latencyClass(0) != 0 || latencyClass(-time.Second) != 0 || latencyClass(24*time.Hour) != latencyClasses-1 {
		t.Error("a latency beyond all classes")
	}
}

// TestHistoryConcurrent: no request is lost when many are answered at once while others look.
func TestHistoryConcurrent(t *testing.T) {
	h := newHistory(time.Now())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 1000 {
				h.add(h.began.Add(time.Duration(i)*10*time.Millisecond), time.Millisecond, false)
				if i%100 == 0 {
					h.series(h.began.Add(time.Duration(i) * 10 * time.Millisecond))
				}
			}
		})
	}
	wg.Wait()
	if got := total(h.series(h.began.Add(time.Minute)).Requests); got != 4000 {
		t.Errorf("%d of 4000 requests", got)
	}
}

// TestHistoryServed: requests for records count, those of operators and probes do not, and what is answered
// with a 5xx is an error.
func TestHistoryServed(t *testing.T) {
	r := newRig(t)
	r.expect(201, "", "PUT", "/v1/records/a", `{}`)
	r.expect(404, "", "GET", "/v1/records/b", "")
	r.expect(404, "", "GET", "/nowhere", "")
	r.expect(200, "", "GET", "/healthz", "")
	r.askAdmin(patternHistory)
	r.fake.before = func(context.Context, string, string) error { return store.ErrUnavailable }
	r.expect(503, "", "GET", "/v1/records/a", "")
	got := r.history.series(time.Now().Add(historyStep))
	if got.Minute.Requests != 3 || got.Minute.Errors != 1 {
		t.Errorf("%+v", got.Minute)
	}
	if answer := r.askAdmin(patternHistory); answer.Code != 200 || !strings.Contains(answer.Body.String(), `"step_seconds":5,"requests":[0,`) {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

// askAdmin sends a GET to the operators' listener.
func (r *rig) askAdmin(target string) *httptest.ResponseRecorder {
	request := httptest.NewRequest("GET", target, nil)
	request.Header.Set("X-Request-Id", "test")
	answer := httptest.NewRecorder()
	r.Admin().ServeHTTP(answer, request)
	return answer
}

// BenchmarkHistoryAdd is what the history costs a request.
func BenchmarkHistoryAdd(b *testing.B) {
	h := newHistory(time.Now())
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			h.add(h.began, 3*time.Millisecond, false)
		}
	})
}
