package handlers

import (
	"context"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/labstack/echo/v4"
)

// Route patterns, in echo's notation. A key is whatever follows the collection; recordTarget takes it apart.
const (
	patternCollection = "/v1/:collection"
	patternRecord     = "/v1/:collection/*"
	patternHealthz    = "/healthz"
	patternReadyz     = "/readyz"
	patternOpenAPI    = "/openapi.json"
	patternDocs       = "/docs"
	patternMetrics    = "/metrics"
	patternProfiles   = "/debug/pprof/*"
	patternReload     = "/admin/reload"
	patternRanges     = "/admin/ranges"
	patternSweeper    = "/admin/sweeper"
	patternStatus     = "/admin/status"
	patternHistory    = "/admin/history"
	patternLookup     = "/admin/lookup"
	patternUI         = "/ui"
	patternUIFile     = "/ui/*"
)

// handler answers one request within ctx, which ends at the request timeout. An error that it returns becomes a problem
// document, unless the response has begun.
type handler func(ctx context.Context, x *exchange) error

// route is one line of the route table. A GET is a HEAD as well.
type route struct {
	method, pattern string
	handle          handler
}

// publicRoutes is the route table of the clients' listener. A known path with another method is 405, all else 404.
func (s *Server) publicRoutes() []route {
	return append(s.healthRoutes(), []route{
		{http.MethodPost, patternCollection, s.gated(s.onCollection(s.post, parameterOp))},
		{http.MethodGet, patternCollection, s.gated(s.onCollection(s.getCollection, collectionParameters...))},
		{http.MethodDelete, patternCollection, s.gated(s.onCollection(s.deleteGroup, parameterGroup))},
		{http.MethodGet, patternRecord, s.gated(s.onRecord(s.get))},
		{http.MethodPut, patternRecord, s.gated(s.onRecord(s.put))},
		{http.MethodPatch, patternRecord, s.gated(s.onRecord(s.patch))},
		{http.MethodDelete, patternRecord, s.gated(s.onRecord(s.delete))},
		{http.MethodGet, patternOpenAPI, s.openAPI},
		{http.MethodGet, patternDocs, s.docs},
	}...)
}

// adminRoutes is the route table of the operators' listener.
func (s *Server) adminRoutes() []route {
	return append(s.healthRoutes(), []route{
		{http.MethodGet, patternMetrics, s.metrics},
		{http.MethodGet, patternProfiles, profiles},
		{http.MethodPost, patternReload, s.reload},
		{http.MethodGet, patternRanges, s.ranges},
		{http.MethodGet, patternSweeper, s.sweeper},
		{http.MethodGet, patternStatus, s.status},
		{http.MethodGet, patternHistory, s.requestHistory},
		{http.MethodGet, patternLookup, s.lookup},
		{http.MethodGet, patternUI, toPage},
		{http.MethodGet, patternUIFile, page},
	}...)
}

// profiles serves what go tool pprof asks for.
func profiles(_ context.Context, x *exchange) error {
	serve := pprof.Index // which also serves the named profiles
	switch strings.TrimPrefix(x.Request().URL.Path, "/debug/pprof/") {
	case "cmdline":
		serve = pprof.Cmdline
	case "profile":
		serve = pprof.Profile
	case "symbol":
		serve = pprof.Symbol
	case "trace":
		serve = pprof.Trace
	}
	serve(x.Response(), x.Request())
	return nil
}

// metrics hands the request to the exporter.
func (s *Server) metrics(_ context.Context, x *exchange) error {
	if s.options.Metrics == nil {
		return echo.ErrNotFound
	}
	s.options.Metrics.ServeHTTP(x.Response(), x.Request())
	return nil
}

// healthRoutes are on both listeners.
func (s *Server) healthRoutes() []route {
	return []route{
		{http.MethodGet, patternHealthz, s.healthz},
		{http.MethodGet, patternReadyz, s.readyz},
	}
}

// serve runs a route under the request timeout.
func (s *Server) serve(r route) echo.HandlerFunc {
	read := r.method == http.MethodGet
	return func(c echo.Context) error {
		x := c.(*exchange)
		x.route = r.pattern
		client := x.ctx
		ctx, cancel := context.WithTimeout(client, x.limits.RequestTimeout)
		defer cancel()
		return settle(client, ctx, read, r.handle(ctx, x))
	}
}

// onCollection resolves the collection of a request before next, checks that its client may do it there, and reads its query,
// which may have the parameters that next takes.
func (s *Server) onCollection(next handler, takes ...string) handler {
	return func(ctx context.Context, x *exchange) error {
		name, _, err := splitTarget(x.Request().URL.EscapedPath())
		if err != nil {
			return err
		}
		x.collection = s.collections[name]
		if err := s.permitCollection(x, name); err != nil {
			return err
		}
		if x.collection == nil {
			return errCollection
		}
		if err := x.readQuery(takes); err != nil {
			return err
		}
		return next(ctx, x)
	}
}

// onRecord resolves the collection and the key of a request before next, and checks that its client may do it there. Records
// take no parameters.
func (s *Server) onRecord(next handler) handler {
	return func(ctx context.Context, x *exchange) error {
		name, escaped, err := splitTarget(x.Request().URL.EscapedPath())
		if err != nil {
			return err
		}
		x.collection = s.collections[name]
		if err := s.permit(x, name, roleOf(x.Request())); err != nil {
			return err
		}
		if x.collection == nil {
			return errCollection
		}
		if x.key, err = decodeKey(escaped); err != nil {
			return err
		}
		if err := s.permitKey(x, x.key); err != nil {
			return err
		}
		if err := x.readQuery(nil); err != nil {
			return err
		}
		if x.Request().Method != http.MethodDelete {
			if err := x.accepts(mediaJSON); err != nil {
				return err
			}
		}
		return next(ctx, x)
	}
}
