package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listServer answers like the gateway's lists, from a slice. Its cursors are numbers.
type listServer struct {
	*httptest.Server
	docs []string
	most int // per page
	gets int
	// disturb may take over the answer to a request, counted from 1; it reports whether it did.
	disturb func(get int, w http.ResponseWriter) bool
}

func newListServer(t *testing.T, n, most int) *listServer {
	t.Helper()
	s := &listServer{most: most}
	for i := range n {
		s.docs = append(s.docs, fmt.Sprintf(`{"key":"k%05d", "n" : %d.0}`, i, i))
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.list))
	t.Cleanup(s.Close)
	return s
}

func (s *listServer) list(w http.ResponseWriter, r *http.Request) {
	s.gets++
	if s.disturb != nil && s.disturb(s.gets, w) {
		return
	}
	if r.URL.Path != "/v1/records" || r.URL.Query().Get("order") != "asc" || r.URL.Query().Get("limit") != "1000" {
		w.Header().Set("Content-Type", problemType)
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"status":404,"title":"Not Found","code":"collection_not_found","detail":"no such collection"}`)
		return
	}
	at, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	end := min(at+s.most, len(s.docs))
	w.Header().Set("Content-Type", jsonType)
	body := `{"items":[` + strings.Join(s.docs[at:end], ",") + `]`
	if end < len(s.docs) {
		body += fmt.Sprintf(`,"next":"%d"`, end)
	}
	_, _ = io.WriteString(w, body+"}\n")
}

// text is the export of all.
func (s *listServer) text() string { return strings.Join(s.docs, "\n") + "\n" }

// export runs an export of records without long waits.
func export(ctx context.Context, server, out string, change func(*exportRun)) (stdout, stderr string, err error) {
	r, err := newExportRun(exportOptions{server: server, collection: "records", out: out, order: "asc"})
	if err != nil {
		return "", "", err
	}
	r.sender.backoff, r.tick, r.saveEvery = time.Microsecond, time.Hour, 0
	if change != nil {
		change(r)
	}
	var o, e bytes.Buffer
	err = r.run(ctx, &o, &e)
	return o.String(), e.String(), err
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s has %d bytes, %v; want %d", path, len(got), err, len(want))
	}
	if fileExists(path + exportSuffix) {
		t.Errorf("%s%s is left", path, exportSuffix)
	}
}

func TestExport(t *testing.T) {
	s := newListServer(t, 2345, 1000)
	out := filepath.Join(t.TempDir(), "out.ndjson")
	stdout, stderr, err := export(t.Context(), s.URL, out, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, out, s.text())
	if want := regexp.MustCompile(`^exported 2345 records, \d+ KiB in \d+\.\d s \([\d,]+/s\)\n$`); !want.MatchString(stdout) || stderr != "" {
		t.Errorf("report %q, %q", stdout, stderr)
	}
	if _, _, err := export(t.Context(), s.URL, out, nil); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("once more: %v", err)
	}
	wantFile(t, out, s.text())
	stdout, stderr, err = export(t.Context(), s.URL, "-", nil)
	if err != nil || stdout != s.text() || !strings.HasPrefix(stderr, "exported 2345 records") {
		t.Errorf("to standard output: %d bytes, %q, %v", len(stdout), stderr, err)
	}
	empty := newListServer(t, 0, 1)
	if _, _, err := export(t.Context(), empty.URL, out+"2", nil); err != nil {
		t.Error(err)
	}
	wantFile(t, out+"2", "")
}

// TestExportLineBreaks: they become spaces, and are counted.
func TestExportLineBreaks(t *testing.T) {
	s := newListServer(t, 0, 10)
	s.docs = []string{"{\n \"key\":\"a\\n\",\r\n \"v\":1}", `{"key":"b"}`}
	out, report, err := export(t.Context(), s.URL, "-", nil)
	if want := "{  \"key\":\"a\\n\",   \"v\":1}\n{\"key\":\"b\"}\n"; out != want || err != nil || !strings.Contains(report, "; in 1 of them line breaks became spaces") {
		t.Errorf("%q, %q, %v", out, report, err)
	}
}

// TestExportResumes: wherever it is interrupted, the next run goes on there, and the file has everything once.
func TestExportResumes(t *testing.T) {
	for name, disturb := range map[string]func(w http.ResponseWriter, interrupt func()){
		"interrupted": func(_ http.ResponseWriter, interrupt func()) { interrupt() },
		"unavailable": func(w http.ResponseWriter, _ func()) {
			w.Header().Set("Content-Type", problemType)
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"status":503,"code":"unavailable","detail":"a node is down"}`)
		},
		"half a page": func(w http.ResponseWriter, _ func()) {
			w.Header().Set("Content-Type", jsonType)
			_, _ = io.WriteString(w, `{"items":[{"key":"k00300", "n" : 300.0},{"key"`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"no end": func(w http.ResponseWriter, _ func()) {
			w.Header().Set("Content-Type", jsonType)
			_, _ = io.WriteString(w, `{"items":[{"key":"k00300", "n" : 300.0}]`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newListServer(t, 1000, 100)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			s.disturb = func(get int, w http.ResponseWriter) bool {
				if get > 3 {
					disturb(w, interrupt)
					return true
				}
				return false
			}
			out := filepath.Join(t.TempDir(), "out.ndjson")
			stdout, _, err := export(ctx, s.URL, out, nil)
			if err == nil || !strings.Contains(err.Error(), "run the same export again") || !strings.HasPrefix(stdout, "exported 300 records") {
				t.Fatalf("%q, %v", stdout, err)
			}
			// A run that was killed may have written more than it noted.
			f, err := os.OpenFile(out, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteString(`{"key":"k00300", "n" : 300.0}` + "\n" + `{"key":"k0`)
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			s.disturb = nil
			before := s.gets
			stdout, stderr, err := export(t.Context(), s.URL, out, nil)
			if err != nil || !strings.Contains(stdout, "exported 1000 records") || !strings.Contains(stdout, "700 of them by this run") || !strings.Contains(stderr, "going on after 300 records") {
				t.Errorf("%q, %q, %v", stdout, stderr, err)
			}
			if n := s.gets - before; n != 7 {
				t.Errorf("%d requests for the rest", n)
			}
			wantFile(t, out, s.text())
		})
	}
}

// TestExportRetries: what passes by itself interrupts nothing.
func TestExportRetries(t *testing.T) {
	s := newListServer(t, 500, 50)
	s.disturb = func(get int, w http.ResponseWriter) bool {
		if get%3 != 0 {
			return false
		}
		if get%2 == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	out, _, err := export(t.Context(), s.URL, "-", nil)
	if err != nil || out != s.text() {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// TestExportRefuses: what cannot be right ends the export with a reason, and no file is touched.
func TestExportRefuses(t *testing.T) {
	s := newListServer(t, 10, 10)
	folder := t.TempDir()
	out := filepath.Join(folder, "out")
	state := func(change func(*exportState)) {
		known := exportState{Version: 1, Server: s.URL, Collection: "records", Order: "asc", Bytes: 4}
		change(&known)
		text, _ := json.Marshal(known)
		if err := errors.Join(os.WriteFile(out, []byte("four"), 0o600), os.WriteFile(out+exportSuffix, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(*exportState)
		want   string
	}{
		"other collection": {func(s *exportState) { s.Collection = "orders" }, "of an export of collection orders"},
		"other order":      {func(s *exportState) { s.Order = "desc" }, "in order desc"},
		"shorter file":     {func(s *exportState) { s.Bytes = 5 }, "has 4 bytes"},
		"other version":    {func(s *exportState) { s.Version = 2 }, "is not the progress"},
	} {
		state(c.change)
		if _, _, err := export(t.Context(), s.URL, out, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if text, _ := os.ReadFile(out); string(text) != "four" {
			t.Errorf("%s: the file is now %q", name, text)
		}
	}
	for name, body := range map[string]string{"no list": `{"results":[]}`, "an array": `[]`, "no JSON": `<html>`, "items of strings": `{"items":["a"]}`, "no end": `{"items":[],"next":"0"}`, "more": `{"items":[]} {}`} {
		s.disturb = func(_ int, w http.ResponseWriter) bool {
			w.Header().Set("Content-Type", jsonType)
			_, _ = io.WriteString(w, body)
			return true
		}
		if _, _, err := export(t.Context(), s.URL, "-", nil); err == nil || !strings.Contains(err.Error(), "not a gateway's list") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.disturb = nil
	if _, err := newExportRun(exportOptions{server: "localhost", order: "up"}); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("all faults: %v", err)
	}
	if _, _, err := export(t.Context(), s.URL+"/x", "-", nil); err == nil || !strings.Contains(err.Error(), "collection_not_found") {
		t.Errorf("nothing there: %v", err)
	}
}

// TestExportTwice: two exports never write to one file.
func TestExportTwice(t *testing.T) {
	s := newListServer(t, 300, 100)
	out := filepath.Join(t.TempDir(), "out")
	s.disturb = func(get int, _ http.ResponseWriter) bool {
		if get == 2 {
			if _, _, err := export(t.Context(), s.URL, out, nil); err == nil || !strings.Contains(err.Error(), "another export writes") {
				t.Errorf("beside another one: %v", err)
			}
		}
		return false
	}
	if _, _, err := export(t.Context(), s.URL, out, nil); err != nil {
		t.Fatal(err)
	}
	wantFile(t, out, s.text())
}
