package deploy

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const alertsFile = "../../deploy/prometheus/alerts.yaml"

// alerts are the rules of the file, by name.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, faults := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range faults {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	all := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r
		}
	}
	return all
}

// documented are the metrics that the gateway shows, and those that Prometheus makes.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"up"}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| .* \\| (Histogram)?").FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
		if m[2] != "" {
			names = append(names, m[1]+"_bucket", m[1]+"_sum", m[1]+"_count")
		}
	}
	return names
}

// checkExpression checks that an expression parses and that the metrics in it exist.
func checkExpression(t *testing.T, where, text string, known []string) {
	t.Helper()
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok && !slices.Contains(known, v.Name) &&
			!strings.HasPrefix(v.Name, "go_") && !strings.HasPrefix(v.Name, "process_") {
			t.Errorf("%s: there is no metric %s in docs/metrics.md", where, v.Name)
		}
		return nil
	})
}

// TestAlertsRefer: the metrics in alerts exist, and so do the sections that say what to do.
func TestAlertsRefer(t *testing.T) {
	known := documented(t)
	manual, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range alerts(t) {
		checkExpression(t, name, r.Expr, known)
		section := regexp.MustCompile(`docs/operations.md, "([^"]+)"$`).FindStringSubmatch(r.Annotations["runbook"])
		if section == nil || !strings.Contains(string(manual), "\n## "+section[1]+"\n") {
			t.Errorf("%s: docs/operations.md has no section for the runbook %q", name, r.Annotations["runbook"])
		}
		if r.Annotations["summary"] == "" || r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
			t.Errorf("%s: no summary, or no severity", name)
		}
	}
}

// TestAlertsFire: each alert fires in its case after its time, and does not in a healthy fleet.
func TestAlertsFire(t *testing.T) {
	const healthy = `
		up{job="keyrange",instance="a"} 1x200
		gateway_config_last_reload_ok{instance="a"} 1x200
		gateway_store_collection_level_state{collection="records"} 0x200
		gateway_store_collection_days_left{collection="records"} 400x200
		gateway_http_requests_total{collection="records",route="/v1/:collection/*",status="200"} 0+6000x200
		gateway_http_requests_total{collection="records",route="/v1/:collection/*",status="503"} 0+1x200
		gateway_http_request_duration_seconds_bucket{collection="records",route="/v1/:collection/*",le="0.05"} 0+6000x200
		gateway_http_request_duration_seconds_bucket{collection="records",route="/v1/:collection/*",le="1"} 0+6001x200
		gateway_http_request_duration_seconds_bucket{collection="records",route="/v1/:collection/*",le="+Inf"} 0+6001x200
		gateway_handlers_overloaded_total{instance="a"} 0x200
		gateway_store_unknown_outcomes_total{operation="create"} 0x200
		gateway_store_circuit_open{kind="node",name="node-1",for="reads"} 0x200
		gateway_dependency_errors_total{kind="node",name="node-1",operation="query",outcome="unavailable"} 0+1x200
		gateway_dependency_connection_wait_seconds_total{instance="a",kind="node",name="node-1"} 0+1x200
		gateway_sweeper_strays_total 0x200
		gateway_sweeper_doubles_total 0x200
		gateway_sweeper_misplaced_total 0x200
		gateway_sweeper_last_pass_timestamp_seconds{instance="a"} 0+60x200
	`
	cases := map[string]string{ // what differs, in place of the series with the same labels
		"KeyrangeRangesFillUp":      `gateway_store_collection_level_state{collection="records"} 1x200`,
		"KeyrangeRangesNearlyFull":  `gateway_store_collection_days_left{collection="records"} 2x200`,
		"KeyrangeGatewayDown":       `up{job="keyrange",instance="a"} 0x200`,
		"KeyrangeErrors":            `gateway_http_requests_total{collection="records",route="/v1/:collection/*",status="503"} 0+100x200`,
		"KeyrangeSlow":              `gateway_http_request_duration_seconds_bucket{collection="records",route="/v1/:collection/*",le="0.05"} 0+60x200`,
		"KeyrangeOverloaded":        `gateway_handlers_overloaded_total{instance="a"} 0+5x200`,
		"KeyrangeUnknownOutcomes":   `gateway_store_unknown_outcomes_total{operation="create"} 0+60x200`,
		"KeyrangeDatabaseDown":      `gateway_store_circuit_open{kind="node",name="node-1",for="reads"} 1x200`,
		"KeyrangeDatabaseErrors":    `gateway_dependency_errors_total{kind="node",name="node-1",operation="query",outcome="unavailable"} 0+600x200`,
		"KeyrangeConnectionsUsedUp": `gateway_dependency_connection_wait_seconds_total{instance="a",kind="node",name="node-1"} 0+600x200`,
		"KeyrangeDamage":            `gateway_sweeper_strays_total 0x60 1x140`,
		"KeyrangeSweeperStopped":    `gateway_sweeper_last_pass_timestamp_seconds{instance="a"} 60x200`,
		"KeyrangeConfigRefused":     `gateway_config_last_reload_ok{instance="a"} 0x200`,
	}
	rules := alerts(t)
	for name, r := range rules {
		step := time.Minute
		if name == "KeyrangeSweeperStopped" {
			step = 2 * time.Hour // a week is long
		}
		if step == time.Minute && fires(t, healthy, r, step) {
			t.Errorf("%s fires in a healthy fleet", name)
		}
		changed, ok := cases[name]
		if !ok {
			t.Errorf("%s has no case here", name)
		} else if !fires(t, with(healthy, changed), r, step) {
			t.Errorf("%s does not fire", name)
		}
	}
	for name := range cases {
		if _, ok := rules[name]; !ok {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// with puts a series in place of the one with the same name and labels.
func with(series, changed string) string {
	name, _, _ := strings.Cut(changed, " ")
	var lines []string
	for line := range strings.Lines(series) {
		if !strings.HasPrefix(strings.TrimSpace(line), name+" ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "") + changed + "\n"
}

// fires reports whether a rule, evaluated at each of 180 steps over series of one sample a step, is true for its time
// without a break.
func fires(t *testing.T, series string, r rulefmt.Rule, step time.Duration) bool {
	t.Helper()
	var load strings.Builder
	fmt.Fprintf(&load, "load %s\n", step)
	for line := range strings.Lines(series) {
		if text := strings.TrimSpace(line); text != "" {
			load.WriteString("  " + text + "\n")
		}
	}
	storage := promqltest.LoadedStorage(t, load.String())
	defer storage.Close()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1 << 20, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	since := map[string]time.Time{}
	for i := range 180 {
		now := time.Unix(0, 0).Add(time.Duration(i) * step)
		query, err := engine.NewInstantQuery(context.Background(), storage, nil, r.Expr, now)
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		result := query.Exec(context.Background())
		vector, err := result.Vector()
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		still := map[string]time.Time{}
		for _, sample := range vector {
			key := fmt.Sprint(sample.Metric.MatchLabels(true, model.MetricNameLabel))
			still[key] = now
			if began, ok := since[key]; ok {
				still[key] = began
			}
			if now.Sub(still[key]) >= time.Duration(r.For) {
				query.Close()
				return true
			}
		}
		since = still
		query.Close()
	}
	return false
}
