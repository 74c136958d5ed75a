package store

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

func segmentMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("gateway_store_segment_"+name, help, []string{"collection", "range", "issuer"}, nil)
}

var (
	segmentIDsAtHand = segmentMetric("ids_at_hand", "IDs of an open range that this gateway can give without another lease.")
	segmentStep      = segmentMetric("step", "IDs that the next lease for an open range takes.")
)

// segmentsCollector shows the segments of the ranges that take new records. An issuer that gives none of a range has 0.
type segmentsCollector struct{ store *Store }

// Describe implements prometheus.Collector.
func (c segmentsCollector) Describe(to chan<- *prometheus.Desc) {
	to <- segmentIDsAtHand
	to <- segmentStep
}

// Collect implements prometheus.Collector.
func (c segmentsCollector) Collect(to chan<- prometheus.Metric) {
	for collection, p := range c.store.placements {
		for _, r := range *p.open.Load() {
			ids, steps := r.ids.AtHand()
			for i := range ids {
				labels := []string{collection, strconv.FormatInt(r.Number, 10), IssuerName(i, len(ids))}
				to <- prometheus.MustNewConstMetric(segmentIDsAtHand, prometheus.GaugeValue, float64(ids[i]), labels...)
				to <- prometheus.MustNewConstMetric(segmentStep, prometheus.GaugeValue, float64(steps[i]), labels...)
			}
		}
	}
}
