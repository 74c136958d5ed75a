// Package handlers is the HTTP face of the gateway: requests in, store calls out.
// routes.go holds the whole route table, problem.go the one table from errors to statuses.
package handlers

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"keyrange/handlers/access"
	"keyrange/store"
)

// Records is what the handlers need of the record store. Its errors are those of package store. A document handed in
// must not be changed afterwards, by either side: the store may still be sending it when the call has returned.
type Records interface {
	// CreateOnce stores a content under a key that has none; otherwise the error is a *store.ConflictError. replayed says
	// that the same request, marked by once, has created the record before.
	CreateOnce(ctx context.Context, collection, key string, content store.Content, once store.Once) (rec store.Record, replayed bool, err error)
	// Get returns the record under the key.
	Get(ctx context.Context, collection, key string) (store.Record, error)
	// Put stores a content whether or not there is a record; created tells which it was.
	Put(ctx context.Context, collection, key string, content store.Content, cond store.Condition) (rec store.Record, created bool, err error)
	// Delete removes the record under the key.
	Delete(ctx context.Context, collection, key string, cond store.Condition) error
	// List returns a page of a walk through a collection, in the order of the IDs. The caller may change its documents.
	List(ctx context.Context, collection string, walk store.Walk) (store.Page, error)
	// CountGroup counts the records of a group.
	CountGroup(ctx context.Context, collection, group string) (int64, error)
	// DeleteGroup takes the deletion of a group on.
	DeleteGroup(ctx context.Context, collection, group string) (store.Deletion, error)
	// Deletion says how far a deletion has come.
	Deletion(ctx context.Context, collection, id string) (store.Deletion, error)
	// Health asks every dependency, side by side, whether it answers, until ctx ends.
	Health(ctx context.Context) []store.Health
	// MaxDocumentBytes is the size of the largest document that every node takes.
	MaxDocumentBytes() int64
	// Levels says how full the ranges are; exact counts every record, as long as ctx lasts.
	Levels(ctx context.Context, exact bool) (store.Levels, error)
	// Sweeper says what the sweeper of the fleet does.
	Sweeper(ctx context.Context) (store.SweeperStatus, error)
	// Overview says how the ranges are spread over the nodes. It asks no database.
	Overview() store.Overview
	// Trace says what is met on the path from a key to its row.
	Trace(ctx context.Context, collection, key string) (store.Trace, error)
}

// Collection is one collection that the gateway serves.
type Collection struct {
	// Name is the path segment after /v1/.
	Name string
	// KeyMember is the top-level member of a document that holds its key.
	KeyMember string
	// GroupMember is the top-level member that holds its group; empty when the records have none.
	GroupMember string
	// TTLMember is the top-level member of a document that says for how many seconds the record lives, where the request
	// does not; "" for none.
	TTLMember string
}

// Limits bound what one request may take. Zeroes are not defaulted: they refuse everything, but for SlowRequest.
type Limits struct {
	// RequestTimeout bounds one request, or one item of a bulk request.
	RequestTimeout time.Duration
	// MaxBodyBytes bounds the body of one record, MaxBulkBytes a whole JSON array. An NDJSON stream has no end to bound.
	MaxBodyBytes, MaxBulkBytes int64
	// MaxRequests bounds the requests for records that are under way at once, MaxRequestBytes their bodies together.
	MaxRequests     int
	MaxRequestBytes int64
	// SlowRequest is how long a request for records may take before its line in the log is a warning with its steps; 0 warns
	// of none.
	SlowRequest time.Duration
}

