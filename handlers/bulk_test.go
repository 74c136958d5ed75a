package handlers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"keyrange/store"
)

// ndjson is the header of a stream.
const ndjson = "Content-Type: application/x-ndjson"

// bulkResult is one result as a client reads it.
type bulkResult struct {
	Status int
	Key    string
	ETag   string
	Error  *struct{ Code, Detail string }
}

// results reads the results of either kind of bulk answer.
func results(t *testing.T, body string) []bulkResult {
	t.Helper()
	var whole struct{ Results []bulkResult }
	if strings.HasPrefix(body, `{"results"`) {
		if err := json.Unmarshal([]byte(body), &whole); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		return whole.Results
	}
	for line := range strings.Lines(body) {
		var one bulkResult
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		whole.Results = append(whole.Results, one)
	}
	return whole.Results
}

// bulkBody writes documents as an array or as lines, with the header that it needs.
func bulkBody(documents []string, stream bool) (body string, headers []string) {
	if stream {
		return strings.Join(documents, "\n"), []string{ndjson}
	}
	return "[" + strings.Join(documents, ",") + "]", nil
}

// forBoth runs a test with an array and with a stream.
func forBoth(t *testing.T, test func(t *testing.T, r *rig, send func(documents ...string) []bulkResult)) {
	for name, stream := range map[string]bool{"array": false, "stream": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			test(t, r, func(documents ...string) []bulkResult {
				body, headers := bulkBody(documents, stream)
				return results(t, r.expect(200, "", "POST", "/v1/records", body, headers...).Body.String())
			})
		})
	}
}

// TestBulkOrder: results come in the order of the items, however the store answers, at most a window at once.
func TestBulkOrder(t *testing.T) {
	forBoth(t, func(t *testing.T, r *rig, send func(...string) []bulkResult) {
		var now, most atomic.Int64
		release := make(chan struct{})
		r.fake.before = func(_ context.Context, _, key string) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			if key == "k-127" {
				close(release)
			}
			<-release
			return nil
		}
		var documents []string
		for i := range 1000 {
			documents = append(documents, fmt.Sprintf(`{"key":"k-%d"}`, i))
		}
		for i, got := range send(documents...) {
			if got.Status != 201 || got.Key != fmt.Sprintf("k-%d", i) || got.ETag == "" {
				t.Fatalf("result %d: %+v", i, got)
			}
		}
		if r.fake.count() != 1000 || most.Load() > bulkWindowItems {
			t.Errorf("%d records, %d at once", r.fake.count(), most.Load())
		}
	})
}

// TestBulkDuplicates: of two items with one key the first wins, and retrying the whole bulk changes nothing.
func TestBulkDuplicates(t *testing.T) {
	forBoth(t, func(t *testing.T, r *rig, send func(...string) []bulkResult) {
		var documents []string
		for i := range 600 {
			documents = append(documents, fmt.Sprintf(`{"key":"k-%d","i":%d}`, i%7, i))
		}
		for round, fresh := range []int{7, 0} {
			for i, got := range send(documents...) {
				want := 409
				if i < fresh {
					want = 201
				}
				if got.Status != want || got.ETag == "" || want == 409 && got.Error.Code != "record_exists" {
					t.Fatalf("round %d, result %d: %+v", round, i, got)
				}
			}
		}
		for i := range 7 {
			body := r.do("GET", fmt.Sprintf("/v1/records/k-%d", i), "").Body.String()
			if !strings.HasSuffix(body, fmt.Sprintf(`"i":%d}`, i)) {
				t.Errorf("not the first: %s", body)
			}
		}
	})
}

