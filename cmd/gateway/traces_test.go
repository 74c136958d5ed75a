package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"keyrange/handlers"
)

// tracedRig is a gateway on SQLite without listeners, whose spans and log a test can look at.
type tracedRig struct {
	*handlers.Server
	spans *tracetest.SpanRecorder
	log   *logText
}

// newTracedRig opens a gateway that traces a share of its requests.
func newTracedRig(t *testing.T, ratio float64, slow time.Duration) *tracedRig {
	t.Helper()
	r := &tracedRig{spans: tracetest.NewSpanRecorder(), log: new(logText)}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans), sdktrace.WithSampler(sampler))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) }) // nothing to send
	r.Server = openServer(t, slow, provider.Tracer("test"), ratio, newLogger(r.log, slog.LevelInfo))
	return r
}

// openServer is the HTTP face of a gateway on two nodes in SQLite, which closes with the test.
func openServer(t testing.TB, slow time.Duration, tracer trace.Tracer, ratio float64, logger *slog.Logger) *handlers.Server {
	t.Helper()
	cfg, err := newConfigSource("", nil).parse(content{text: []byte(roomyConfig(t.TempDir()))})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Log.SlowRequest = slow
	p, err := openParts(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.close(context.Background()) })
	options := handlerOptions(cfg, p, logger)
	options.Tracer, options.TraceRatio = tracer, ratio
	return handlers.New(p.store, options)
}

// roomyConfig is a config of embedded databases in a folder, with room for many records.
func roomyConfig(folder string) string {
	return strings.Replace(embeddedConfig(folder, 2), "{size: 10}", "{size: 10000000}", 1)
}

