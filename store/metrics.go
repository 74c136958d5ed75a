package store

import "github.com/prometheus/client_golang/prometheus"

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

// metrics are the counters of a store.
type metrics struct {
	batchSize *prometheus.HistogramVec
}

// newMetrics registers the counters; with a nil registry nobody sees them.
func newMetrics(registry prometheus.Registerer, cache *keyCache) *metrics {
	m := &metrics{batchSize: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "gateway_store_batch_size", Help: "Requests that shared one statement or command.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 9),
	}, []string{"lane"})}
	for _, lane := range []string{laneEntryInsert, laneEntryFind, laneEntryRemove, laneGroupInsert, laneRowInsert, laneRowRead, laneRowChange} {
		m.batchSize.WithLabelValues(lane) // so that zero shows
	}
	if registry == nil {
		return m
	}
	registry.MustRegister(m.batchSize,
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
