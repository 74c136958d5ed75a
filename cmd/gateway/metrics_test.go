package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"keyrange/handlers"
)

// update rewrites the generated documents.
var update = flag.Bool("update", false, "rewrite the generated documents under docs")

const metricsDoc = "../../docs/metrics.md"

const metricsIntro = `# Metrics

What the admin listener shows at /metrics, for Prometheus. Times are in seconds and sizes in bytes. Counters end in ` + "`_total`" + ` and
histograms are marked; everything else is a gauge. Beside these there are the usual ` + "`go_`" + ` and ` + "`process_`" + ` metrics. What to watch, and
what to do about it, is in [operations.md](operations.md); ready-made alerts are in ` + "`deploy/prometheus/alerts.yaml`" + `.

| metric | labels | meaning |
|---|---|---|
`

// described is a metric as its description says.
var described = regexp.MustCompile(`fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", unit: "[^"]*", constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

// usedGateway is an embedded gateway on which requests of several kinds have been made, with its metrics.
func usedGateway(t *testing.T) *parts {
	t.Helper()
	cfg := mustLoad(t, embeddedConfig(t.TempDir(), 2))
	p, err := openParts(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	server := handlers.New(p.store, handlerOptions(cfg, p, slog.New(slog.DiscardHandler)))
	registerLoad(p.metrics, server)
	new(reloader).attach(p, server, slog.New(slog.DiscardHandler))
	for _, r := range []struct{ method, path, body string }{
		{"PUT", "/v1/records/a", `{"v":1}`}, {"GET", "/v1/records/a", ""}, {"GET", "/v1/records/b", ""},
		{"POST", "/v1/records", `[{"key":"b"},{"key":"a"}]`}, {"GET", "/nowhere", ""}, {"BREW", "/v1/records/a", ""},
	} {
		request := httptest.NewRequestWithContext(t.Context(), r.method, r.path, strings.NewReader(r.body))
		server.Public().ServeHTTP(httptest.NewRecorder(), request)
	}
	return p
}

// TestMetricsDocumented: docs/metrics.md lists exactly the metrics that there are, with their labels and meaning.
func TestMetricsDocumented(t *testing.T) {
	doc := metricsDocOf(t, usedGateway(t).metrics)
	if *update {
		if err := os.WriteFile(metricsDoc, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(metricsDoc); err != nil || string(text) != doc {
		t.Errorf("docs/metrics.md is not what the gateway shows (%v): go test ./cmd/gateway -run TestMetricsDocumented -update", err)
	}
}

// metricsDocOf describes what is registered.
func metricsDocOf(t *testing.T, registry *prometheus.Registry) string {
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	histograms := map[string]bool{}
	for _, f := range families {
		histograms[f.GetName()] = f.GetType() == dto.MetricType_HISTOGRAM
	}
	descriptions := make(chan *prometheus.Desc)
	go func() { registry.Describe(descriptions); close(descriptions) }()
	var lines []string
	for d := range descriptions {
		parts := described.FindStringSubmatch(d.String())
		if parts == nil {
			t.Errorf("not understood: %s", d)
			continue
		}
		name, help, labels := parts[1], strings.ReplaceAll(parts[2], `\"`, `"`), parts[4]
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		for _, constant := range strings.Split(parts[3], ",") {
			if label, _, ok := strings.Cut(constant, "="); ok {
				labels = strings.TrimPrefix(labels+","+label, ",")
			}
		}
		if histograms[name] {
			help = "Histogram. " + help
		}
		if labels != "" {
			labels = "`" + strings.ReplaceAll(labels, ",", "`, `") + "`"
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |\n", name, labels, strings.ReplaceAll(help, "|", `\|`)))
	}
	slices.Sort(lines)
	return metricsIntro + strings.Join(slices.Compact(lines), "")
}

// TestMetricsLint: names, units and help keep the conventions of Prometheus.
func TestMetricsLint(t *testing.T) {
	families, err := usedGateway(t).metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestMetricsOfRequests: requests are counted by route, method, collection and status, and unknown methods do not make
// series of their own.
func TestMetricsOfRequests(t *testing.T) {
	families, err := usedGateway(t).metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			counts[key] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for key, want := range map[string]float64{
		"gateway_http_requests_total collection=records method=PUT route=/v1/:collection/* status=201":            1,
		"gateway_http_requests_total collection=records method=GET route=/v1/:collection/* status=404":            1,
		"gateway_http_requests_total collection= method=GET route=none status=404":                                1,
		"gateway_http_requests_total collection= method=other route=none status=405":                              1,
		"gateway_http_problems_total code=record_not_found collection=records method=GET route=/v1/:collection/*": 1,
		"gateway_http_bulk_items_total collection=records result=ok":                                              1,
		"gateway_http_bulk_items_total collection=records result=failed":                                          1,
		"gateway_http_request_duration_seconds collection=records method=GET route=/v1/:collection/*":             2,
		"gateway_store_unknown_outcomes_total operation=create":                                                   0,
		"gateway_store_batch_duration_seconds lane=row_insert":                                                    2,
	} {
		if got, ok := counts[key]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", key, got, ok, want)
		}
	}
	for _, name := range []string{kindIndex, kindIssuer, "node-1"} {
		if !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return f.GetName() == "gateway_dependency_call_duration_seconds" && slices.ContainsFunc(f.GetMetric(), func(m *dto.Metric) bool {
				return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "name" && l.GetValue() == name })
			})
		}) {
			t.Errorf("no calls of %s", name)
		}
	}
}
