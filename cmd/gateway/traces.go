package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// tracesPath is where a collector takes traces, unless its URL has a path.
	tracesPath = "/v1/traces"
	// traceSendTimeout bounds one attempt to send spans, with its repetitions.
	traceSendTimeout = 10 * time.Second
	// traceLinks is how many requests a batch can be linked to: as many as it can have.
	traceLinks = 256
)

// traces makes spans and sends them to a collector, without ever holding up a request: what does not fit its queue is dropped.
type traces struct {
	// tracer is nil when there are none.
	tracer   trace.Tracer
	provider *sdktrace.TracerProvider
	client   *http.Client
}

// checkTraces checks the section traces.
func checkTraces(cfg TracesConfig, f *faults) {
	if cfg.Endpoint == "" {
		return
	}
	u, err := url.Parse(cfg.Endpoint)
	ok := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
	f.check(ok, "traces.endpoint", "must be a URL such as http://127.0.0.1:4318, without user, query and fragment", cfg.Endpoint)
}

// openTraces makes what the config says. It does not talk to the collector yet; that one is away is only logged.
func openTraces(ctx context.Context, cfg TracesConfig, instance string, logger *slog.Logger) (*traces, error) {
	if cfg.Endpoint == "" {
		return &traces{}, nil
	}
	u, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("traces.endpoint: %w", err)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	client := &http.Client{Timeout: traceSendTimeout, Transport: http.DefaultTransport.(*http.Transport).Clone()}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithHTTPClient(client),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
	if err != nil {
		return nil, fmt.Errorf("traces.endpoint: %w", err)
	}
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit = traceLinks
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithExportTimeout(traceSendTimeout)),
		sdktrace.WithSampler(sampler),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "keyrange"),
			attribute.String("service.version", version),
			attribute.String("service.instance.id", instance))),
	)
	// Otherwise it would write to the standard error in a format of its own.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("traces were not sent", "cause", err.Error()) }))
	return &traces{tracer: provider.Tracer("keyrange/handlers"), provider: provider, client: client}, nil
}

// sampler traces what clients trace, and all that handlers have chosen among the requests whose clients do not say: to choose
// here would be to make an ID and a span for each of them first.
var sampler = sdktrace.ParentBased(sdktrace.AlwaysSample())

// close sends what has not been sent, until ctx ends.
func (t *traces) close(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	defer t.client.CloseIdleConnections()
	return t.provider.Shutdown(ctx)
}