// TestBulkItemsFailAlone: a bad item gets its own error and the others are created.
func TestBulkItemsFailAlone(t *testing.T) {
	forBoth(t, func(t *testing.T, r *rig, send func(...string) []bulkResult) {
		r.fake.before = func(_ context.Context, _, key string) error {
			return map[string]error{"down": fmt.Errorf("secret: %w", store.ErrUnavailable), "full": store.ErrExhausted, "lost": store.ErrUnknown}[key]
		}
		got := send(`{"key":"a"}`, `7`, `{"key":{}}`, `{"key":""}`, `{"v":1,"v":2}`, `{"v":"`+strings.Repeat("x", 40<<10)+`"}`,
			`{"key":"down"}`, `{"key":"full"}`, `{"key":"lost"}`, `{"v":"\ud800"}`, `[]`, `{}`, `{"key":"b"}`)
		want := []string{"201", "400 invalid_json", "400 invalid_key", "400 invalid_key", "400 invalid_json", "413 body_too_large",
			"503 unavailable", "507 range_exhausted", "503 outcome_unknown", "400 invalid_json", "400 invalid_json", "201", "201"}
		for i := range want {
			text := fmt.Sprint(got[i].Status)
			if got[i].Error != nil {
				text += " " + got[i].Error.Code
			}
			if text != want[i] {
				t.Errorf("item %d: %s, want %s", i, text, want[i])
			}
		}
		if got[11].Key != "made-1" || got[12].ETag == "" || r.fake.count() != 3 {
			t.Errorf("results %+v, %d records", got, r.fake.count())
		}
		if log := r.log.String(); !strings.Contains(log, `"items":13,"items_failed":10,"code":"unavailable","cause":"secret`) {
			t.Errorf("log: %s", log)
		}
	})
}

// TestBulkItemTimeout: each item has the request timeout for itself, so a long bulk passes.
func TestBulkItemTimeout(t *testing.T) {
	forBoth(t, func(t *testing.T, r *rig, send func(...string) []bulkResult) {
		r.limit(func(l *Limits) { l.RequestTimeout = 20 * time.Millisecond })
		r.fake.before = func(ctx context.Context, _, key string) error {
			if key != "slow" {
				return nil
			}
			<-ctx.Done()
			return errors.Join(store.ErrUnknown, ctx.Err())
		}
		got := send(`{"key":"slow"}`, `{"key":"slow"}`, `{"key":"slow"}`, `{"key":"quick"}`)
		if got[2].Status != 503 || got[2].Error.Code != "outcome_unknown" || got[3].Status != 201 {
			t.Errorf("%+v", got)
		}
	})
}

// TestStreamLongLine: a line above the limit is skipped without being kept, and the stream goes on.
func TestStreamLongLine(t *testing.T) {
	r := newRig(t)
	long := `{"v":"` + strings.Repeat("x", 4<<20) + `"}`
	exact := `{"key":"exact","v":"` + strings.Repeat("x", 32<<10-len(`{"key":"exact","v":""}`)) + `"}`
	body := `{"key":"a"}` + "\n" + long + "\n" + exact + "\r\n" + exact + " \n " + `{"key":"b"}` + "\n" + long
	got := results(t, r.expect(200, "", "POST", "/v1/records", body, ndjson).Body.String())
	var statuses []int
	for _, one := range got {
		statuses = append(statuses, one.Status)
	}
	if fmt.Sprint(statuses) != "[201 413 201 409 201 413]" {
		t.Errorf("%v", statuses)
	}
}

// duplex opens a stream to a real server and returns its two ends.
func duplex(t *testing.T, r *rig) (send func(string), receive func() string, finish func()) {
	t.Helper()
	server := r.listen()
	reader, writer := io.Pipe()
	request, _ := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/records", reader)
	request.Header.Set("Content-Type", "application/x-ndjson")
	answered := make(chan *http.Response, 1)
	go func() {
		response, err := server.Client().Do(request)
		if err != nil {
			t.Error(err)
		}
		answered <- response
	}()
	var response *http.Response
	var lines *bufio.Reader
	receive = func() string {
		if lines == nil {
			if response = <-answered; response == nil {
				t.Fatal("no response")
			}
			lines = bufio.NewReader(response.Body)
		}
		line, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%q, then %v", line, err)
		}
		return line
	}
	send = func(text string) {
		if _, err := io.WriteString(writer, text); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = writer.Close()
		if response != nil {
			_ = response.Body.Close()
		}
		server.Close()
	})
	return send, receive, func() { _ = writer.Close() }
}

