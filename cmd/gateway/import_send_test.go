package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestImportTransientStatuses(t *testing.T) {
	s := newBulkServer(t)
	busy := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	seen := map[string]int{}
	s.disturb = func(_, index int, key string) int {
		seen[key]++
		if seen[key] <= index%4 {
			return busy[index%3]
		}
		return asUsual
	}
	text, keys := ndjsonOf(60)
	out, errOut, err := runHasty(t, hasty(t, s.URL, nil), text)
	if err != nil || errOut != "" {
		t.Fatalf("error %v, stderr %s", err, errOut)
	}
	wantReport(t, out, 60, 0, 0)
	if !slices.Equal(s.keys(), keys) {
		t.Errorf("keys %q", s.keys())
	}
}

func TestImportTransientForEver(t *testing.T) {
	s := newBulkServer(t)
	tries := 0
	s.disturb = func(_, _ int, key string) int {
		if key == "k00003" {
			tries++
			return http.StatusServiceUnavailable
		}
		return asUsual
	}
	text, _ := ndjsonOf(30)
	out, errOut, err := runHasty(t, hasty(t, s.URL, nil), text)
	if err == nil || err.Error() != "1 of 30 records failed" {
		t.Errorf("error %v", err)
	}
	wantReport(t, out, 29, 0, 1)
	if want := "line 4: 503 code_503: refused k00003\n"; errOut != want {
		t.Errorf("stderr %q, want %q", errOut, want)
	}
	if want := 1 + importRounds; tries != want {
		t.Errorf("%d tries, want %d", tries, want)
	}
}

func TestImportConnectionCut(t *testing.T) {
	s := newBulkServer(t)
	cuts := 0
	s.disturb = func(_, index int, _ string) int {
		if cuts < 20 && index == 4 {
			cuts++
			return losesReply
		}
		return asUsual
	}
	text, keys := ndjsonOf(200)
	out, errOut, err := runHasty(t, hasty(t, s.URL, nil), text)
	if err != nil || errOut != "" {
		t.Fatalf("error %v, stderr %s", err, errOut)
	}
	if cuts != 20 || !slices.Equal(s.keys(), keys) {
		t.Errorf("%d cuts, %d keys", cuts, len(s.keys()))
	}
	wantReport(t, out, 180, 20, 0) // what was created while the reply was lost is found at the next try
}

func TestImportConnectionCutForEver(t *testing.T) {
	s := newBulkServer(t)
	s.disturb = func(_, _ int, key string) int {
		if key == "k00015" {
			return isCut
		}
		return asUsual
	}
	text, _ := ndjsonOf(100)
	out, _, err := runHasty(t, hasty(t, s.URL, func(r *importRun) { r.concurrency = 1 }), text)
	if err == nil || !strings.Contains(err.Error(), "gave up after 5 tries: "+s.URL+"/v1/records: ") {
		t.Errorf("error %v", err)
	}
	wantReport(t, out, 15, 0, 0)
}

func TestImportServerStalled(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", ndjsonType)
		_ = http.NewResponseController(w).Flush()
		<-release
	}))
	defer s.Close()
	defer close(release)
	out, _, err := runHasty(t, hasty(t, s.URL, func(r *importRun) { r.sender.idle = 5 * time.Millisecond }), `{"key":"a"}`)
	if want := "gave up after 5 tries: " + s.URL + "/v1/records: the server has stalled"; err == nil || err.Error() != want || out != "" {
		t.Errorf("got %q, %v, want %s", out, err, want)
	}
}

func TestImportWrongServer(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	gateway := newBulkServer(t)
	answer := func(status int, kind, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Location", "https://elsewhere.example/")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	tests := []struct{ name, server, collection, want string }{
		{"unreachable", gone.URL, "records", "gave up after 5 tries: .*/v1/records: dial tcp .*: connection refused$"},
		{"no such collection", gateway.URL, "other", "/v1/other answered 404 Not Found, unknown_collection: no such collection$"},
		{"another server", answer(404, "text/plain", "no"), "records", `answered 404 Not Found \(text/plain\): not a gateway$`},
		{"a page", answer(200, "text/html", "<html>"), "records", `answered 200 OK \(text/html\): not a gateway$`},
		{"a redirect", answer(301, "", ""), "records", `answered 301 Moved Permanently .*: not a gateway$`},
		{"foreign results", answer(200, ndjsonType, "{\"status\":\"up\"}\n"), "records", "not a gateway's result: "},
		{"no JSON", answer(200, ndjsonType, "hello\n"), "records", "not a gateway's result: "},
		{"another key", answer(200, ndjsonType, `{"status":201,"key":"zz"}`), "records", `out of step: 0 results on, it answered for key "zz" where line 1 has "k00000"$`},
		{"too many results", answer(200, ndjsonType, strings.Repeat(`{"status":201}`, 11)), "records", "out of step: more results than records$"},
		{"too few results", answer(200, ndjsonType, ""), "records", "the answer ended after 0 of 10 results$"},
		{"busy", answer(503, problemType, `{"code":"busy","title":"Busy"}`), "records", "gave up after 5 tries: .* answered 503 Service Unavailable, busy: Busy$"},
	}
	text, _ := ndjsonOf(20)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := hasty(t, tt.server, func(r *importRun) {
				r.sender.target = r.sender.target.JoinPath("..", tt.collection)
			})
			_, _, err := runHasty(t, r, text)
			if err == nil || !regexp.MustCompile(tt.want).MatchString(err.Error()) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}
