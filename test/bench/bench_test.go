package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, c := range []struct {
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0.999, 7},
		{[]time.Duration{1, 2}, 0.5, 1},
		{hundred, 0, 1},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.999, 100},
		{hundred, 1, 100},
	} {
		if got := percentile(c.sorted, c.q); got != c.want {
			t.Errorf("percentile %g of %d: got %d, want %d", c.q, len(c.sorted), got, c.want)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		figures []float64
		want    spread
	}{
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{5, 1, 2}, spread{1, 2, 5}},
		{[]float64{4, 1, 2, 9}, spread{1, 3, 9}},
	} {
		if got := spreadOf(c.figures); got != c.want {
			t.Errorf("spread of %v: got %v, want %v", c.figures, got, c.want)
		}
	}
}

// fakeClient answers at once, or after a while that it takes from stall.
type fakeClient struct {
	reads, updates, creates atomic.Int64
	stall                   func(request int64) time.Duration
	err                     error
}

func (f *fakeClient) answer(n int64) error {
	if f.stall != nil {
		time.Sleep(f.stall(n))
	}
	return f.err
}

func (f *fakeClient) create(context.Context, string, []byte) error { return f.answer(f.creates.Add(1)) }
func (f *fakeClient) read(context.Context, string) error           { return f.answer(f.reads.Add(1)) }
func (f *fakeClient) update(context.Context, string, []byte) error { return f.answer(f.updates.Add(1)) }
func (f *fakeClient) close()                                       {}

// TestOpenLoadCountsTheWait proves that one stall is seen by all requests that were due during it.
func TestOpenLoadCountsTheWait(t *testing.T) {
	f := &fakeClient{stall: func(n int64) time.Duration {
		if n == 1 {
			return 100 * time.Millisecond
		}
		return 0
	}}
	workers := []*worker{newWorker(f, workload{reads: 1}, &dataset{stored: 10}, 0)}
	p, err := openLoad(t.Context(), workers, 1000, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.latencies) != 200 {
		t.Errorf("requests: got %d, want 200", len(p.latencies))
	}
	waited := 0
	for _, l := range p.latencies {
		if l >= 20*time.Millisecond {
			waited++
		}
	}
	if waited < 70 { // those due in the first 80 ms
		t.Errorf("requests that waited: got %d, want at least 70", waited)
	}
}

func TestClosedLoadFails(t *testing.T) {
	broken := errors.New("broken")
	workers := []*worker{newWorker(&fakeClient{err: broken}, workload{reads: 1}, &dataset{stored: 10}, 0)}
	if _, err := closedLoad(t.Context(), workers, time.Millisecond); !errors.Is(err, broken) {
		t.Errorf("got %v, want the client's error", err)
	}
}

