package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Answer is a response that has been read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// ETag is the ETag of the answer without its quotes.
func (a Answer) ETag() string { return strings.Trim(a.Header.Get("ETag"), `"`) }

// Code is the code of a problem document; empty when the body is none.
func (a Answer) Code() string {
	var problem struct{ Code string }
	_ = json.Unmarshal([]byte(a.Body), &problem) // no problem document, no code
	return problem.Code
}

// Client keeps a connection for each of the concurrent callers of a test.
var Client = &http.Client{
	Timeout:       Patience,
	Transport:     Checked(&http.Transport{MaxIdleConnsPerHost: 128, DisableCompression: true}),
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Call sends one request. The path is sent byte for byte; headers are of the form "Name: value". A body is JSON unless
// a header says otherwise.
func (g *Process) Call(method, path, body string, headers ...string) (Answer, error) {
	return CallAt(g.URL, method, path, body, headers...)
}

// CallWithin is Call for as long as a context lasts.
func (g *Process) CallWithin(ctx context.Context, method, path, body string, headers ...string) (Answer, error) {
	return call(ctx, g.URL, method, path, body, headers...)
}

// CallAt is Call for any listener.
func CallAt(base, method, path, body string, headers ...string) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return call(ctx, base, method, path, body, headers...)
}

func call(ctx context.Context, base, method, path, body string, headers ...string) (Answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, base, strings.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	request.URL = &url.URL{Scheme: request.URL.Scheme, Host: request.URL.Host, Opaque: path}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	response, err := Client.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return Answer{response.StatusCode, response.Header, string(content)}, err
}

// Do is Call for the goroutine of the test, which ends when no answer comes.
func (g *Process) Do(t *testing.T, method, path, body string, headers ...string) Answer {
	t.Helper()
	a, err := g.Call(method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %.80s: %v", method, path, err)
	}
	return a
}

// Expect is Do with a look at the status.
func (g *Process) Expect(t *testing.T, status int, method, path, body string, headers ...string) Answer {
	t.Helper()
	a := g.Do(t, method, path, body, headers...)
	if a.Status != status {
		t.Errorf("%s %.80s %.80s: got %d %s, want %d", method, path, body, a.Status, strings.TrimSpace(a.Body), status)
	}
	return a
}

// Metric reads a metric without labels.
func (g *Process) Metric(t *testing.T, name string) float64 {
	t.Helper()
	a, err := CallAt(g.Admin, "GET", "/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (.+)$`).FindStringSubmatch(a.Body)
	if found == nil {
		t.Fatalf("there is no metric %s", name)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Poll waits until the condition holds.
func Poll(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	timeout := time.After(Patience)
	for !condition() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("not within %s: %s", Patience, what)
		}
	}
}

// Together runs the work of n clients at once and joins their errors.
func Together(n int, work func(client int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = work(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
