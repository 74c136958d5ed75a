package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"keyrange/handlers"
)

const (
	// startTimeout bounds how long the databases may take to answer at start.
	startTimeout = 30 * time.Second
	// headerTimeout is the time a client has to send its request's headers; without it idle ones pile up.
	headerTimeout = 10 * time.Second
	// maxHeaderBytes bounds the headers of a request with its path and query, which may name hundreds of keys; more is 431.
	maxHeaderBytes = 64 << 10
	// keepAlive is how long a connection without requests stays open.
	keepAlive = 2 * time.Minute
	// closeTimeout bounds handing unused IDs back.
	closeTimeout = 3 * time.Second
)

func serveCommand() *cobra.Command {
	command := &cobra.Command{Use: "serve", Short: "Serve records", Args: cobra.NoArgs}
	config := configFlag(command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		r, err := newReloader(newConfigSource(*config, os.Environ()))
		if err != nil {
			return err
		}
		return serve(command.Context(), r, newLogger(command.ErrOrStderr(), &r.level))
	}
	return command
}

// newLogger writes JSON lines of at least the level, which may change meanwhile.
func newLogger(out io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))
}

// serve runs a gateway on the config that the reloader has loaded until ctx ends, then stops taking requests, lets those
// under way finish within the grace period and hands unused IDs back.
func serve(ctx context.Context, r *reloader, logger *slog.Logger) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // before anything else: by default it kills
	defer signal.Stop(hangups)
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cfg := r.running
	if err := r.gates.fetch(ctx, cfg, logger); err != nil {
		return err
	}
	p, err := openParts(startCtx, cfg, logger)
	if err != nil {
		return err
	}
	logger = logger.With("instance", p.identity.Instance())
	t, err := openTraces(ctx, cfg.Traces, p.identity.Instance(), logger)
	if err != nil {
		return errors.Join(err, p.close(startCtx))
	}
	options := handlerOptions(cfg, p, logger)
	options.Tracer, options.TraceRatio = t.tracer, float64(cfg.Traces.SampleRatio)
	options.Guard = r.gates.guard
	options.Reload = func(ctx context.Context) (handlers.Reloaded, error) { return r.reload(ctx, triggerAdmin) }
	options.Program = program(r, p)
	server := handlers.New(p.store, options)
	registerLoad(p.metrics, server)
	r.attach(p, server, logger)
	stopWatching := newWatcher(r, hangups).start(ctx)
	err = listen(ctx, cfg, server, r.gates, logger)
	stopWatching()
	r.close()
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if closeErr := p.close(closeCtx); closeErr != nil {
		logger.Warn("unused IDs are lost", "cause", closeErr.Error())
	}
	if closeErr := t.close(closeCtx); closeErr != nil {
		logger.Warn("traces are lost", "cause", closeErr.Error())
	}
	logger.Info("stopped")
	return err
}

// handlerOptions are the options of the HTTP face by config, without a Reload.
func handlerOptions(cfg *Config, p *parts, logger *slog.Logger) handlers.Options {
	options := handlers.Options{
		Limits:  limitsOf(cfg),
		NewKey:  p.identity.NewKey,
		Metrics: promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{}),
		Observe: observeRequests(p.metrics),
		Logger:  logger,

		GuardAdmin: guardsAdmin(cfg), TrustedProxies: trustedProxies(cfg), CORSOrigins: cfg.Server.CORS.Origins.List(),
	}
	for _, c := range cfg.Collections {
		options.Collections = append(options.Collections, handlers.Collection{Name: c.Name, KeyMember: c.Key, GroupMember: c.Group, TTLMember: c.TTL})
	}
	return options
}

// registerLoad shows the load of the handlers in the metrics.
func registerLoad(metrics prometheus.Registerer, server *handlers.Server) {
	metrics.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gateway_handlers_requests", Help: "Requests for records under way.",
		}, func() float64 { return float64(server.Load().Requests) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gateway_handlers_request_bytes", Help: "Memory that the bodies of requests under way may take.",
		}, func() float64 { return float64(server.Load().Bytes) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "gateway_handlers_overloaded_total", Help: "Requests that were refused because too many were under way.",
		}, func() float64 { return float64(server.Load().Refused) }),
	)
}

// limitsOf are the limits of requests by config.
func limitsOf(cfg *Config) handlers.Limits {
	return handlers.Limits{
		RequestTimeout: cfg.Server.RequestTimeout,
		MaxBodyBytes:   int64(cfg.Server.MaxBodyBytes),
		MaxBulkBytes:   int64(cfg.Server.MaxBulkBytes),
		MaxRequests:    cfg.Server.MaxRequests, MaxRequestBytes: int64(cfg.Server.MaxRequestBytes),
		SlowRequest: cfg.Log.SlowRequest,
	}
}

// listen serves both listeners until ctx ends or one of them fails.
func listen(ctx context.Context, cfg *Config, server *handlers.Server, g *gates, logger *slog.Logger) error {
	public := newHTTPServer(server.Public(), logger)
	admin := newHTTPServer(server.Admin(), logger)
	publicListener, err := net.Listen("tcp", cfg.Server.Listen)
	if err != nil {
		return fmt.Errorf("server.listen: %w", err)
	}
	adminListener, err := net.Listen("tcp", cfg.Admin.Listen)
	if err != nil {
		_ = publicListener.Close()
		return fmt.Errorf("admin.listen: %w", err)
	}
	failed := make(chan error, 2)
	go func() { failed <- serveOn(public, publicListener, g.server) }()
	go func() { failed <- serveOn(admin, adminListener, g.admin) }()
	logger.Info("serving", "version", version, "server", publicListener.Addr().String(), "admin", adminListener.Addr().String())
	select {
	case err = <-failed:
	case <-ctx.Done():
		logger.Info("stopping", "grace", cfg.Server.ShutdownGrace.String())
	}
	graceCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Server.ShutdownGrace)
	defer cancel()
	// The admin listener goes last, so that probes see the gateway drain.
	for _, s := range []*http.Server{public, admin} {
		if shutdownErr := s.Shutdown(graceCtx); shutdownErr != nil {
			logger.Warn("requests were cut off", "cause", shutdownErr.Error())
			_ = s.Close() // the listener is closed already
		}
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// serveOn serves a listener, over TLS when there is a certificate.
func serveOn(server *http.Server, listener net.Listener, certificate *tlsGate) error {
	if certificate == nil {
		return server.Serve(listener)
	}
	server.TLSConfig = certificate.config()
	return server.ServeTLS(listener, "", "")
}

func newHTTPServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
