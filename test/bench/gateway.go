package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startPatience and stopPatience bound the start and the end of a gateway.
	startPatience = 30 * time.Second
	stopPatience  = 25 * time.Second
	readyInterval = 10 * time.Millisecond
	// tailBytes is how much of a gateway's output an error shows.
	tailBytes = 4 << 10
	// ticksPerSecond is the unit of CPU time in /proc/<pid>/stat, the same on every Linux that Go runs on.
	ticksPerSecond = 100
	// fillStreams and fillLines are how many bulk requests fill the gateway at once, and the records in each.
	fillStreams, fillLines = 4, 2000
)

// buildGateway returns the path of the gateway to measure: the given one, or one built from this module into the folder.
func buildGateway(ctx context.Context, given, folder string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	binary := filepath.Join(folder, "gateway")
	if output, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "keyrange/cmd/gateway").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the gateway: %w\n%s", err, output)
	}
	return binary, nil
}

// gatewayConfig is what a gateway of this benchmark is started with; the rest has the gateway's defaults.
type gatewayConfig struct {
	index, issuer string
	// nodes are URLs, ranges the range numbers of each.
	nodes, ranges []string
	rangeSize     int64
	// cold turns the key cache off.
	cold     bool
	logLevel string
}

// yaml is the config file.
func (g *gatewayConfig) yaml(listen string) []byte {
	var y bytes.Buffer
	fmt.Fprintf(&y, "server: {listen: %q}\nadmin: {listen: \"127.0.0.1:0\"}\nlog: {level: %s}\n", listen, g.logLevel)
	if g.cold {
		fmt.Fprintf(&y, "cache: {max_bytes: 0}\n")
	}
	fmt.Fprintf(&y, "index: {uri: %q, allow_standalone: true}\nids: {issuers: [{dsn: %q}]}\nranges: {size: %d}\nnodes:\n", g.index, g.issuer, g.rangeSize)
	for i, n := range g.nodes {
		fmt.Fprintf(&y, "  - {name: node-%d, dsn: %q, ranges: %q}\n", i+1, n, g.ranges[i])
	}
	return y.Bytes()
}

// gateway is a running gateway process.
type gateway struct {
	address string
	command *exec.Cmd
	output  bytes.Buffer  // complete once exited is closed
	exited  chan struct{} // closed when the process has ended
}

// startGateway runs the binary in a folder and waits until it is ready.
func startGateway(ctx context.Context, binary, folder string, config gatewayConfig) (*gateway, error) {
	g := &gateway{exited: make(chan struct{})}
	var err error
	if g.address, err = freeAddress(); err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "config.yaml")
	if err := os.WriteFile(file, config.yaml(g.address), 0o600); err != nil {
		return nil, err
	}
	g.command = exec.Command(binary, "serve", "--config", file)
	g.command.Dir = folder
	for _, one := range os.Environ() {
		if !strings.HasPrefix(one, "GATEWAY__") { // would override the config
			g.command.Env = append(g.command.Env, one)
		}
	}
	g.command.Stdout, g.command.Stderr = &g.output, &g.output
	if err := g.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(g.exited)
		_ = g.command.Wait() // ProcessState keeps the result
	}()
	if err := g.waitReady(ctx); err != nil {
		g.stop()
		return nil, fmt.Errorf("the gateway did not start: %w\n%s", err, g.tail())
	}
	return g, nil
}

// freeAddress finds a port that nobody listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// waitReady asks until the gateway says that everything it needs answers.
func (g *gateway) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.address+"/readyz", nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-g.exited:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(readyInterval):
		}
	}
}

// stop ends the process, in order if it obeys in time. Its output is complete afterwards.
func (g *gateway) stop() {
	_ = g.command.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-g.exited:
	case <-time.After(stopPatience):
		_ = g.command.Process.Kill()
		<-g.exited
	}
}

// tail is the end of what the process has printed. It must have ended.
func (g *gateway) tail() []byte {
	text := g.output.Bytes()
	return text[max(0, len(text)-tailBytes):]
}

// cpu is the user and system time that the process has used, in steps of 10 ms.
func (g *gateway) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	// Fields are counted behind the name, which may hold anything: utime and stime are the 12th and 13th of them.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("/proc/<pid>/stat is too short")
	}
	user, userErr := strconv.ParseInt(fields[11], 10, 64)
	system, systemErr := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticksPerSecond, errors.Join(userErr, systemErr)
}

// peakBytes is the most memory that the process ever had resident.
func (g *gateway) peakBytes() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kibibytes int64
	_, err = fmt.Sscan(rest, &kibibytes)
	return kibibytes << 10, err
}

// fill stores records up to a number, through several bulk requests at once. When ctx ends it stops early, without an
// error. progress is called now and then, by one goroutine.
func (g *gateway) fill(ctx context.Context, data *dataset, upTo int64, progress func()) error {
	var mu sync.Mutex
	take := func() (first, end int64) {
		mu.Lock()
		defer mu.Unlock()
		first = data.next.Load()
		end = max(first, min(first+fillLines, upTo))
		data.next.Store(end)
		return first, end
	}
	errs := make([]error, fillStreams)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				first, end := take()
				if first == end {
					return
				}
				errs[i] = g.bulk(context.WithoutCancel(ctx), data.documentBytes, first, end)
				if i == 0 {
					progress()
				}
			}
		})
	}
	wg.Wait()
	data.stored = data.next.Load()
	return errors.Join(errs...)
}

// bulk creates the records [first, end) by one stream of lines.
func (g *gateway) bulk(ctx context.Context, size int, first, end int64) error {
	var lines []byte
	for number := first; number < end; number++ {
		lines = append(appendDocument(lines, number, size, 0), '\n')
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.address+collectionPath, bytes.NewReader(lines))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-ndjson")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return fmt.Errorf("bulk answered %d: %s", response.StatusCode, text)
	}
	created := first
	for results := bufio.NewScanner(response.Body); results.Scan(); created++ {
		if !bytes.HasPrefix(results.Bytes(), []byte(`{"status":201,`)) {
			return fmt.Errorf("bulk: %.300s", results.Bytes())
		}
	}
	if created != end {
		return fmt.Errorf("bulk: %d results for %d records", created-first, end-first)
	}
	return nil
}
