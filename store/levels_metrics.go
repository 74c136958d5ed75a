package store

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// levelsCollector shows the latest look at the ranges. What is unknown is left out.
type levelsCollector struct{ latest *atomic.Pointer[Levels] }

// rangeMetric and collectionMetric describe gauges of one range, or of one collection.
func rangeMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("gateway_store_range_"+name, help, []string{"collection", "range", "node"}, nil)
}

func collectionMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("gateway_store_collection_"+name, help, []string{"collection"}, nil)
}

var (
	rangeOwnedIDs  = rangeMetric("owned_ids", "IDs in the range.")
	rangeIssuedIDs = rangeMetric("issued_ids", "IDs of the range that are leased; at least so many while an issuer does not answer.")
	rangeLiveRows  = rangeMetric("live_rows", "Records in the range, estimated.")
	rangeBytes     = rangeMetric("bytes", "Size of the keys and documents of the records in the range, estimated.")

	collectionOwnedIDs  = collectionMetric("owned_ids", "IDs in all ranges.")
	collectionIssuedIDs = collectionMetric("issued_ids", "IDs that are leased; at least so many while an issuer does not answer.")
	collectionLeftIDs   = collectionMetric("left_ids", "IDs that are not leased yet, in ranges on nodes that are not drained.")
	collectionGrowth    = collectionMetric("growth_ids_per_day", "IDs that all gateways together leased in the last 24 hours.")
	collectionDaysLeft  = collectionMetric("days_left", "Days until no IDs are left, at that rate.")
	collectionState     = collectionMetric("level_state", "How full the ranges are: 0 ok, 1 warn, 2 alarm, 3 full.")
)

// Describe implements prometheus.Collector.
func (c levelsCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		rangeOwnedIDs, rangeIssuedIDs, rangeLiveRows, rangeBytes,
		collectionOwnedIDs, collectionIssuedIDs, collectionLeftIDs, collectionGrowth, collectionDaysLeft, collectionState,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c levelsCollector) Collect(to chan<- prometheus.Metric) {
	levels := c.latest.Load()
	if levels == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, l := range levels.Ranges {
		labels := []string{l.Collection, strconv.FormatInt(l.Range, 10), l.Node}
		gauge(rangeOwnedIDs, float64(l.Hi-l.Lo), labels...)
		gauge(rangeIssuedIDs, float64(l.Issued), labels...)
		if l.Live >= 0 {
			gauge(rangeLiveRows, float64(l.Live), labels...)
			gauge(rangeBytes, float64(l.Bytes), labels...)
		}
	}
	for _, o := range levels.Collections {
		gauge(collectionOwnedIDs, float64(o.Owned), o.Collection)
		gauge(collectionIssuedIDs, float64(o.Issued), o.Collection)
		gauge(collectionLeftIDs, float64(o.Left), o.Collection)
		gauge(collectionState, float64(severity(o.State)), o.Collection)
		if o.PerDay != nil {
			gauge(collectionGrowth, *o.PerDay, o.Collection)
		}
		if o.DaysLeft != nil {
			gauge(collectionDaysLeft, *o.DaysLeft, o.Collection)
		}
	}
}