// TestStreamFullDuplex: each result arrives before the next line is sent.
func TestStreamFullDuplex(t *testing.T) {
	r := newRig(t)
	send, receive, finish := duplex(t, r)
	for i := range 50 {
		send(fmt.Sprintf("{\"key\":\"k-%d\"}\n", i))
		if got, want := receive(), fmt.Sprintf(`"key":"k-%d"`, i); !strings.Contains(got, want) {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	// A document in two pieces is one document.
	send(`{"key":`)
	send("\"last\"}")
	finish()
	if got := receive(); !strings.Contains(got, `"status":201,"key":"last"`) {
		t.Errorf("the last: %s", got)
	}
	if end := receive(); end != "" {
		t.Errorf("after the last: %s", end)
	}
}

// TestStreamStalled: a client that neither sends nor ends is told so and let go, after the results it has earned.
func TestStreamStalled(t *testing.T) {
	r := newRig(t)
	r.streamIdle = 50 * time.Millisecond
	send, receive, _ := duplex(t, r)
	send("{\"key\":\"a\"}\n{\"key\":\"b\"}")
	if got := receive(); !strings.Contains(got, `"key":"a"`) {
		t.Errorf("first: %s", got)
	}
	if got := receive(); !strings.Contains(got, `"status":408,"error":{"code":"request_timeout"`) {
		t.Errorf("second: %s", got)
	}
	if got := receive(); got != "" {
		t.Errorf("third: %s", got)
	}
	if r.fake.count() != 1 {
		t.Error("the unfinished line was stored")
	}
}

// TestStreamClientGone: when the client hangs up, no more is read, and what was under way ends.
func TestStreamClientGone(t *testing.T) {
	r := newRig(t)
	server := r.listen()
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	defer writer.Close()
	request, _ := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/records", reader)
	request.Header.Set("Content-Type", "application/x-ndjson")
	go func() { _, _ = io.WriteString(writer, "{\"key\":\"a\"}\n{\"key\":\"b") }()
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	cancel()
	eventually(t, func() bool { return strings.Contains(r.log.String(), "client_closed_request") })
	if r.fake.count() != 1 {
		t.Errorf("%d records", r.fake.count())
	}
}

// TestStreamUnreadResults: a client that sends but never reads is cut off instead of filling memory.
func TestStreamUnreadResults(t *testing.T) {
	r := newRig(t)
	r.streamIdle = 100 * time.Millisecond
	server := r.listen()
	defer server.Close()
	request, _ := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/records", endlessLines{})
	request.Header.Set("Content-Type", "application/x-ndjson")
	request.Header.Set("Accept-Encoding", "identity") // compressed, the results would hardly fill what lies between
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	eventually(t, func() bool { return strings.Contains(r.log.String(), "client_closed_request") })
}

// endlessLines is a body of bad lines without end; bad ones make the longest results.
type endlessLines struct{}

// Read fills p.
func (endlessLines) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat("x\n", len(p)/2+1)), nil
}

// eventually polls until done holds.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 10 s")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestBulkLimitDeclared: an array whose declared length is above the limit is refused after its first byte.
func TestBulkLimitDeclared(t *testing.T) {
	r := newRig(t)
	read := &countingReader{Reader: io.MultiReader(strings.NewReader("["), strings.NewReader(strings.Repeat(" ", 1<<20)))}
	request := httptest.NewRequest("POST", "/v1/records", read)
	request.ContentLength = 1 << 20
	answer := r.serve(request)
	if answer.Code != 413 || read.n > 1 || !strings.Contains(answer.Body.String(), "bulk_too_large") {
		t.Errorf("%d after %d bytes: %s", answer.Code, read.n, answer.Body)
	}
}

// TestBulkEqualLimits: an array may be as large as one record is allowed to be, and is an array all the same.
func TestBulkEqualLimits(t *testing.T) {
	r := newRig(t)
	r.limit(func(l *Limits) { l.MaxBulkBytes = l.MaxBodyBytes })
	r.expect(200, "", "POST", "/v1/records", `[{"key":"a"},{"key":"b"}]`)
	r.expect(413, "bulk_too_large", "POST", "/v1/records", `[{"key":"`+strings.Repeat("c", 32<<10)+`"}]`)
	r.expect(413, "body_too_large", "POST", "/v1/records", `{"key":"`+strings.Repeat("c", 32<<10)+`"}`)
}
