package store

import "github.com/prometheus/client_golang/prometheus"

// sweeperMetrics are the counters of the sweeper of one gateway; a fleet's are the sums over its gateways.
type sweeperMetrics struct {
	entries, rows, passes, purged, buried prometheus.Counter
	last                                  prometheus.Gauge
	found, repaired                       map[DamageKind]prometheus.Counter
}

// newSweeperMetrics registers the counters; with a nil registry nobody sees them.
func newSweeperMetrics(registry prometheus.Registerer, w *sweeper) *sweeperMetrics {
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "gateway_sweeper_" + name, Help: help})
		all = append(all, c)
		return c
	}
	m := &sweeperMetrics{
		entries: counter("entries_scanned_total", "Entries that the sweeper has looked at."),
		rows:    counter("rows_scanned_total", "Rows that the sweeper has looked at, fences included."),
		passes:  counter("passes_total", "Passes over everything that is stored that this gateway has ended."),
		purged:  counter("fences_purged_total", "Old fences that the sweeper has deleted."),
		buried:  counter("expired_removed_total", "Rows of expired records that the sweeper has deleted."),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gateway_sweeper_last_pass_timestamp_seconds", Help: "When this gateway has ended its last pass; 0 for never.",
		}),
		found: map[DamageKind]prometheus.Counter{
			Dangling:  counter("dangling_total", "Entries without a row that were seen twice. They are harmless."),
			Stray:     counter("strays_total", "Records without an entry, which must never be."),
			Double:    counter("doubles_total", "Records of keys that have another one, which must never be; counted again in each pass."),
			Misplaced: counter("misplaced_total", "Rows in a range table that their ID does not belong to; counted again in each pass."),
			Unlisted:  counter("unlisted_total", "Groups with records in a range that the directory did not list, which must never be."),
			Beyond:    counter("beyond_total", "Entries that point at no range table of this config; counted again in each pass."),
		},
		repaired: map[DamageKind]prometheus.Counter{
			Dangling: counter("dangling_removed_total", "Entries without a row that were removed."),
			Stray:    counter("strays_reindexed_total", "Records without an entry that were given one again."),
			Unlisted: counter("unlisted_relisted_total", "Groups whose range the directory lists again."),
		},
	}
	all = append(all, m.last, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gateway_sweeper_active", Help: "1 when it is this gateway's turn to sweep.",
	}, func() float64 {
		if _, mine := w.own(); mine {
			return 1
		}
		return 0
	}))
	if registry != nil {
		registry.MustRegister(all...)
	}
	return m
}

// add counts what a step has found.
func (m *sweeperMetrics) add(found swept) {
	m.entries.Add(float64(found.entries))
	m.rows.Add(float64(found.rows + found.fences))
	m.buried.Add(float64(found.buried))
	for _, d := range found.damage {
		m.found[d.Kind].Inc()
		if c := m.repaired[d.Kind]; c != nil && d.Repaired {
			c.Inc()
		}
	}
}
