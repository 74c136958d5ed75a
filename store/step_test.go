package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"keyrange/index"
	"keyrange/store/sqldb"
)

// newRecorder makes spans that the test can look at.
func newRecorder(t *testing.T) (*tracetest.SpanRecorder, trace.Tracer) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) }) // nothing to send
	return recorder, provider.Tracer("test")
}

// named lists the spans with a name that have ended.
func named(recorder *tracetest.SpanRecorder, name string) (spans []sdktrace.ReadOnlySpan) {
	for _, s := range recorder.Ended() {
		if s.Name() == name {
			spans = append(spans, s)
		}
	}
	return spans
}

// attributesOf are the attributes of a span as a text.
func attributesOf(s sdktrace.ReadOnlySpan) string {
	var all []string
	for _, a := range s.Attributes() {
		all = append(all, fmt.Sprintf("%s=%s", a.Key, a.Value.String()))
	}
	return fmt.Sprint(all)
}

// TestBatchLinksToItsRequests: a batch has a span below the first request that is traced, linked to and from every one of them,
// and each request has a step for its wait.
func TestBatchLinksToItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, tracer := newRecorder(t)
		l, g := gatedLane(1, 10)
		l.seen = newMetrics(nil, nil).lanes[laneRowInsert]
		var waits []func()
		ask := func(question int, traced bool) (steps *Steps) {
			ctx, span := t.Context(), trace.Span(nil)
			if traced {
				ctx, span = tracer.Start(ctx, "request")
			}
			steps = &Steps{}
			_, wait := askAll(WithSteps(ctx, steps), l, question)
			waits = append(waits, func() {
				wait()
				if traced {
					span.End()
				}
			})
			return steps
		}
		ask(1, false) // alone, and traces nothing
		plain := ask(2, false)
		ask(3, true)
		last := ask(4, true)
		time.Sleep(time.Second)
		close(g.open)
		for _, wait := range waits {
			wait()
		}
		batches, steps, requests := named(recorder, "batch "+laneRowInsert), named(recorder, laneRowInsert), named(recorder, "request")
		if len(batches) != 1 || len(steps) != 2 || len(requests) != 2 || len(recorder.Ended()) != 5 {
			t.Fatalf("%d batches, %d steps, %d requests of %d spans", len(batches), len(steps), len(requests), len(recorder.Ended()))
		}
		batch := batches[0]
		if got, want := attributesOf(batch), "[keyrange.lane=row_insert keyrange.batch_size=3]"; got != want {
			t.Errorf("attributes %s, want %s", got, want)
		}
		if len(batch.Links()) != 2 || batch.Links()[0].SpanContext.SpanID() != batch.Parent().SpanID() {
			t.Errorf("the batch has the links %v and the parent %v", batch.Links(), batch.Parent())
		}
		for _, s := range steps {
			linked := slices.ContainsFunc(batch.Links(), func(l sdktrace.Link) bool { return l.SpanContext.Equal(s.SpanContext()) })
			if !linked || len(s.Links()) != 1 || !s.Links()[0].SpanContext.Equal(batch.SpanContext()) {
				t.Errorf("a step of trace %s is linked to %v", s.SpanContext().TraceID(), s.Links())
			}
		}
		for _, s := range []*Steps{plain, last} {
			if got := s.All(); len(got) != 1 || got[0] != (Step{laneRowInsert, 1, time.Second, time.Second}) {
				t.Errorf("steps %v", got)
			}
		}
	})
}

// TestStepsOfATakeOver: the steps within another one are below it, and none of them has the key.
func TestStepsOfATakeOver(t *testing.T) {
	engines(t, func(t *testing.T, d deployment) {
		s := d.open(t)
		recorder, tracer := newRecorder(t)
		if errs := s.index.Insert(t.Context(), testCollection, []index.Entry{{Key: "sentinel", ID: 900}}); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		ctx, span := tracer.Start(t.Context(), "request")
		steps := &Steps{}
		if _, err := s.Create(WithSteps(ctx, steps), testCollection, "sentinel", doc("v")); err != nil {
			t.Fatal(err)
		}
		span.End()
		var got []string
		for _, step := range steps.All() {
			got = append(got, step.Name)
		}
		// The row and the fence before it are both row_insert.
		want := []string{stepTakeID, laneEntryInsert, laneEntryFind, laneRowRead, laneRowInsert, stepTakeOver}
		if !slices.Equal(got, want) {
			t.Errorf("steps %v, want %v", got, want)
		}
		over := named(recorder, stepTakeOver)
		if len(over) != 1 {
			t.Fatalf("%d spans of take_over", len(over))
		}
		for _, read := range named(recorder, laneRowRead) {
			if read.Parent().SpanID() != over[0].SpanContext().SpanID() {
				t.Error("a look at the row is not below take_over")
			}
		}
		if inserts := named(recorder, laneEntryInsert); len(inserts) != 1 || attributesOf(inserts[0]) != "[keyrange.outcome=exists]" {
			t.Errorf("entry_insert: %v", inserts)
		}
	})
}

// TestStepsUnwanted: without Steps a call traces nothing, though there is a span.
func TestStepsUnwanted(t *testing.T) {
	recorder, tracer := newRecorder(t)
	ctx, _ := tracer.Start(t.Context(), "request")
	allocations := testing.AllocsPerRun(10, func() {
		_, s := beginStep(ctx, stepTakeID)
		s.end(nil)
	})
	if allocations > 0 || len(recorder.Started()) != 1 {
		t.Errorf("%v allocations, %d spans", allocations, len(recorder.Started()))
	}
}

// TestStepOutcome: a step is at fault only when a database is.
func TestStepOutcome(t *testing.T) {
	for _, tt := range []struct {
		err     error
		outcome string
		isFault bool
	}{
		{nil, "", false},
		{fmt.Errorf("x: %w", sqldb.ErrDuplicate), "exists", false},
		{&ConflictError{}, "exists", false},
		{&replayedError{}, "exists", false},
		{errLost, "lost", false},
		{fmt.Errorf("x: %w: %w", ErrUnavailable, sqldb.ErrUnknown), "unknown", true},
		{index.ErrUnavailable, "unavailable", true},
		{errors.New("x"), "failed", true},
	} {
		if outcome, isFault := stepOutcome(tt.err); outcome != tt.outcome || isFault != tt.isFault {
			t.Errorf("%v: %s, %v", tt.err, outcome, isFault)
		}
	}
}

// TestStepsKinds: many of a kind are one line, and there is room for more kinds than usual.
func TestStepsKinds(t *testing.T) {
	s := &Steps{}
	for _, took := range []time.Duration{1, 3, 2} {
		s.add("a", took)
	}
	for i := range usualSteps {
		s.add(fmt.Sprint(i), 1)
	}
	if got := s.All(); len(got) != usualSteps+1 || got[0] != (Step{"a", 3, 6, 3}) || got[usualSteps].Count != 1 {
		t.Errorf("steps %v", got)
	}
}
