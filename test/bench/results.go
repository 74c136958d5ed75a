package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// results are all figures of a run, as results.json holds them.
type results struct {
	Date       string  `json:"date"`
	Command    string  `json:"command"`
	Seconds    float64 `json:"seconds"`
	Cores      int     `json:"cores"`
	CPU        string  `json:"cpu"`
	System     string  `json:"system"`
	Go         string  `json:"go"`
	Servers    string  `json:"servers"`
	Records    int64   `json:"records"`
	DirectPool int     `json:"direct_connections"`
	// PhaseSeconds is how long each side was measured in each round.
	PhaseSeconds float64       `json:"phase_seconds"`
	Load         float64       `json:"load"`
	LogLevel     string        `json:"log_level"`
	IDs          []idCost      `json:"idsegment"`
	Cells        []cell        `json:"cells"`
	Growth       []growthPoint `json:"growth"`
}

// cell is one workload with one number of clients and one size of documents.
type cell struct {
	Workload      string  `json:"workload"`
	Title         string  `json:"title"`
	Clients       int     `json:"clients"`
	DocumentBytes int     `json:"document_bytes"`
	Rounds        []round `json:"rounds"`
	// OpenRate is the rate per second of the open load.
	OpenRate       float64 `json:"open_rate"`
	DirectLatency  latency `json:"direct_latency"`
	GatewayLatency latency `json:"gateway_latency"`
	// PeakBytes is the most memory that the gateway had resident, from its start on.
	PeakBytes int64 `json:"gateway_peak_bytes"`
	// DirectFailed and GatewayFailed count failed requests; a hundredth at most, or the run fails.
	DirectFailed  int64 `json:"direct_failed"`
	GatewayFailed int64 `json:"gateway_failed"`
}

// round is the throughput of both sides, in requests per second, and the gateway's CPU per request.
type round struct {
	Direct          float64 `json:"direct_per_second"`
	Gateway         float64 `json:"gateway_per_second"`
	CPUMicroseconds float64 `json:"gateway_cpu_us"`
}

func (r round) ratio() float64 { return r.Gateway / r.Direct }

// over summarises a figure of the rounds.
func (c *cell) over(figure func(round) float64) spread {
	var figures []float64
	for _, r := range c.Rounds {
		figures = append(figures, figure(r))
	}
	return spreadOf(figures)
}

// String names the cell.
func (c *cell) String() string {
	return fmt.Sprintf("%s, %s, %d B", c.Title, plural(c.Clients, "client"), c.DocumentBytes)
}

// plural is "1 client" or "2 clients".
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// ratio is gateway over direct.
func (c *cell) ratio() spread { return c.over(round.ratio) }

// cpu is the gateway's microseconds per request.
func (c *cell) cpu() spread { return c.over(func(r round) float64 { return r.CPUMicroseconds }) }

