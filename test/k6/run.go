package k6

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Result is what a run has left behind.
type Result struct {
	// Passed says that every threshold holds and that no stage has failed.
	Passed bool
	// Broken are the thresholds that do not hold, with their metric.
	Broken []string
	// Errors are exceptions that iterations ended with.
	Errors []string
	// Console is what the script logged.
	Console []string
	// Outputs are what handleSummary returned: texts by file name, and stdout.
	Outputs map[string]string

	metrics *metrics
}

// Total is the sum of all samples of a metric; 0 for one that the script has not.
func (r *Result) Total(name string) int {
	one := r.metrics.all[name]
	if one == nil {
		return 0
	}
	sum, _ := aggregate(counterType, "count", one.matching(nil), time.Second)
	return int(sum)
}

// run is a script under way.
type run struct {
	script  string
	env     map[string]string
	client  *http.Client
	metrics *metrics
	options runOptions
	// data is what setup returned, as JSON.
	data string

	mu     sync.Mutex
	result Result
}

// Run runs a script to its end. An error means that it could not begin, or that setup, teardown or handleSummary failed, as
// opposed to thresholds, which are in the result.
func Run(ctx context.Context, script string, env map[string]string) (*Result, error) {
	r := &run{script: script, env: env, metrics: newMetrics(), client: &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	defer r.client.CloseIdleConnections()
	first, err := r.newVU(ctx, 0)
	if err != nil {
		return nil, err
	}
	text, err := first.stringify(first.exports.Get("options"))
	if err != nil {
		return nil, err
	}
	if r.options, err = parseOptions([]byte(text)); err != nil {
		return nil, err
	}
	thresholds := map[string][]threshold{}
	for selector, expressions := range r.options.Thresholds {
		for _, expression := range expressions {
			t, err := r.metrics.parseThreshold(selector, expression)
			if err != nil {
				return nil, err
			}
			thresholds[selector] = append(thresholds[selector], t)
		}
	}
	if r.data, err = r.stage(ctx, "setup", "null", time.Duration(r.options.SetupTimeout)); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := r.playAll(ctx); err != nil {
		return nil, err
	}
	if _, err := r.stage(ctx, "teardown", r.data, time.Duration(r.options.TeardownTimeout)); err != nil {
		return nil, err
	}
	return r.judge(ctx, thresholds, time.Since(began))
}

// stage calls an exported function in an engine of its own and returns its result as JSON.
func (r *run) stage(ctx context.Context, function, argument string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	v, err := r.newVU(ctx, 0)
	if err != nil {
		return "", err
	}
	v.stage = function
	result, err := v.call(function, argument)
	if err != nil {
		return "", fmt.Errorf("%s: %w", function, err)
	}
	return v.stringify(result)
}

// judge evaluates the thresholds and calls handleSummary.
func (r *run) judge(ctx context.Context, thresholds map[string][]threshold, took time.Duration) (*Result, error) {
	result := &r.result
	result.metrics, result.Passed = r.metrics, true
	for _, selector := range slices.Sorted(maps.Keys(thresholds)) {
		for _, t := range thresholds[selector] {
			if !t.holds(took) {
				result.Passed = false
				result.Broken = append(result.Broken, selector+" "+t.expression)
			}
		}
	}
	data, err := json.Marshal(map[string]any{
		"setup_data": json.RawMessage(r.data),
		"state":      map[string]any{"testRunDurationMs": took.Milliseconds(), "isStdOutTTY": false},
		"metrics":    r.metrics.summary(r.options.SummaryTrendStats, thresholds, took),
	})
	if err != nil {
		return nil, err
	}
	outputs, err := r.stage(ctx, "handleSummary", string(data), time.Minute)
	if err != nil {
		return nil, err
	}
	return result, json.Unmarshal([]byte(outputs), &result.Outputs)
}

// playAll plays all scenarios, each from its start time, with VUs that they share one after another.
func (r *run) playAll(ctx context.Context) error {
	pool := make(chan *vu, r.poolSize())
	for id := range cap(pool) {
		v, err := r.newVU(ctx, id+1)
		if err != nil {
			return err
		}
		v.stage = "vu"
		pool <- v
	}
	errs := make(chan error, len(r.options.Scenarios))
	for name, s := range r.options.Scenarios {
		go func() { errs <- r.play(ctx, pool, name, s) }()
	}
	var failed error
	for range r.options.Scenarios {
		failed = errors.Join(failed, <-errs)
	}
	return failed
}

// poolSize is the most VUs that scenarios need at one time.
func (r *run) poolSize() int {
	most := 0
	for _, at := range r.options.Scenarios {
		need := 0
		for _, s := range r.options.Scenarios {
			if s.StartTime <= at.StartTime && time.Duration(at.StartTime) < s.end() {
				need += s.vus()
			}
		}
		most = max(most, need)
	}
	return most
}

// say keeps a line that the script logged.
func (r *run) say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Console = append(r.result.Console, line)
}

// failed keeps an exception of an iteration.
func (r *run) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Errors = append(r.result.Errors, err.Error())
}
