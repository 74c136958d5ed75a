package store

import "github.com/prometheus/client_golang/prometheus"

// circuitsCollector shows which databases are down, as the circuits of a store have it.
type circuitsCollector struct{ store *Store }

var circuitOpen = prometheus.NewDesc("gateway_store_circuit_open",
	"1 while a database is down: calls of this kind are refused at once until a probe is answered.", []string{"kind", "name", "for"}, nil)

// Describe implements prometheus.Collector.
func (c circuitsCollector) Describe(to chan<- *prometheus.Desc) { to <- circuitOpen }

// Collect implements prometheus.Collector.
func (c circuitsCollector) Collect(to chan<- prometheus.Metric) {
	for _, of := range c.store.circuits() {
		for kind, open := range map[string]bool{forReads: of.ReadsOpen, forWrites: of.WritesOpen} {
			value := 0.0
			if open {
				value = 1
			}
			to <- prometheus.MustNewConstMetric(circuitOpen, prometheus.GaugeValue, value, of.Kind, of.Name, kind)
		}
	}
}