// post creates a record; headers are "Name: value".
func (r *tracedRig) post(t *testing.T, body string, headers ...string) {
	t.Helper()
	request := httptest.NewRequest("POST", "/v1/records", strings.NewReader(body))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	answer := httptest.NewRecorder()
	r.Public().ServeHTTP(answer, request)
	if answer.Code != http.StatusCreated && answer.Code != http.StatusOK {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
}

// tree lists the spans that have ended, each with the names of those above it.
func (r *tracedRig) tree() (paths []string) {
	ended := r.spans.Ended()
	name := map[trace.SpanID]string{}
	above := map[trace.SpanID]trace.SpanID{}
	for _, s := range ended {
		name[s.SpanContext().SpanID()], above[s.SpanContext().SpanID()] = s.Name(), s.Parent().SpanID()
	}
	for _, s := range ended {
		path := s.Name()
		for id := s.Parent().SpanID(); name[id] != ""; id = above[id] {
			path = name[id] + " > " + path
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

const (
	sampledParent   = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampledParent = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// TestTraceOfACreate: a create shows its steps, and neither the trace nor the log has the key.
func TestTraceOfACreate(t *testing.T) {
	r := newTracedRig(t, 0, 0)
	r.post(t, `{"key":"sentinel"}`, sampledParent, "tracestate: vendor=1")
	want := []string{
		"POST /v1/:collection",
		"POST /v1/:collection > entry_insert",
		"POST /v1/:collection > entry_insert > batch entry_insert",
		"POST /v1/:collection > row_insert",
		"POST /v1/:collection > row_insert > batch row_insert",
		"POST /v1/:collection > take_id",
	}
	if got := r.tree(); !slices.Equal(got, want) {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	everything := fmt.Sprintf("%+v %s", tracetest.SpanStubsFromReadOnlySpans(r.spans.Ended()), r.log)
	if strings.Contains(everything, "sentinel") {
		t.Error("the key is in a trace or in the log")
	}
	ended := r.spans.Ended()
	server := ended[len(ended)-1]
	attributes := map[string]string{}
	for _, a := range server.Attributes() {
		attributes[string(a.Key)] = a.Value.String()
	}
	for key, want := range map[string]string{
		"http.request.method": "POST", "http.route": "/v1/:collection", "http.response.status_code": "201", "keyrange.collection": "records",
	} {
		if attributes[key] != want {
			t.Errorf("%s is %q, want %q", key, attributes[key], want)
		}
	}
	if got := server.Parent().TraceID().String() + server.SpanContext().TraceState().String(); got != "0af7651916cd43dd8448eb211c80319cvendor=1" {
		t.Errorf("the parent and the state are %s", got)
	}
	if !strings.Contains(r.log.String(), `"trace_id":"0af7651916cd43dd8448eb211c80319c"`) || strings.Contains(r.log.String(), `"steps"`) {
		t.Errorf("log: %s", r.log)
	}
}

// TestTraceSampling: a request that says whether it is traced is obeyed, of the others the ratio is traced, and what is not traced
// makes no span at all.
func TestTraceSampling(t *testing.T) {
	for _, tt := range []struct {
		ratio   float64
		headers []string
		traced  bool
	}{
		{0, nil, false},
		{0, []string{sampledParent}, true},
		{1, nil, true},
		{1, []string{unsampledParent}, false},
		{0, []string{"traceparent: 00-broken"}, false},
		{1, []string{"traceparent: 00-broken"}, true},
	} {
		r := newTracedRig(t, tt.ratio, time.Minute)
		r.post(t, `{"key":"a"}`, tt.headers...)
		r.Public().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/healthz", nil))
		if got := len(r.spans.Started()); got > 0 != tt.traced {
			t.Errorf("%v: %d spans", tt, got)
		}
		if got := strings.Contains(r.log.String(), "trace_id"); got != tt.traced {
			t.Errorf("%v: log %s", tt, r.log)
		}
	}
}

// TestTraceRatio: of many requests the share is traced.
func TestTraceRatio(t *testing.T) {
	const requests, ratio, allowed = 400, 0.25, 50 // six standard deviations
	r := newTracedRig(t, ratio, 0)
	for i := range requests {
		r.post(t, fmt.Sprintf(`{"key":"k%d"}`, i))
	}
	if traced := strings.Count(r.log.String(), "trace_id"); math.Abs(float64(traced)-requests*ratio) > allowed {
		t.Errorf("%d of %d requests were traced", traced, requests)
	}
}

// TestTracesOfConcurrentCreates: every request has its own trace, and each batch is linked to steps of requests.
func TestTracesOfConcurrentCreates(t *testing.T) {
	const requests = 50
	r := newTracedRig(t, 1, 0)
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() { r.post(t, fmt.Sprintf(`{"key":"k%d"}`, i)) })
	}
	wg.Wait()
	steps, links := map[trace.SpanID]bool{}, 0
	roots := map[trace.TraceID]bool{}
	for _, s := range r.spans.Ended() {
		steps[s.SpanContext().SpanID()] = s.Name() == "row_insert"
		if !s.Parent().IsValid() {
			roots[s.SpanContext().TraceID()] = true
		}
	}
	for _, s := range r.spans.Ended() {
		if s.Name() != "batch row_insert" {
			continue
		}
		for _, l := range s.Links() {
			if links++; !steps[l.SpanContext.SpanID()] {
				t.Errorf("a batch is linked to something else than a row_insert")
			}
		}
	}
	if len(roots) != requests || links != requests {
		t.Errorf("%d traces and %d links of %d requests", len(roots), links, requests)
	}
}

// TestSlowRequestLog: a slow request is a warning with its steps, also when it is not traced; 0 warns of none.
func TestSlowRequestLog(t *testing.T) {
	r := newTracedRig(t, 0, time.Nanosecond)
	r.post(t, `{"key":"sentinel"}`)
	r.SetLimits(handlers.Limits{RequestTimeout: time.Second, MaxBodyBytes: 1000, MaxBulkBytes: 1000, MaxRequests: 10, MaxRequestBytes: 1000})
	r.post(t, `{"key":"other"}`)
	r.SetLimits(handlers.Limits{RequestTimeout: time.Second, MaxBodyBytes: 1000, MaxBulkBytes: 1000, MaxRequests: 10, MaxRequestBytes: 1000, SlowRequest: 1})
	r.post(t, `[{"key":"one of"},{"key":"several"}]`)
	lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("log: %s", r.log)
	}
	var slow struct {
		Level   string
		Msg     string
		KeyHash string `json:"key_hash"`
		Slow    bool
		Took    float64 `json:"duration_ms"`
		Steps   []struct {
			Step string
			Took float64 `json:"duration_ms"`
		}
	}
	if err := json.Unmarshal([]byte(lines[0]), &slow); err != nil {
		t.Fatal(err)
	}
	var names []string
	total := 0.0
	for _, s := range slow.Steps {
		names = append(names, s.Step)
		total += s.Took
	}
	// printf sentinel | sha256sum
	if slow.Level != "WARN" || slow.Msg != "request" || !slow.Slow || slow.KeyHash != "2b7847b7b705" ||
		!slices.Equal(names, []string{"take_id", "entry_insert", "row_insert"}) || total <= 0 || total > slow.Took {
		t.Errorf("line %s", lines[0])
	}
	if !strings.Contains(lines[2], `"level":"INFO"`) || strings.Contains(lines[2], "steps") {
		t.Errorf("a bulk request is slow: %s", lines[2])
	}
	if !strings.Contains(lines[1], `"level":"INFO"`) || strings.Contains(lines[1], "steps") || strings.Contains(r.log.String(), "sentinel") {
		t.Errorf("log: %s", r.log)
	}
}

// collector takes what a gateway sends as OTLP.
type collector struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// ServeHTTP keeps the body of a request.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := gzip.NewReader(r.Body)
	if err != nil || r.Method != "POST" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	fmt.Fprintln(&c.text, r.URL.Path)
	_, _ = io.Copy(&c.text, body) // the test looks at what came
}

// TestTracesAreSent: a gateway that stops sends the spans that it has, and one that is away holds nothing up.
func TestTracesAreSent(t *testing.T) {
	for name, away := range map[string]bool{"collector": false, "collector away": true} {
		t.Run(name, func(t *testing.T) {
			c := &collector{}
			server := httptest.NewServer(c)
			defer server.Close()
			if away {
				server.Close()
			}
			folder, log := t.TempDir(), new(logText)
			path := folder + "/config.yaml"
			writeFile(t, path, embeddedConfig(folder, 1)+"\ntraces: {endpoint: '"+server.URL+"', sample_ratio: 1}\n")
			r, err := newReloader(newConfigSource(path, []string{"GATEWAY__SERVER__LISTEN=127.0.0.1:0", "GATEWAY__ADMIN__LISTEN=127.0.0.1:0"}))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan error, 1)
			go func() { stopped <- serve(ctx, r, newLogger(log, &r.level)) }()
			answer, err := http.Post("http://"+servingAddress(t, log)+"/v1/records", "application/json", strings.NewReader(`{"key":"sentinel"}`))
			if err != nil || answer.StatusCode != http.StatusCreated {
				t.Fatal(answer, err)
			}
			_ = answer.Body.Close()
			cancel()
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			sent := c.text.String()
			for _, want := range []string{"/v1/traces\n", "service.name", "keyrange", "POST /v1/:collection", "batch row_insert"} {
				if strings.Contains(sent, want) == away {
					t.Errorf("sent without %q, or with it to nobody: %q", want, sent)
				}
			}
			if reported := log.count(`"msg":"traces were not sent"`)+log.count(`"msg":"traces are lost"`) > 0; reported != away {
				t.Errorf("log: %s", log)
			}
			if strings.Contains(sent+log.String(), "sentinel") {
				t.Error("the key is in a trace or in the log")
			}
		})
	}
}

// servingAddress waits until a gateway serves, and returns the address of its API.
func servingAddress(t *testing.T, log *logText) string {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for line := range strings.Lines(log.String()) {
			var serving struct{ Msg, Server string }
			if json.Unmarshal([]byte(line), &serving) == nil && serving.Msg == "serving" {
				return serving.Server
			}
		}
	}
	t.Fatalf("the gateway does not serve: %s", log)
	return ""
}