// latency is in milliseconds from the scheduled arrival to the verified answer.
type latency struct {
	Requests int     `json:"requests"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	P999     float64 `json:"p99_9_ms"`
}

func latencyOf(p *phase) latency {
	return latency{
		len(p.latencies), milliseconds(p.percentile(0.5)),
		milliseconds(p.percentile(0.99)), milliseconds(p.percentile(0.999)),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// String shows the percentiles side by side.
func (l latency) String() string {
	return fmt.Sprintf("%s / %s / %s", short(l.P50), short(l.P99), short(l.P999))
}

// short prints a figure with about three digits.
func short(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// newResults notes what a run is and where it takes place, without names or paths of the machine.
func newResults(b *bench) *results {
	return &results{
		Date: b.started.UTC().Format("2006-01-02 15:04 MST"), Command: b.plan.command,
		Cores: runtime.NumCPU(), CPU: cpuModel(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Servers: b.servers.String(), Records: b.plan.records, DirectPool: b.plan.directPool,
		PhaseSeconds: b.plan.duration.Seconds(), Load: b.plan.load, LogLevel: b.plan.logLevel,
	}
}

// cpuModel is what Linux calls the processor.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	_, rest, _ := strings.Cut(string(text), "model name")
	line, _, _ := strings.Cut(rest, "\n")
	_, model, found := strings.Cut(line, ":")
	if !found {
		return "unknown CPU"
	}
	return strings.TrimSpace(model)
}

// verdict compares a figure with its target; it is empty when there is none.
type verdict string

const (
	met    verdict = "met"
	missed verdict = "**missed**"
)

func verdictOf(hasTarget, isMet bool) verdict {
	switch {
	case !hasTarget:
		return ""
	case isMet:
		return met
	}
	return missed
}

// ratioVerdict judges the median ratio.
func (c *cell) ratioVerdict() (target float64, v verdict) {
	target, ok := ratioTargets[c.Workload][c.Clients]
	return target, verdictOf(ok, c.ratio().Median >= target)
}

// tailVerdict judges p99 under the open load.
func (c *cell) tailVerdict() verdict {
	return verdictOf(c.Clients == tailTargetClients, c.GatewayLatency.P99 <= c.DirectLatency.P99)
}

// cpuVerdict judges the median CPU time per request.
func (c *cell) cpuVerdict() (target float64, v verdict) {
	target, ok := cpuTargets[c.Workload]
	return target, verdictOf(ok && c.Clients == cpuTargetClients, c.cpu().Median <= target)
}

// memoryVerdict judges the peak memory.
func (c *cell) memoryVerdict() verdict {
	return verdictOf(c.Clients == memoryTargetClients, c.PeakBytes < memoryTargetBytes)
}

// verdict judges the cost of an ID.
func (c idCost) verdict() verdict {
	return verdictOf(true, c.Nanoseconds.Median < idTargetNanoseconds)
}

// growthVerdict judges a point against the first level of its line: flat enough?
func growthVerdict(first, p growthPoint) verdict {
	return verdictOf(p.Records > first.Records, p.P50.Median <= flatFactor*first.P50.Median)
}

// firstOf finds the point of the lowest level that a point is compared with.
func firstOf(points []growthPoint, p growthPoint) growthPoint {
	for _, first := range points {
		if first.Layout == p.Layout && first.Workload == p.Workload && first.Clients == p.Clients {
			return first
		}
	}
	return p
}

// judge counts the targets that are met and names those that are not.
func judge(r *results) string {
	var all int
	var missing []string
	count := func(v verdict, format string, args ...any) {
		if v != "" {
			all++
		}
		if v == missed {
			missing = append(missing, fmt.Sprintf(format, args...))
		}
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		where := c.String()
		target, v := c.ratioVerdict()
		count(v, "%s: ratio %s (at least %s)", where, short(c.ratio().Median), short(target))
		count(c.tailVerdict(), "%s: p99 %s ms (direct %s ms)", where, short(c.GatewayLatency.P99), short(c.DirectLatency.P99))
		target, v = c.cpuVerdict()
		count(v, "%s: CPU %s us (at most %s us)", where, short(c.cpu().Median), short(target))
		count(c.memoryVerdict(), "%s: memory %d MB (below %d MB)", where, c.PeakBytes/megabyte, memoryTargetBytes/megabyte)
	}
	for _, p := range r.Growth {
		first := firstOf(r.Growth, p)
		count(growthVerdict(first, p), "growth, %s, %s, %s: p50 %s ms at %d records (%s ms at %d)",
			p.Layout, p.Workload, plural(p.Clients, "client"), short(p.P50.Median), p.Records, short(first.P50.Median), first.Records)
	}
	for _, c := range r.IDs {
		count(c.verdict(), "idsegment, %s: %s ns per ID (below %d ns)", plural(c.Goroutines, "goroutine"), short(c.Nanoseconds.Median), idTargetNanoseconds)
	}
	text := fmt.Sprintf("%d of %d targets met", all-len(missing), all)
	if len(missing) > 0 {
		text += "; missed:\n- " + strings.Join(missing, "\n- ")
	}
	return text
}