// Options are the settings of a Server.
type Options struct {
	// Limits are those to start with, see Server.SetLimits.
	Limits
	// Collections lists what is served; another name answers 404.
	Collections []Collection
	// NewKey makes the key of a record that is posted without one.
	NewKey func() (string, error)
	// Guard says who a client is and what it may do; nil asks nobody.
	Guard *access.Guard
	// GuardAdmin lets only clients with the admin role for all collections use the operators' listener.
	GuardAdmin bool
	// TrustedProxies are the networks of proxies that may say for whom they send a request (X-Forwarded-For); nil for none.
	TrustedProxies []netip.Prefix
	// CORSOrigins are the origins whose pages in browsers may use the clients' listener, or "*"; nil for none.
	CORSOrigins []string
	// Metrics answers /metrics on the operators' listener; nil for none.
	Metrics http.Handler
	// Reload puts the config file in force for POST /admin/reload on the operators' listener; nil answers 404. It ends
	// with its context, at the latest within a bound of its own.
	Reload func(ctx context.Context) (Reloaded, error)
	// Program says what the operators' page shows of the program itself; nil for nothing.
	Program func() Program
	// Observe is told of each request when it is answered; nil when nobody wants to know.
	Observe func(Served)
	// Tracer makes the spans of requests for records; nil for none. It decides for those whose clients name a span (traceparent).
	// Of the others it gets a share, TraceRatio, from 0 to 1, and is to record them all.
	Tracer     trace.Tracer
	TraceRatio float64
	// Logger gets one line per request; nil discards them.
	Logger *slog.Logger
}

// collection is a Collection as the handlers use it.
type collection struct {
	Collection
	// opening is the start of a document that gets its key put first: `{"<key member>":`.
	opening []byte
}

// Server answers HTTP requests from a record store. It holds no state but the history of its requests and starts nothing; its
// handlers may be used by any number of listeners at once.
type Server struct {
	records     Records
	options     Options
	collections map[string]*collection
	logger      *slog.Logger
	// limits are read once per request, by observe, so that one request never sees two of them.
	limits atomic.Pointer[Limits]
	gate   gate
	// history is of the requests for records.
	history *history
	// streamIdle bounds one wait for the client of a bulk request, in either direction.
	streamIdle time.Duration
	// now is the clock that expiries are reckoned by: time.Now, but in tests.
	now func() time.Time
	// description is the answer of /openapi.json and /docs.
	description func() (description, error)
	public      *echo.Echo
	compressed  http.Handler // public, for clients that take gzip
	admin       *echo.Echo
}

// streamIdleTimeout is the wait of Server.streamIdle: long enough for a producer that computes, short enough that dead
// clients do not pile up.
const streamIdleTimeout = time.Minute

// New builds a server. The options must have been validated: collection names and key members are taken as they are.
func New(records Records, options Options) *Server {
	s := &Server{
		records:     records,
		options:     options,
		collections: make(map[string]*collection, len(options.Collections)),
		logger:      options.Logger,
		streamIdle:  streamIdleTimeout,
		history:     newHistory(time.Now()),
		now:         time.Now,
		description: describeCollections(options.Collections),
	}
	s.SetLimits(options.Limits)
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	for _, c := range options.Collections {
		s.collections[c.Name] = &collection{Collection: c, opening: documentOpening(c.KeyMember)}
	}
	s.public = s.listener(s.publicRoutes(), allowOrigins(options.CORSOrigins)...)
	s.compressed = compressing(s.public)
	s.admin = s.listener(s.guardOperators(s.adminRoutes()))
	return s
}

// SetLimits bounds the requests that begin from now on; those under way keep the limits that they began with. Safe for
// concurrent use.
func (s *Server) SetLimits(limits Limits) { s.limits.Store(&limits) }

// Public is the handler of the listener that clients use.
func (s *Server) Public() http.Handler { return s.compressed }

// Admin is the handler of the operators' listener.
func (s *Server) Admin() http.Handler { return s.admin }

// listener builds the echo instance of one listener; before runs ahead of its routes. Echo prints nothing: what there is to say
// is in the request line.
func (s *Server) listener(routes []route, before ...echo.MiddlewareFunc) *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(io.Discard)
	e.IPExtractor = clientAddress(s.options.TrustedProxies)
	e.Use(s.observe)
	e.Use(before...)
	e.Use(refuseOptions)
	for _, r := range routes {
		e.Add(r.method, r.pattern, s.serve(r))
		if r.method == http.MethodGet {
			e.Add(http.MethodHead, r.pattern, s.serve(r))
		}
	}
	return e
}
