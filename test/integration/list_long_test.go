package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"keyrange/test/gateway"
	"keyrange/test/servers"
)

// Sizes of the walk through a large collection. The long one runs with GATEWAY_TEST_LONG set.
const (
	longList   = 1_000_000
	shortList  = 10_000
	listTries  = 200              // of each page that is timed; a tenth of that in the short run
	listWithin = 20 * time.Minute // for one command
	// listFlat is how much longer a page deep in the collection may take than the first.
	listFlat = 1.5
	// listSpare is how much more memory an export of all may take than one of a tenth (bytes).
	listSpare = 32 << 20
)

// TestListLarge: a page deep in a large collection costs what the first does, and an export and an import take the memory
// that small ones take. Figures are logged; the bounds hold for the long run.
func TestListLarge(t *testing.T) {
	count := shortList
	if os.Getenv("GATEWAY_TEST_LONG") != "" {
		count = longList
	}
	folder := t.TempDir()
	tenth, rest := filepath.Join(folder, "tenth.ndjson"), filepath.Join(folder, "rest.ndjson")
	writeRecords(t, tenth, 0, count/10)
	writeRecords(t, rest, count/10, count)
	s := gateway.NewStack(t, servers.MySQLKind, 3, int64(count)*2/5)
	g := gateway.Start(t, s.Config())
	peaks := map[string]int64{}
	command := func(what, base string, args ...string) {
		t.Helper()
		c := gateway.Launch(t, folder, nil, append(args, "--server", base, "--collection", "records")...)
		select {
		case <-c.Exited:
		case <-time.After(listWithin):
			t.Fatalf("%s does not end", what)
		}
		if code := c.Wait(t); code != 0 {
			t.Fatalf("%s: exit code %d: %s", what, code, gateway.Tail(c.Output))
		}
		peaks[what] = peakBytes(t, c)
		lines := strings.Split(strings.TrimSpace(c.Output.String()), "\n")
		t.Logf("%s: %s; peak memory %d MiB", what, lines[len(lines)-1], peaks[what]>>20)
	}
	exported := filepath.Join(folder, "exported.ndjson")
	command("import of a tenth", g.URL, "import", tenth)
	command("export of a tenth", g.URL, "export", "--out", filepath.Join(folder, "tenth.exported"))
	command("import of the rest", g.URL, "import", rest)
	timePages(t, g, count)
	command("export of all", g.URL, "export", "--out", exported)
	g.Stop(t)
	t.Logf("gateway on MySQL: peak memory %d MiB", peakBytes(t, g)>>20)
	want := sumOf(t, tenth, rest)
	if got := sumOf(t, exported); got != want {
		t.Errorf("exported %+v, want %+v", got, want)
	}
	os.Remove(tenth)
	os.Remove(rest)

	g = gateway.Start(t, gateway.NewStack(t, gateway.Embedded, 1, 10*int64(count)).Config())
	command("import of the export", g.URL, "import", exported)
	command("export of the import", g.URL, "export", "--out", exported+".2")
	g.Stop(t)
	t.Logf("embedded gateway: peak memory %d MiB", peakBytes(t, g)>>20)
	if got := sumOf(t, exported+".2"); got != want {
		t.Errorf("exported again %+v, want %+v", got, want)
	}
	if count == longList && peaks["export of all"] > peaks["export of a tenth"]+listSpare {
		t.Errorf("an export of all takes %d bytes of memory, one of a tenth %d", peaks["export of all"], peaks["export of a tenth"])
	}
}

// timePages walks through the collection and compares the first page with pages of its last tenth.
func timePages(t *testing.T, g *gateway.Process, count int) {
	t.Helper()
	page := func(path string) (next string, took time.Duration) {
		start := time.Now()
		a := g.Expect(t, http.StatusOK, "GET", path, "")
		took = time.Since(start)
		var list struct{ Next string }
		if err := json.Unmarshal([]byte(a.Body), &list); err != nil {
			t.Fatal(err)
		}
		return list.Next, took
	}
	var cursors []string
	for next := ""; ; {
		path := "/v1/records?limit=1000"
		if next != "" {
			path += "&cursor=" + next
		}
		if next, _ = page(path); next == "" {
			break
		}
		cursors = append(cursors, next)
	}
	if len(cursors) != count/1000-1 {
		t.Errorf("%d pages of 1000 records, want %d", len(cursors)+1, count/1000)
	}
	deepest, tries := cursors[len(cursors)*9/10:], listTries
	if count < longList {
		tries /= 10
	}
	for _, limit := range []int{100, 1000} {
		var first, deep []time.Duration
		for i := range tries {
			path := fmt.Sprintf("/v1/records?limit=%d", limit)
			_, took := page(path)
			first = append(first, took)
			_, took = page(path + "&cursor=" + deepest[i%len(deepest)])
			deep = append(deep, took)
		}
		slices.Sort(first)
		slices.Sort(deep)
		ratio := float64(deep[tries/2]) / float64(first[tries/2])
		t.Logf("a page of %d: first %v, behind %d records %v (p50); ratio %.2f", limit, first[tries/2], count*9/10, deep[tries/2], ratio)
		if count == longList && ratio > listFlat {
			t.Errorf("a page of %d deep in the collection takes %.2f times the first", limit, ratio)
		}
	}
}

// writeRecords writes the records [from, to) to a file.
func writeRecords(t *testing.T, path string, from, to int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	for i := from; i < to; i++ {
		fmt.Fprintf(w, `{"key":"%08x-%d","n":%d.50,"text":"%s"}`+"\n", crc32.ChecksumIEEE(fmt.Append(nil, i)), i, i, strings.Repeat("z", 100+i%100))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// linesSum tells sets of lines apart, whatever their order.
type linesSum struct {
	lines int
	sum   uint64
}

func sumOf(t *testing.T, paths ...string) (s linesSum) {
	t.Helper()
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			s.lines++
			s.sum += uint64(crc32.ChecksumIEEE(lines.Bytes()))
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// peakBytes is the most memory that a process had that has ended.
func peakBytes(t *testing.T, g *gateway.Process) int64 {
	t.Helper()
	usage, ok := g.Command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Fatal("the system does not tell how much memory a process had")
	}
	return int64(usage.Maxrss) << 10
}
