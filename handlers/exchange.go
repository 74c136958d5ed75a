package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"keyrange/handlers/access"
	"keyrange/store"
)

// exchange is one request and its answer, as echo's context with what the gateway adds.
type exchange struct {
	echo.Context
	// id names the request in the answer and in the log.
	id string
	// route is the matched pattern, empty when there was none.
	route string
	// limits are those of the server when the request began.
	limits *Limits
	// collection and key say what the request is about; nil and empty where it is about no record.
	collection *collection
	key        string
	// client is who sent it; nil where nobody is asked.
	client *access.Client
	// query has the parameters of the request, nil when there is none.
	query url.Values
	// idempotency is that of a POST.
	idempotency idempotency
	// ttl is how long the record that is written is to live; 0 when the request does not say.
	ttl time.Duration
	// ctx is the request's context, through which the store tells steps of what it does.
	ctx context.Context
	// span is that of the request; nil when it is not traced. steps are what the store has done for it, when watched: traces
	// or the log want to know.
	span    trace.Span
	steps   store.Steps
	watched bool
	// items and failed count the results of a bulk request; items also the records of a list.
	items, failed int
}

// maxRequestIDBytes is the longest request id that is taken over from a client.
const maxRequestIDBytes = 64

// observe wraps every request: its id, its log line, its problem document when it fails, and an answer when it panics.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		started := time.Now()
		request := c.Request()
		x := &exchange{Context: c, id: requestID(request), limits: s.limits.Load(), ctx: request.Context()}
		x.Response().Header()[echo.HeaderXRequestID] = []string{x.id}
		if request.ContentLength != 0 {
			// A context cannot interrupt the reading of a body, a deadline of the connection can. It also bounds what
			// net/http reads of a body that nobody asked for.
			x.setReadDeadline(started.Add(x.limits.RequestTimeout))
		}
		s.beginTrace(x)
		abort, err := x.run(next)
		if err != nil && !x.Response().Committed {
			err = errors.Join(err, x.fail(err))
		}
		took := time.Since(started)
		s.log(x, took, err)
		if x.route == patternCollection || x.route == patternRecord {
			s.history.add(started.Add(took), took, x.Response().Status >= http.StatusInternalServerError)
		}
		x.endTrace(err)
		if s.options.Observe != nil {
			s.options.Observe(x.served(took, err))
		}
		if abort {
			// The client has read half an answer; only a broken connection tells it so.
			panic(http.ErrAbortHandler)
		}
		return nil
	}
}

// errCutOff marks a failure in the middle of an answer, which the client can only see from a broken connection.
var errCutOff = errors.New("the answer was cut off")

// run calls next and turns a panic into an error. abort says that the response had begun by then.
func (x *exchange) run(next echo.HandlerFunc) (abort bool, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = panicError(cause)
			abort = x.Response().Committed || errors.Is(err, http.ErrAbortHandler)
		}
	}()
	err = next(x)
	var framework *echo.HTTPError
	if errors.As(err, &framework) {
		err = frameworkFault(framework)
	}
	if errors.Is(err, errMethod) {
		allow := x.Response().Header().Get(echo.HeaderAllow)
		x.Response().Header().Set(echo.HeaderAllow, strings.TrimPrefix(allow, http.MethodOptions+", "))
	}
	return errors.Is(err, errCutOff), err
}

// refuseOptions stands in for echo's own answer to OPTIONS, which it gives for every path and lists as allowed.
func refuseOptions(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().Method != http.MethodOptions || c.Get(echo.ContextKeyHeaderAllow) == nil {
			return next(c)
		}
		return echo.MethodNotAllowedHandler(c)
	}
}

// panicError is the error of a recovered panic, with the stack for the log.
func panicError(cause any) error {
	if err, ok := cause.(error); ok {
		return fmt.Errorf("panic: %w\n%s", err, debug.Stack())
	}
	return fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
}

// log writes the line of a request. It never has the key, the path or the query, but a hash of a key in the path.
func (s *Server) log(x *exchange, took time.Duration, err error) {
	level := slog.LevelInfo
	var line *status
	if err != nil {
		if line, _ = statusOf(err); line.status >= http.StatusInternalServerError {
			level = slog.LevelError
		}
	}
	slow := x.isSlow(took)
	if slow && level < slog.LevelWarn {
		level = slog.LevelWarn
	}
	request, response := x.Request(), x.Response()
	if !s.logger.Enabled(request.Context(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 17)
	attrs = append(attrs,
		slog.String("request_id", x.id),
		slog.String("method", request.Method),
		slog.String("route", x.route))
	if x.collection != nil {
		attrs = append(attrs, slog.String("collection", x.collection.Name))
	}
	if x.key != "" {
		attrs = append(attrs, slog.String("key_hash", keyHash(x.key)))
	}
	attrs = append(attrs,
		slog.Int("status", response.Status),
		slog.Int64("bytes", response.Size),
		slog.Float64("duration_ms", milliseconds(took)),
		slog.String("remote", x.RealIP()))
	if x.client != nil {
		attrs = append(attrs, slog.String("client", x.client.Name))
	}
	if x.items > 0 {
		attrs = append(attrs, slog.Int("items", x.items), slog.Int("items_failed", x.failed))
	}
	if x.span != nil {
		attrs = append(attrs, slog.String("trace_id", x.span.SpanContext().TraceID().String()))
	}
	if slow {
		attrs = append(attrs, slog.Bool("slow", true), slog.Any("steps", stepsTaken(&x.steps)))
	}
	if line != nil {
		attrs = append(attrs, slog.String("code", line.code), slog.String("cause", err.Error()))
	}
	s.logger.LogAttrs(request.Context(), level, "request", attrs...)
}

// milliseconds is a duration as a number, to the microsecond.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// requestID takes over the id that a client sent, when it is short and plain, or makes one.
func requestID(r *http.Request) string {
	if ids := r.Header[echo.HeaderXRequestID]; len(ids) == 1 && plainID(ids[0]) {
		return ids[0]
	}
	return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
}

// plainID tells whether an id may be echoed and logged: 1 to 64 of [A-Za-z0-9._-].
func plainID(id string) bool {
	for i := range len(id) {
		c := id[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return id != "" && len(id) <= maxRequestIDBytes
}

// setReadDeadline bounds the reads of the request body; the zero time lifts the bound. A connection without deadlines
// (in tests) has none to set.
func (x *exchange) setReadDeadline(t time.Time) {
	_ = http.NewResponseController(x.Response().Writer).SetReadDeadline(t)
}

// setWriteDeadline bounds the writes of the response; the zero time lifts the bound.
func (x *exchange) setWriteDeadline(t time.Time) {
	_ = http.NewResponseController(x.Response().Writer).SetWriteDeadline(t)
}
