package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// bulkServer answers like the gateway's bulk endpoint, from a map.
type bulkServer struct {
	*httptest.Server
	requests chan int // the number of each request, from 1, as it begins; nil to drop them

	mu      sync.Mutex
	records map[string]string
	posts   int
	// disturb may take over the answer for one record of a request: the status to answer with instead of creating it,
	// or one of the constants below. nil disturbs nothing.
	disturb func(post, index int, key string) (status int)
}

const (
	asUsual    = 0
	losesReply = -1 // created, but the connection is cut before the answer
	isCut      = -2 // the connection is cut before it is created
)

func newBulkServer(t *testing.T) *bulkServer {
	t.Helper()
	s := &bulkServer{records: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/records", s.bulk)
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", problemType)
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"status":404,"title":"Not Found","code":"unknown_collection","detail":"no such collection"}`)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *bulkServer) bulk(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.posts++
	post := s.posts
	s.mu.Unlock()
	if s.requests != nil {
		s.requests <- post
	}
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex()
	w.Header().Set("Content-Type", ndjsonType)
	lines := bufio.NewReader(r.Body)
	for i := 0; ; i++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		status, key := s.create(post, i, strings.TrimSuffix(line, "\n"))
		if status == losesReply || status == isCut {
			_ = control.Flush()
			panic(http.ErrAbortHandler)
		}
		answer := map[string]any{"status": status, "key": key}
		if status != http.StatusCreated {
			answer["error"] = map[string]string{"code": fmt.Sprint("code_", status), "detail": "refused " + key}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}
}

func (s *bulkServer) create(post, index int, doc string) (status int, key string) {
	var record struct{ Key string }
	if err := json.Unmarshal([]byte(doc), &record); err != nil || record.Key == "" {
		return http.StatusUnprocessableEntity, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	treat := asUsual
	if s.disturb != nil {
		treat = s.disturb(post, index, record.Key)
	}
	if treat > 0 || treat == isCut {
		return treat, record.Key
	}
	if _, found := s.records[record.Key]; found {
		return http.StatusConflict, record.Key
	}
	s.records[record.Key] = doc
	if treat == losesReply {
		return losesReply, record.Key
	}
	return http.StatusCreated, record.Key
}

func (s *bulkServer) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.records))
}

// lockedBuffer is a writer for two goroutines that tells of each write.
type lockedBuffer struct {
	mu    sync.Mutex
	text  strings.Builder
	wrote func(string)
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrote(string(p))
	return b.text.Write(p)
}
