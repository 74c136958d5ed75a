package handlers

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"keyrange/store"
)

// Attributes of a request's span: those of OpenTelemetry's conventions for HTTP, and our own.
const (
	attributeMethod      = "http.request.method"
	attributeRoute       = "http.route"
	attributeStatus      = "http.response.status_code"
	attributeErrorType   = "error.type"
	attributeCollection  = "keyrange.collection"
	attributeRequestID   = "keyrange.request_id"
	attributeItems       = "keyrange.items"
	attributeItemsFailed = "keyrange.items_failed"
)

// headerTraceParent says which span a request is below, and whether that is recorded (W3C Trace Context).
const headerTraceParent = "Traceparent"

// keyHashBytes is how much of a key's SHA-256 is logged: enough to tell the keys of a day's log apart.
const keyHashBytes = 6

// beginTrace begins the span of a request for records, below that which its client names (traceparent), and sees to it that the
// store tells of its steps. It costs next to nothing when neither traces nor the log want to know.
func (s *Server) beginTrace(x *exchange) {
	if pattern := x.Path(); pattern != patternCollection && pattern != patternRecord {
		return
	}
	if s.options.Tracer != nil {
		s.beginSpan(x)
	}
	if x.watched = x.span != nil || x.limits.SlowRequest > 0; x.watched {
		x.ctx = store.WithSteps(x.ctx, &x.steps)
	}
}

// beginSpan begins the span of a request whose client asks for it, or which is one of the share. Most requests are neither, and
// for them nothing is made.
func (s *Server) beginSpan(x *exchange) {
	request, parent := x.Request(), x.ctx
	if request.Header.Get(headerTraceParent) != "" {
		parent = propagation.TraceContext{}.Extract(parent, propagation.HeaderCarrier(request.Header))
	}
	if !trace.SpanContextFromContext(parent).IsValid() && rand.Float64() >= s.options.TraceRatio {
		return
	}
	traced, span := s.options.Tracer.Start(parent, methodOf(request)+" "+x.Path(), trace.WithSpanKind(trace.SpanKindServer))
	if span.IsRecording() {
		x.ctx, x.span = traced, span
	}
}

// endTrace ends the span of the request. It never has the key, the path or the query, nor the text of an error.
func (x *exchange) endTrace(err error) {
	if x.span == nil {
		return
	}
	response := x.Response()
	x.span.SetAttributes(
		attribute.String(attributeMethod, methodOf(x.Request())),
		attribute.String(attributeRoute, x.Path()),
		attribute.Int(attributeStatus, response.Status),
		attribute.String(attributeRequestID, x.id))
	if x.collection != nil {
		x.span.SetAttributes(attribute.String(attributeCollection, x.collection.Name))
	}
	if x.items > 0 {
		x.span.SetAttributes(attribute.Int(attributeItems, x.items), attribute.Int(attributeItemsFailed, x.failed))
	}
	if err != nil {
		line, _ := statusOf(err)
		x.span.SetAttributes(attribute.String(attributeErrorType, line.code))
		if line.status >= http.StatusInternalServerError {
			x.span.SetStatus(codes.Error, line.code)
		}
	}
	x.span.End()
}

// methodOf is the method of a request, or a word for all those that no route takes: clients may send what they like.
func methodOf(request *http.Request) string {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return request.Method
	}
	return "_OTHER"
}

// isSlow reports whether the log should warn of a request that took so long. A bulk request or a stream may take as long as
// its items do, and its client.
func (x *exchange) isSlow(took time.Duration) bool {
	many := x.items > maxPageItems || x.items > 1 && x.Request().Method == http.MethodPost
	return x.watched && x.limits.SlowRequest > 0 && took >= x.limits.SlowRequest && !many
}

// loggedStep is a step of a slow request as the log has it.
type loggedStep struct {
	Step string `json:"step"`
	// Total is the time of all steps of the kind.
	Total float64 `json:"duration_ms"`
	// Count and Longest are left out when there was one.
	Count   int     `json:"count,omitempty"`
	Longest float64 `json:"longest_ms,omitempty"`
}

// stepsTaken is what the store has done for a request, as the log has it.
func stepsTaken(steps *store.Steps) []loggedStep {
	logged := []loggedStep{}
	for _, s := range steps.All() {
		l := loggedStep{Step: s.Name, Total: milliseconds(s.Total)}
		if s.Count > 1 {
			l.Count, l.Longest = s.Count, milliseconds(s.Longest)
		}
		logged = append(logged, l)
	}
	return logged
}

// keyHash is the start of a key's SHA-256, in hex: it finds the lines of a key that is known, and shows nobody the key itself.
func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:keyHashBytes])
}