func TestTraffic(t *testing.T) {
	const requests = 4000
	for _, w := range workloads {
		f := &fakeClient{}
		k := newWorker(f, w, &dataset{stored: 100, documentBytes: 300}, 1)
		for range requests {
			if err := k.request(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		share := float64(f.reads.Load()) / requests
		if w.creates != (f.creates.Load() == requests) || share < w.reads-0.03 || share > w.reads+0.03 {
			t.Errorf("%s: %d creates, %d reads, %d updates", w.name, f.creates.Load(), f.reads.Load(), f.updates.Load())
		}
	}
}

func TestZipfFavoursFewKeys(t *testing.T) {
	const keys, picks = 20_000, 50_000
	k := newWorker(nil, workload{zipf: true}, &dataset{stored: keys}, 1)
	hot := 0
	for range picks {
		number := k.pick()
		if number < 0 || number >= keys {
			t.Fatalf("picked %d of %d", number, keys)
		}
		if number < keys/100 {
			hot++
		}
	}
	if share := float64(hot) / picks; share < 0.5 || share > 0.8 {
		t.Errorf("share of the hottest hundredth: got %.2f", share)
	}
}

func TestDocument(t *testing.T) {
	for _, size := range []int{minDocumentBytes, 300, 4096} {
		for range 50 {
			number := rand.Int64N(1 << 40)
			text := appendDocument(nil, number, size, rand.Uint64())
			var record struct{ Key string }
			if err := json.Unmarshal(text, &record); err != nil || len(text) != size || record.Key != keyOf(number) {
				t.Fatalf("record %d: %d bytes, want %d (%v): %.150s", number, len(text), size, err, text)
			}
		}
	}
	if long := appendDocument(nil, 1<<62, minDocumentBytes, 1<<63); !json.Valid(long) {
		t.Errorf("not JSON: %s", long)
	}
}

func TestHTTPClient(t *testing.T) {
	key := keyOf(1)
	record := `{"key":"` + key + `"}`
	for _, c := range []struct{ name, answer, fault string }{
		{"record", "HTTP/1.1 200 OK\r\nEtag: \"1-1\"\r\nContent-Length: 30\r\n\r\n" + record + strings.Repeat(" ", 30-len(record)), ""},
		{"another record", "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + `{"key":"x"}`, "another key"},
		{"problem", "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", "GET answered 404: {}"},
		{"no length", "HTTP/1.1 200 OK\r\n\r\n", "does not say its length"},
		{"no HTTP", "220 smtp\r\n", "not an answer"},
		{"cut off", "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{", "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 1024))
				_, _ = io.WriteString(conn, c.answer)
			}()
			client, err := dialGateway(t.Context(), listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.close()
			switch err := client.read(t.Context(), key); {
			case c.fault == "" && err != nil:
				t.Error(err)
			case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
				t.Errorf("got %v, want %q", err, c.fault)
			}
		})
	}
}

func TestPlanQuick(t *testing.T) {
	p, err := parsePlan([]string{"-quick", "-clients", "256,1,256", "-out", "/somewhere", "-workloads", "update,create"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if p.rounds != 1 || !slices.Equal(p.clients, []int{1, 256}) || len(p.workloads) != 2 || strings.Contains(p.command, "somewhere") {
		t.Errorf("got %+v", p)
	}
	_, err = parsePlan([]string{"-clients", "0", "-sizes", "x", "-workloads", "reed", "-rounds", "0", "more"}, io.Discard)
	for _, part := range []string{"-clients", "-sizes", "reed", "-rounds", "more"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %s: %v", part, err)
		}
	}
}

// fakeResults has each workload with four numbers of clients and two sizes, some targets met and others not.
func fakeResults() *results {
	r := &results{Command: "go run ./test/bench -rounds=3", Date: "2026-01-02 03:04 UTC", Seconds: 60}
	for _, size := range []int{300, 4096} {
		for wi, w := range workloads {
			for ci, clients := range []int{1, 64, 256, 1024} {
				ratio := 0.6 + 1.7*float64(ci) + 0.3*float64(wi)
				r.Cells = append(r.Cells, cell{
					Workload: w.name, Title: w.title, Clients: clients, DocumentBytes: size, PeakBytes: 300 * megabyte, OpenRate: 700,
					Rounds:        []round{{1000, 1000 * ratio, 70}, {1000, 900 * ratio, 75}, {1000, 1150 * ratio, 65}},
					DirectLatency: latency{10, 1, 5, 9}, GatewayLatency: latency{10, 1, 4, 7},
				})
			}
		}
	}
	r.IDs = []idCost{{1, spread{9, 10, 11}, spread{5, 6, 7}}, {64, spread{19, 21, 25}, spread{14, 16, 18}}}
	r.Growth = []growthPoint{
		{"one", "read", 1, 10_000, spread{1, 1, 1}}, {"one", "read", 1, 100_000, spread{1, 1.4, 2}}, {"one", "read", 1, 1_000_000, spread{1, 1.6, 2}},
	}
	return r
}

func TestReportVerdicts(t *testing.T) {
	text := string(markdown(fakeResults()))
	for _, want := range []string{
		"| create | 1 | 1000 | 600 | **0.60** (0.54 to 0.69) | 0.70 | **missed** |",
		"| create | 64 | 1000 | 2300 | **2.30** (2.07 to 2.65) | 2.00 | met |",
		"| create | 1024 | 1000 | 5700 | **5.70** (5.13 to 6.55) |  |  |",
		"| create | 256 | 700 | 1.00 / 5.00 / 9.00 | 1.00 / 4.00 / 7.00 | met |",
		"| create | 256 | 70.0 | 90.0 | met | 300 |  |",
		"| read, cold cache | 256 | 70.0 | 60.0 | **missed** | 300 |  |",
		"| update | 1024 | 70.0 |  |  | 300 | **missed** |",
		"| one | read | 1 | 100000 | 1.40 (1.00 to 2.00) | met |",
		"| one | read | 1 | 1000000 | 1.60 (1.00 to 2.00) | **missed** |",
		"| 64 | 21.0 (19.0 to 25.0) | 16.0 (14.0 to 18.0) | **missed** |",
		"- create, 1 client, 300 B: ratio 0.60 (at least 0.70)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}

// TestPlotIsXML also makes sure that nothing of the data was refused by the template's escaping.
func TestPlotIsXML(t *testing.T) {
	text := plot(fakeResults())
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Contains(text, []byte("ZgotmplZ")) || bytes.Count(text, []byte("<title>")) != 56 {
		t.Errorf("the plot is incomplete:\n%s", text)
	}
}

func TestNiceStep(t *testing.T) {
	for v, want := range map[float64]float64{0.3: 0.5, 1: 1, 1.2: 2, 4: 5, 7: 10, 0.2: 0.2} {
		if got := niceStep(v); got < want*0.999 || got > want*1.001 {
			t.Errorf("step of %g: got %g, want %g", v, got, want)
		}
	}
}
