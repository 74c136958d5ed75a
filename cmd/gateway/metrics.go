package main

import (
	"cmp"
	"database/sql"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"keyrange/index"
	"keyrange/store/sqldb"
)

// Kinds of dependencies, as the label "kind" names them.
const (
	kindIndex  = "index"
	kindIssuer = "issuer"
	kindNode   = "node"
)

// callBuckets, in seconds, reach from a look into SQLite to the longest deadline of a request.
var callBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// dependencies are the metrics of the calls to databases and of the connections to them.
type dependencies struct {
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec

	connections, inUse, maxConnections, waits, waited *prometheus.Desc

	mu    sync.Mutex
	pools map[dependency]pooled
}

// pooled is what keeps connections to a database.
type pooled interface{ Pool() sql.DBStats }

// dependency is a database as the labels name it.
type dependency struct{ kind, name string }

// newMetrics makes the registry of a gateway, with what is known of the process.
func newMetrics() (*prometheus.Registry, *dependencies) {
	registry := prometheus.NewRegistry()
	d := newDependencies()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(), d.duration, d.errors, d)
	return registry, d
}

func newDependencies() *dependencies {
	labels := []string{"kind", "name"}
	pool := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("gateway_dependency_"+name, help, labels, nil)
	}
	return &dependencies{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gateway_dependency_call_duration_seconds", Help: "Time of calls to a database, with the wait for a connection and repetitions.",
			Buckets: callBuckets,
		}, append(labels, "operation")),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_dependency_errors_total", Help: "Calls to a database that failed, by what is known of their effect.",
		}, append(labels, "operation", "outcome")),
		connections:    pool("connections", "Connections to a database that are open."),
		inUse:          pool("connections_in_use", "Connections to a database that a call has at the moment."),
		maxConnections: pool("connections_max", "Most connections to a database that may be open."),
		waits:          pool("connection_waits_total", "Calls that had to wait for a connection to a database."),
		waited:         pool("connection_wait_seconds_total", "Time that calls have waited for a connection to a database."),
		pools:          map[dependency]pooled{},
	}
}

// observe returns what is to be told of each call to a database.
func (d *dependencies) observe(kind, name string) func(operation string, took time.Duration, err error) {
	duration := d.duration.MustCurryWith(prometheus.Labels{"kind": kind, "name": name})
	failures := d.errors.MustCurryWith(prometheus.Labels{"kind": kind, "name": name})
	return func(operation string, took time.Duration, err error) {
		duration.WithLabelValues(operation).Observe(took.Seconds())
		if outcome := outcomeOf(err); outcome != "" {
			failures.WithLabelValues(operation, outcome).Inc()
		}
	}
}

// outcomeOf names what is known of the effect of a failed call; "" when it did not fail. That something is there already is
// an answer and no failure.
func outcomeOf(err error) string {
	switch {
	case err == nil, errors.Is(err, index.ErrExists), errors.Is(err, sqldb.ErrDuplicate):
		return ""
	case errors.Is(err, index.ErrUnknown), errors.Is(err, sqldb.ErrUnknown):
		return "unknown"
	case errors.Is(err, sqldb.ErrRejected):
		return "rejected"
	}
	return "unavailable"
}

// watch shows the connections to a database, in place of those to an earlier one of the same name.
func (d *dependencies) watch(kind, name string, db pooled) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pools[dependency{kind, name}] = db
}

// Describe implements prometheus.Collector.
func (d *dependencies) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.connections, d.inUse, d.maxConnections, d.waits, d.waited} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (d *dependencies) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for of, db := range d.pools {
		pool := db.Pool()
		show := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64) {
			to <- prometheus.MustNewConstMetric(desc, kind, value, of.kind, of.name)
		}
		show(d.connections, prometheus.GaugeValue, float64(pool.OpenConnections))
		show(d.inUse, prometheus.GaugeValue, float64(pool.InUse))
		show(d.maxConnections, prometheus.GaugeValue, float64(pool.MaxOpenConnections))
		show(d.waits, prometheus.CounterValue, float64(pool.WaitCount))
		show(d.waited, prometheus.CounterValue, pool.WaitDuration.Seconds())
	}
}

// buildInfo is 1, with what this program was built from as labels.
func buildInfo() prometheus.Collector {
	commit := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = cmp.Or(s.Value, commit)
			}
		}
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gateway_build_info", Help: "Always 1; the labels say what the gateway was built from.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit, "go": runtime.Version()},
	}, func() float64 { return 1 })
}
