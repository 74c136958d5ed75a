package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"keyrange/index"
	"keyrange/store/sqldb"
)

// Steps of a request besides those that go through a lane, which have its name.
const (
	stepTakeID      = "take_id"
	stepTakeOver    = "take_over"
	stepListRows    = "list_rows"
	stepListRanges  = "list_ranges"
	stepGroupRanges = "group_ranges"
)

// usualSteps is how many kinds of steps most requests have; there are few more altogether.
const usualSteps = 4

// Step is what a request has spent on one kind of step.
type Step struct {
	Name  string
	Count int
	// Total is the time of all of them together, which is more than the clock's where they ran at the same time; Longest is
	// that of the longest. A step that others are part of counts their time as well.
	Total, Longest time.Duration
}

// Steps collects the steps of one request. Its zero value has none. It is safe for concurrent use.
type Steps struct {
	// traced says that the context has a span that is recorded, so that each step gets one.
	traced bool

	mu    sync.Mutex
	list  []Step
	usual [usualSteps]Step // the memory that list begins with
}

// stepsKey finds Steps in a context.
type stepsKey struct{}

// WithSteps makes calls of a Store under the context it returns tell steps of what they do. Where the context has a span that is
// recorded, they also make spans below it. Without it they do neither, at no cost.
func WithSteps(ctx context.Context, steps *Steps) context.Context {
	steps.traced = trace.SpanFromContext(ctx).IsRecording()
	return context.WithValue(ctx, stepsKey{}, steps)
}

// All lists the steps so far, in the order in which the first of each kind ended.
func (s *Steps) All() []Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// add counts a step that has ended.
func (s *Steps) add(name string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = s.usual[:0]
	}
	i := slices.IndexFunc(s.list, func(s Step) bool { return s.Name == name })
	if i < 0 {
		i = len(s.list)
		s.list = append(s.list, Step{Name: name})
	}
	at := &s.list[i]
	at.Count++
	at.Total += took
	at.Longest = max(at.Longest, took)
}

// step is a step under way; the zero value is one that nobody wants to know of.
type step struct {
	name  string
	steps *Steps
	began time.Time
	// span is nil unless the request is traced.
	span trace.Span
}

// beginStep begins a step of the request that a context belongs to. What is part of it has to run under the context it returns.
func beginStep(ctx context.Context, name string) (context.Context, step) {
	steps, ok := ctx.Value(stepsKey{}).(*Steps)
	if !ok {
		return ctx, step{}
	}
	s := step{name: name, steps: steps, began: time.Now()}
	if steps.traced {
		ctx, s.span = tracerOf(trace.SpanFromContext(ctx)).Start(ctx, name)
	}
	return ctx, s
}

// end ends the step.
func (s step) end(err error) {
	if s.steps == nil {
		return
	}
	s.steps.add(s.name, time.Since(s.began))
	if s.span != nil {
		endSpan(s.span, err)
	}
}

// Attributes of spans.
const (
	attributeLane      = "keyrange.lane"
	attributeBatchSize = "keyrange.batch_size"
	attributeOutcome   = "keyrange.outcome"
)

// beginBatch begins the span of a batch of a lane: below the first of the spans that wait for it, with links to and from all of
// them. Without any there is none, and the span is nil.
func beginBatch(ctx context.Context, lane string, size int, waiting []trace.Span) (context.Context, trace.Span) {
	if len(waiting) == 0 {
		return ctx, nil
	}
	links := make([]trace.Link, len(waiting))
	for i, w := range waiting {
		links[i].SpanContext = w.SpanContext()
	}
	first := waiting[0]
	ctx, span := tracerOf(first).Start(trace.ContextWithSpan(ctx, first), "batch "+lane, trace.WithLinks(links...),
		trace.WithAttributes(attribute.String(attributeLane, lane), attribute.Int(attributeBatchSize, size)))
	for _, w := range waiting {
		w.AddLink(trace.Link{SpanContext: span.SpanContext()})
	}
	return ctx, span
}

// tracerOf makes spans that go where another one goes: whoever has begun the span of a request decides.
func tracerOf(span trace.Span) trace.Tracer { return span.TracerProvider().Tracer("keyrange/store") }

// endSpan ends a span with what is known of an error. Its text stays out: a database may have put a key there.
func endSpan(span trace.Span, err error) {
	if outcome, isFault := stepOutcome(err); outcome != "" {
		span.SetAttributes(attribute.String(attributeOutcome, outcome))
		if isFault {
			span.SetStatus(codes.Error, outcome)
		}
	}
	span.End()
}

// stepOutcome says in a word how a step has failed, and whether that is a fault or a part of the protocol.
func stepOutcome(err error) (outcome string, isFault bool) {
	matches := func(kinds ...error) bool {
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				return true
			}
		}
		return false
	}
	var earlier *replayedError
	switch {
	case err == nil:
		return "", false
	case errors.As(err, &earlier), matches(index.ErrExists, sqldb.ErrDuplicate, ErrConflict, ErrReused):
		return "exists", false
	case matches(errLost):
		return "lost", false
	case matches(ErrNotFound):
		return "not_found", false
	case matches(sqldb.ErrRejected):
		return "rejected", false // as by a table that does not exist yet
	case matches(ErrUnknown, sqldb.ErrUnknown, index.ErrUnknown):
		return "unknown", true
	case matches(ErrUnavailable, sqldb.ErrUnavailable, index.ErrUnavailable):
		return "unavailable", true
	}
	return "failed", true
}