// TestConfigTracesRules: what traces may say.
func TestConfigTracesRules(t *testing.T) {
	const endpoint = "traces.endpoint: must be a URL such as http://127.0.0.1:4318, without user, query and fragment (got "
	const ratio = "traces.sample_ratio: must be a plain decimal number from 0 to 1, such as 0.01"
	runFaultCases(t, []faultCase{
		{name: "right", text: "traces: {endpoint: 'https://c.example.com/otlp/v1/traces', sample_ratio: 1.0}\nlog: {slow_request: 0s}"},
		{name: "no URL", text: "traces: {endpoint: 'collector:4318'}", want: []string{"config.yaml:1: " + endpoint + `"collector:4318")`}},
		{name: "user", text: "traces: {endpoint: 'http://u:p@h'}", want: []string{"config.yaml:1: " + endpoint + "***)"}},
		{name: "ratio above", text: "traces: {sample_ratio: 1.1}", want: []string{"config.yaml:1: " + ratio + ` (got "1.1")`}},
		{name: "ratio below", text: "traces: {sample_ratio: -0.1}", want: []string{"config.yaml:1: " + ratio + ` (got "-0.1")`}},
		{name: "ratio in percent", text: "traces: {sample_ratio: 1%}", want: []string{"config.yaml:1: " + ratio + ` (got "1%")`}},
		{name: "ratio in quotes", text: "traces: {sample_ratio: '0.5'}", want: []string{"config.yaml:1: " + ratio + ", without quotes"}},
		{name: "slow", text: "log: {slow_request: 11m}", want: []string{"config.yaml:1: log.slow_request: must be 0s to 10m0s (got 11m0s)"}},
	})
}
