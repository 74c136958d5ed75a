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
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"keyrange/handlers"
)

const (
	// startTimeout bounds how long the databases may take to answer at start.
	startTimeout = 30 * time.Second
	// headerTimeout is the time a client has to send its request's headers; without it idle ones pile up.
	headerTimeout = 10 * time.Second
	// keepAlive is how long a connection without requests stays open.
	keepAlive = 2 * time.Minute
	// closeTimeout bounds handing unused IDs back.
	closeTimeout = 3 * time.Second
)

func serveCommand() *cobra.Command {
	command := &cobra.Command{Use: "serve", Short: "Serve records", Args: cobra.NoArgs}
	config := configFlag(command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		cfg, err := LoadConfig(*config, os.Environ())
		if err != nil {
			return err
		}
		return serve(command.Context(), cfg, newLogger(command.ErrOrStderr(), cfg))
	}
	return command
}

func newLogger(out io.Writer, cfg *Config) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // the config was validated
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))
}

// serve runs a gateway until ctx ends, then stops taking requests, lets those under way finish within the grace period
// and hands unused IDs back.
func serve(ctx context.Context, cfg *Config, logger *slog.Logger) error {
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := openParts(startCtx, cfg, logger)
	if err != nil {
		return err
	}
	logger = logger.With("instance", p.identity.Instance())
	server := handlers.New(p.store, handlerOptions(cfg, p, logger))
	err = listen(ctx, cfg, server, logger)
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if closeErr := p.close(closeCtx); closeErr != nil {
		logger.Warn("unused IDs are lost", "cause", closeErr.Error())
	}
	logger.Info("stopped")
	return err
}

func handlerOptions(cfg *Config, p *parts, logger *slog.Logger) handlers.Options {
	options := handlers.Options{
		RequestTimeout: cfg.Server.RequestTimeout,
		MaxBodyBytes:   int64(cfg.Server.MaxBodyBytes),
		MaxBulkBytes:   int64(cfg.Server.MaxBulkBytes),
		NewKey:         p.identity.NewKey,
		Metrics:        promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{}),
		Logger:         logger,
	}
	for _, c := range cfg.Collections {
		options.Collections = append(options.Collections, handlers.Collection{Name: c.Name, KeyMember: c.Key})
	}
	return options
}

// listen serves both listeners until ctx ends or one of them fails.
func listen(ctx context.Context, cfg *Config, server *handlers.Server, logger *slog.Logger) error {
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
	go func() { failed <- public.Serve(publicListener) }()
	go func() { failed <- admin.Serve(adminListener) }()
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

func newHTTPServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       keepAlive,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
