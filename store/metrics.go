package store

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Kinds of lanes, as the label "lane" names them.
const (
	laneEntryInsert = "entry_insert"
	laneEntryFind   = "entry_find"
	laneEntryRemove = "entry_remove"
	laneGroupInsert = "group_insert"
	laneRowInsert   = "row_insert"
	laneRowRead     = "row_read"
	laneRowChange   = "row_change"
)

var laneKinds = []string{laneEntryInsert, laneEntryFind, laneEntryRemove, laneGroupInsert, laneRowInsert, laneRowRead, laneRowChange}

// Kinds of writes, as the label "operation" names them.
const (
	opCreate = "create"
	opPut    = "put"
	opDelete = "delete"
)

// Why fences are made, as the label "reason" names it.
const (
	fenceTakeOver   = "take_over"
	fenceUnanswered = "unanswered"
)

// laneMetrics are told of the batches of one kind of lane.
type laneMetrics struct {
	// lane is the kind.
	lane                 string
	size, wait, duration prometheus.Observer
}

// metrics are the counters of a store.
type metrics struct {
	lanes     map[string]*laneMetrics
	fences    *prometheus.CounterVec
	takeOvers prometheus.Counter
	unknown   *prometheus.CounterVec
}

// tripBuckets, in seconds, are for what takes a round trip or two.
var tripBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

// newMetrics registers the counters; with a nil registry nobody sees them.
func newMetrics(registry prometheus.Registerer, cache *keyCache) *metrics {
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gateway_store_batch_" + name, Help: help, Buckets: buckets}, []string{"lane"})
	}
	counter := func(name, help, label string, values ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_store_" + name, Help: help}, []string{label})
		for _, v := range values {
			c.WithLabelValues(v) // so that zero shows
		}
		return c
	}
	size := histogram("size", "Requests that shared one statement or command.", prometheus.ExponentialBuckets(1, 2, 9))
	wait := histogram("wait_seconds", "Time that a request waited for the batch before its own; those that went at once are not counted.", tripBuckets)
	duration := histogram("duration_seconds", "Time of the statement or command of a batch.", tripBuckets)
	m := &metrics{
		lanes: map[string]*laneMetrics{},
		fences: counter("fences_total", "Fences that creates made: to take over an entry, or to decide an unanswered insert.", "reason",
			fenceTakeOver, fenceUnanswered),
		takeOvers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gateway_store_take_overs_total", Help: "Entries without a record that a create has taken over.",
		}),
		unknown: counter("unknown_outcomes_total", "Writes whose outcome could not be found out.", "operation", opCreate, opPut, opDelete),
	}
	for _, lane := range laneKinds {
		m.lanes[lane] = &laneMetrics{lane, size.WithLabelValues(lane), wait.WithLabelValues(lane), duration.WithLabelValues(lane)}
	}
	if registry == nil {
		return m
	}
	registry.MustRegister(size, wait, duration, m.fences, m.takeOvers, m.unknown,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "gateway_store_key_cache_hits_total", Help: "Look-ups of a key's ID that the cache answered.",
		}, func() float64 { hits, _ := cache.counts(); return float64(hits) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "gateway_store_key_cache_misses_total", Help: "Look-ups of a key's ID that went to the index.",
		}, func() float64 { _, misses := cache.counts(); return float64(misses) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gateway_store_key_cache_bytes", Help: "Memory that the cached IDs of keys take, estimated.",
		}, func() float64 { return float64(cache.bytes()) }),
	)
	return m
}

// countUnknown counts a write that ends with an unknown outcome.
func (m *metrics) countUnknown(operation string, err error) {
	if errors.Is(err, ErrUnknown) {
		m.unknown.WithLabelValues(operation).Inc()
	}
}
