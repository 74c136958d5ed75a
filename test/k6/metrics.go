package k6

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The types of metrics.
const (
	counterType = "counter"
	gaugeType   = "gauge"
	rateType    = "rate"
	trendType   = "trend"
)

// metricName is what k6 allows.
var metricName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{1,127}$`)

// sample is one value of a metric.
type sample struct {
	value float64
	tags  map[string]string
}

// metric is all samples of one name. It is safe for concurrent use.
type metric struct {
	name, kind string
	isTime     bool

	mu      sync.Mutex
	samples []sample
}

func (m *metric) add(value float64, tags map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples = append(m.samples, sample{value, tags})
}

// metrics are those of a run, by name. It is safe for concurrent use.
type metrics struct {
	mu  sync.Mutex
	all map[string]*metric
}

// newMetrics has the metrics that k6 makes itself, as far as they are imitated.
func newMetrics() *metrics {
	m := &metrics{all: map[string]*metric{}}
	for name, kind := range map[string]string{
		"http_reqs": counterType, "http_req_failed": rateType, "checks": rateType, "iterations": counterType, "dropped_iterations": counterType,
	} {
		m.all[name] = &metric{name: name, kind: kind}
	}
	for _, name := range []string{"http_req_duration", "iteration_duration"} {
		m.all[name] = &metric{name: name, kind: trendType, isTime: true}
	}
	return m
}

// declare makes a metric, or finds it when another VU has.
func (m *metrics) declare(name, kind string, isTime bool) (*metric, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !metricName.MatchString(name) {
		return nil, fmt.Errorf("metric %q: not a name", name)
	}
	if found := m.all[name]; found != nil {
		if found.kind != kind || found.isTime != isTime {
			return nil, fmt.Errorf("metric %s was a %s, is a %s", name, found.kind, kind)
		}
		return found, nil
	}
	made := &metric{name: name, kind: kind, isTime: isTime}
	m.all[name] = made
	return made, nil
}

func (m *metrics) add(name string, value float64, tags map[string]string) {
	m.all[name].add(value, tags)
}

// matching are the values of the samples that have all tags.
func (m *metric) matching(tags map[string]string) []float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var values []float64
samples:
	for _, s := range m.samples {
		for name, value := range tags {
			if s.tags[name] != value {
				continue samples
			}
		}
		values = append(values, s.value)
	}
	return values
}

// aggregate computes what thresholds and summaries call by name; ok is false for a name that the type does not have.
func aggregate(kind, name string, values []float64, took time.Duration) (result float64, ok bool) {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	n := float64(len(values))
	switch kind + " " + name {
	case "counter count":
		return sum, true
	case "counter rate":
		return sum / took.Seconds(), true
	case "gauge value":
		return last(values), true
	case "rate rate":
		return sum / max(n, 1), true
	case "trend avg":
		return sum / max(n, 1), true
	}
	if kind != trendType {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(values))
	switch name {
	case "min":
		return percentile(sorted, 0), true
	case "max":
		return percentile(sorted, 100), true
	case "med":
		return percentile(sorted, 50), true
	}
	percent, found := strings.CutPrefix(strings.TrimSuffix(name, ")"), "p(")
	p, err := strconv.ParseFloat(percent, 64)
	if !found || err != nil || p < 0 || p > 100 {
		return 0, false
	}
	return percentile(sorted, p), true
}

func last(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return values[len(values)-1]
}

// percentile interpolates between the two nearest values, as k6 does; 0 when there are none.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := p / 100 * float64(len(sorted)-1)
	low, high := sorted[int(math.Floor(at))], sorted[int(math.Ceil(at))]
	return low + (high-low)*(at-math.Floor(at))
}

// threshold is one condition of the options, of the form "p(95)<200".
type threshold struct {
	metric     *metric
	tags       map[string]string
	aggregate  string
	compare    string
	bound      float64
	expression string
}

var (
	thresholdForm = regexp.MustCompile(`^([a-z]+(?:\([0-9.]+\))?)\s*(<=|>=|===?|!=|<|>)\s*([0-9.]+)$`)
	selectorForm  = regexp.MustCompile(`^(\w+)(?:\{(\w+):(\w+)\})?$`)
)

// parseThreshold reads a threshold of a selector like http_req_duration{kind:load}. A metric that nobody made is an error, and
// so is an aggregate that its type does not have.
func (m *metrics) parseThreshold(selector, expression string) (threshold, error) {
	selected, parts := selectorForm.FindStringSubmatch(selector), thresholdForm.FindStringSubmatch(expression)
	if selected == nil || parts == nil {
		return threshold{}, fmt.Errorf("threshold %s %s is not understood", selector, expression)
	}
	t := threshold{metric: m.all[selected[1]], aggregate: parts[1], compare: parts[2], expression: expression}
	if t.metric == nil {
		return threshold{}, fmt.Errorf("threshold %s: there is no such metric", selector)
	}
	if selected[2] != "" {
		t.tags = map[string]string{selected[2]: selected[3]}
	}
	if _, ok := aggregate(t.metric.kind, t.aggregate, nil, time.Second); !ok {
		return threshold{}, fmt.Errorf("threshold %s %s: a %s has no %s", selector, expression, t.metric.kind, t.aggregate)
	}
	var err error
	t.bound, err = strconv.ParseFloat(parts[3], 64)
	return t, err
}

// holds says whether the condition is true at the end of a run.
func (t threshold) holds(took time.Duration) bool {
	value, _ := aggregate(t.metric.kind, t.aggregate, t.metric.matching(t.tags), took)
	switch t.compare {
	case "<":
		return value < t.bound
	case "<=":
		return value <= t.bound
	case ">":
		return value > t.bound
	case ">=":
		return value >= t.bound
	case "!=":
		return value != t.bound
	}
	return value == t.bound
}

// summary is what handleSummary gets under metrics: every metric with samples, and every selector that has a threshold.
func (m *metrics) summary(stats []string, thresholds map[string][]threshold, took time.Duration) map[string]any {
	all := map[string]any{}
	for name, one := range m.all {
		if len(one.matching(nil)) > 0 {
			all[name] = one.entry(nil, stats, took)
		}
	}
	for _, selector := range slices.Sorted(maps.Keys(thresholds)) {
		results := map[string]any{}
		for _, t := range thresholds[selector] {
			results[t.expression] = map[string]any{"ok": t.holds(took)}
			entry := t.metric.entry(t.tags, stats, took)
			entry["thresholds"] = results
			all[selector] = entry
		}
	}
	return all
}

func (m *metric) entry(tags map[string]string, stats []string, took time.Duration) map[string]any {
	contains := "default"
	if m.isTime {
		contains = "time"
	}
	names := map[string][]string{counterType: {"count", "rate"}, gaugeType: {"value"}, rateType: {"rate"}, trendType: stats}[m.kind]
	found := m.matching(tags)
	values := map[string]any{}
	for _, name := range names {
		values[name], _ = aggregate(m.kind, name, found, took)
	}
	return map[string]any{"type": m.kind, "contains": contains, "values": values}
}
