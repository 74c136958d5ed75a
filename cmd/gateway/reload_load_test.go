package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// load sends creates and reads from some clients until stop is called, which returns how many there were and joins what
// was not answered as it should be.
func (r *reloadRig) load(clients int) (stop func() (int64, error)) {
	stopping := make(chan struct{})
	errs := make([]error, clients)
	var sent atomic.Int64
	var running sync.WaitGroup
	for c := range clients {
		running.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stopping:
					return
				default:
				}
				path := fmt.Sprintf("/v1/records/record-%d-%d", c, i)
				errs[c] = errors.Join(errs[c], r.request("PUT", path, http.StatusCreated), r.request("GET", path, http.StatusOK))
				sent.Add(2)
			}
		})
	}
	return func() (int64, error) {
		close(stopping)
		running.Wait()
		return sent.Load(), errors.Join(errs...)
	}
}

// request sends one request to the clients' listener.
func (r *reloadRig) request(method, path string, status int) error {
	answer := httptest.NewRecorder()
	r.server.Public().ServeHTTP(answer, httptest.NewRequest(method, path, strings.NewReader(`{"v":1}`)))
	if answer.Code != status {
		return fmt.Errorf("%s %s: %d %s", method, path, answer.Code, answer.Body)
	}
	return nil
}

// rewrite replaces the text of the config file in place, in two parts.
func (r *reloadRig) rewrite(text string) {
	r.t.Helper()
	file, err := os.OpenFile(r.path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer file.Close()
	for _, part := range []string{text[:len(text)*2/3], text[len(text)*2/3:]} {
		if _, err := file.WriteString(part); err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestReloadUnderLoad: fifty rewrites in place and five broken files while requests run, and a node with each tenth of
// them. No request fails, no half of a file is judged, and each refusal is logged once (CASES 38).
func TestReloadUnderLoad(t *testing.T) {
	const rounds, rewrites, clients = 5, 10, 4
	folder := t.TempDir()
	path := filepath.Join(folder, "config.yaml")
	config := func(nodes int, kib string) string {
		return strings.Replace(embeddedConfig(folder, nodes), "size: 10}", "size: 1000000}", 1) + bodyLimit(kib)
	}
	writeFile(t, path, config(2, "64"))
	r := newReloadRig(t, path)
	r.pause = settlePause // the machine is busy, so the two parts may be far apart
	r.watch(never)
	stop := r.load(clients)
	for round := range rounds {
		for i := range rewrites {
			r.rewrite(config(2+round, fmt.Sprint(65+i%2)))
		}
		r.rewrite(config(3+round, "64"))
		r.waitFor(fmt.Sprintf("nodes[%d]: appended", 2+round), 1)
		r.rewrite(config(3+round, "x"))
		r.waitFor("config refused", round+1)
	}
	r.rewrite(config(2+rounds, "70"))
	r.waitFor("-> 70KiB", 1)
	sent, err := stop()
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d requests", sent)
	if n := r.log.count("config refused"); n != rounds {
		t.Errorf("%d refusals were logged, want %d:\n%s", n, rounds, r.log)
	}
	if n := r.log.count("server.max_body_bytes: must be a size"); n != rounds {
		t.Errorf("half a file was judged:\n%s", r.log)
	}
}
