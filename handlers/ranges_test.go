package handlers

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"keyrange/store"
)

// testLevels has a collection of which all is known, and one of which little is.
func testLevels() store.Levels {
	perDay, days := 1250.5, 15.25
	return store.Levels{
		At: time.Date(2026, 3, 1, 13, 0, 0, 0, time.FixedZone("CET", 3600)),
		Ranges: []store.Level{
			{Collection: "orders", Range: 1, Node: "node-1", Lo: 1, Hi: 1001, Issued: 1000, Complete: true, Live: 900, Bytes: 123456, Exact: true, Drained: true},
			{Collection: "orders", Range: 2, Node: "node-2", Lo: 1001, Hi: 2001, Issued: 10, Complete: true, Live: -1, Bytes: -1, Open: true},
		},
		Collections: []store.Outlook{
			{Collection: "orders", Owned: 2000, Issued: 1010, Left: 990, PerDay: &perDay, DaysLeft: &days, State: store.StateWarn, Complete: true},
			{Collection: "records", Owned: 2000, Left: 1000, State: store.StateOK},
		},
	}
}

// askRanges sends a request to the operators' listener.
func (r *rig) askRanges(query string) *httptest.ResponseRecorder {
	request := httptest.NewRequest("GET", patternRanges+query, nil)
	request.Header.Set("X-Request-Id", "test")
	answer := httptest.NewRecorder()
	r.Admin().ServeHTTP(answer, request)
	return answer
}

// TestRanges: the operators' listener says how full the ranges are; the clients' has no such path.
func TestRanges(t *testing.T) {
	r := newRig(t)
	r.fake.levels = testLevels()
	golden(t, "ranges", transcript(r.askRanges("")))
	r.fake.levels = store.Levels{At: fakeNow}
	golden(t, "ranges_none", transcript(r.askRanges("")))
	r.expect(404, "not_found", "GET", patternRanges, "")
}

// TestRangesParameters: only exact is known, and only with these values.
func TestRangesParameters(t *testing.T) {
	for query, want := range map[string]string{
		"": "levels exact=false", "?": "levels exact=false", "?exact=false": "levels exact=false", "?exact=true": "levels exact=true",
		"?exact=1":               `exact must be true or false (got \"1\").`,
		"?exact":                 `exact must be true or false (got \"\").`,
		"?exact=true&exact=true": "exact is given 2 times.",
		"?exact=true&all=yes":    `There is no parameter \"all\"; known here: exact.`,
		"?Exact=true":            `There is no parameter \"Exact\"; known here: exact.`,
		"?exact=%zz":             "The query is not a list of name=value pairs.",
	} {
		r := newRig(t)
		asked := ""
		r.fake.before = func(_ context.Context, op, _ string) error { asked = op; return nil }
		answer := r.askRanges(query)
		switch {
		case strings.HasPrefix(want, "levels"):
			if answer.Code != 200 || asked != want {
				t.Errorf("%s: %d, asked for %q, want %q", query, answer.Code, asked, want)
			}
		case answer.Code != 400 || asked != "" || !strings.Contains(answer.Body.String(), `"code":"invalid_parameter","detail":"`+want+`"`):
			t.Errorf("%s: %d %s", query, answer.Code, answer.Body)
		}
	}
}

// TestRangesWait: a count has as long as its client waits, and ends with it; issuers that do not answer are unavailable.
func TestRangesWait(t *testing.T) {
	r := newRig(t)
	r.limit(func(l *Limits) { l.RequestTimeout = 1 })
	r.fake.before = func(ctx context.Context, _, _ string) error { return ctx.Err() }
	if answer := r.askRanges("?exact=true"); answer.Code != 200 {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	answer := httptest.NewRecorder()
	r.fake.before = func(ctx context.Context, _, _ string) error {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	r.Admin().ServeHTTP(answer, httptest.NewRequestWithContext(gone, "GET", patternRanges, nil))
	if answer.Code != statusClientClosed {
		t.Errorf("for a client that went away: %d", answer.Code)
	}
	r.limit(func(l *Limits) { l.RequestTimeout = time.Minute })
	r.fake.before = func(context.Context, string, string) error { return store.ErrUnavailable }
	if answer := r.askRanges(""); answer.Code != 503 {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}
