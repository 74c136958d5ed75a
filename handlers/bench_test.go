package handlers

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// discard is a response that nobody looks at.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// benchmarkRequest measures one request again and again, on a store that takes no time.
func benchmarkRequest(b *testing.B, method, body string, headers ...string) {
	s := New(newFake(), Options{
		Collections: []Collection{{Name: "records", KeyMember: "key"}},
		Limits:      Limits{RequestTimeout: 5 * time.Second, MaxBodyBytes: 32 << 10, MaxBulkBytes: 256 << 10},
	})
	put := httptest.NewRequest("PUT", "/v1/records/order-1", strings.NewReader(`{"total":12.50}`))
	s.Public().ServeHTTP(httptest.NewRecorder(), put)
	request := httptest.NewRequest(method, "/v1/records/order-1", nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Add(name, value)
	}
	request.ContentLength = int64(len(body))
	w := &discard{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		request.Body = io.NopCloser(strings.NewReader(body))
		s.Public().ServeHTTP(w, request)
	}
	if got := w.header.Get("Content-Length"); got != fmt.Sprint(len(`{"key":"order-1","total":12.50}`)) {
		b.Fatalf("Content-Length %s", got)
	}
}

// BenchmarkGet is the read of one record as curl and as Go's client ask for it.
func BenchmarkGet(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchmarkRequest(b, "GET", "", "Accept: */*") })
	b.Run("gzip", func(b *testing.B) { benchmarkRequest(b, "GET", "", "Accept-Encoding: gzip") })
}

// BenchmarkPut is the replacement of one record.
func BenchmarkPut(b *testing.B) {
	benchmarkRequest(b, "PUT", `{"total":12.50}`, "Content-Type: application/json", "Accept-Encoding: gzip")
}
