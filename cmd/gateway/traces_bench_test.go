package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"keyrange/handlers"
	"keyrange/idsegment"
	"keyrange/index"
	"keyrange/store"
	"keyrange/store/sqldb"
)

const (
	// roundRequests is how many requests one round sends, from roundClients clients.
	roundRequests, roundClients = 640, 32
)

// What a gateway of BenchmarkObservability has: each includes those before it.
const (
	withNothing = iota
	withMetrics
	withSteps
	withTraces
)

// watchedServer is the HTTP face of a gateway on SQLite. The metrics of batches cannot be turned off.
func watchedServer(b *testing.B, with int) *handlers.Server {
	b.Helper()
	cfg, err := newConfigSource("", nil).parse(content{text: []byte(roomyConfig(b.TempDir()))})
	if err != nil {
		b.Fatal(err)
	}
	p := newParts()
	observe := p.dependencies.observe
	if with < withMetrics {
		observe = func(string, string) func(string, time.Duration, error) { return nil }
	}
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	open := func(kind, name string, dsn Secret) *sqldb.DB {
		db, err := sqldb.New(dsn.Reveal(), sqldb.Options{Observe: observe(kind, name)})
		check(err)
		p.closers = append(p.closers, db.Close)
		return db
	}
	ix, err := index.New(cfg.Index.URI.Reveal(), indexOptions(cfg))
	check(err)
	p.closers = append(p.closers, ix.Close)
	fleet := store.Fleet{Issuers: []*idsegment.Issuer{idsegment.NewIssuer(open(kindIssuer, "ids", cfg.IDs.Issuers[0].DSN), 1, 1)}}
	for _, n := range cfg.Nodes {
		fleet.Nodes = append(fleet.Nodes, open(kindNode, n.Name, n.DSN))
	}
	fleet.Map, err = layoutOf(cfg)
	check(err)
	p.identity, err = store.NewIdentity()
	check(err)
	logger := slog.New(slog.NewJSONHandler(io.Discard, nil))
	settings := store.Config{
		Fleet: fleet, Index: ix, Collections: collectionsOf(cfg), Identity: p.identity, CacheBytes: int64(cfg.Cache.MaxBytes),
		Sequences: idsegment.Options{MinStep: cfg.IDs.Step.Min, MaxStep: cfg.IDs.Step.Max, Logger: logger}, Now: time.Now, Logger: logger,
	}
	if with >= withMetrics {
		settings.Index, settings.Metrics = index.Observed(ix, observe(kindIndex, kindIndex)), p.metrics
	}
	p.store, err = store.New(b.Context(), settings)
	check(err)
	b.Cleanup(func() { _ = p.close(context.Background()) })
	options := handlerOptions(cfg, p, logger)
	if with < withMetrics {
		options.Observe = nil
	}
	if with < withSteps {
		options.SlowRequest = 0
	}
	if with < withTraces {
		return handlers.New(p.store, options)
	}
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	b.Cleanup(sink.Close)
	t, err := openTraces(b.Context(), TracesConfig{Endpoint: sink.URL, SampleRatio: cfg.Traces.SampleRatio}, "bench", logger)
	check(err)
	b.Cleanup(func() { _ = t.close(context.Background()) })
	options.Tracer, options.TraceRatio = t.tracer, float64(cfg.Traces.SampleRatio)
	return handlers.New(p.store, options)
}

// round sends creates and reads of what they made, half each, and returns the time of the clock and of the processor for one
// request.
func round(b *testing.B, s *handlers.Server, number int) (clock, processor float64) {
	before, began := processorTime(), time.Now()
	var wg sync.WaitGroup
	for c := range roundClients {
		wg.Go(func() {
			for i := range roundRequests / roundClients / 2 {
				key := fmt.Sprintf("k-%d-%d-%d", number, c, i)
				for _, request := range []*http.Request{
					httptest.NewRequest("POST", "/v1/records", strings.NewReader(`{"key":"`+key+`","total":12.5}`)),
					httptest.NewRequest("GET", "/v1/records/"+key, nil),
				} {
					answer := httptest.NewRecorder()
					if s.Public().ServeHTTP(answer, request); answer.Code >= 300 {
						b.Errorf("%d %s", answer.Code, answer.Body)
					}
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began).Seconds() / roundRequests, (processorTime() - before).Seconds() / roundRequests
}

// processorTime is what this process has spent so far, on all processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkObservability is what metrics, the steps of slow requests and 1 % of traces cost: rounds with nothing, and with more
// and more of them, in turn. It reports the medians of the ratios to the round with nothing beside it, by the clock and by the
// time of the processors. A second gateway with nothing (again) shows how exact that is.
func BenchmarkObservability(b *testing.B) {
	gateways := []struct {
		name string
		with int
	}{{"nothing", withNothing}, {"again", withNothing}, {"metrics", withMetrics}, {"steps", withSteps}, {"traces", withTraces}}
	var servers []*handlers.Server
	for _, g := range gateways {
		servers = append(servers, watchedServer(b, g.with))
	}
	clock, processor := make([]float64, len(gateways)), make([]float64, len(gateways))
	clocks, processors := make([][]float64, len(gateways)), make([][]float64, len(gateways))
	var base []float64
	for n := 0; b.Loop(); n++ {
		for _, g := range rand.Perm(len(gateways)) { // whatever comes after another one is not always the same
			runtime.GC() // the garbage of one is not the other's
			clock[g], processor[g] = round(b, servers[g], n)
		}
		base = append(base, processor[0])
		for g := range gateways {
			clocks[g] = append(clocks[g], clock[g]/clock[0])
			processors[g] = append(processors[g], processor[g]/processor[0])
		}
	}
	median := func(all []float64) float64 {
		slices.Sort(all)
		return all[len(all)/2]
	}
	b.ReportMetric(1e6*median(base), "nothing-cpu-µs/req")
	for g := range gateways[1:] {
		name := gateways[g+1].name
		b.ReportMetric(100*(median(clocks[g+1])-1), name+"-clock-%")
		b.ReportMetric(100*(median(processors[g+1])-1), name+"-cpu-%")
	}
}
