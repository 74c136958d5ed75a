package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// runImport runs the command as the shell would; args come after --server and --collection.
func runImport(t *testing.T, server, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := importCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true // as the root command has it
	cmd.SetArgs(append([]string{"--server", server, "--collection", "records"}, args...))
	var out, errOut bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}

// hasty is an import of stdin that does not wait long between tries and shows no progress.
func hasty(t *testing.T, server string, change func(*importRun)) *importRun {
	t.Helper()
	o := importOptions{
		server: server, collection: "records", key: importKey{member: "key"}, format: "auto", batch: 10, concurrency: 3,
	}
	r, err := newImportRun(o, "-")
	if err != nil {
		t.Fatal(err)
	}
	r.sender.backoff = time.Microsecond
	r.tick = time.Hour // no lines of progress among those a test looks for
	if change != nil {
		change(r)
	}
	return r
}

func runHasty(t *testing.T, r *importRun, input string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	err = r.file(t.Context(), "-", strings.NewReader(input), &out, &errOut)
	return out.String(), errOut.String(), err
}

func wantReport(t *testing.T, stdout string, created, existed, failed int) {
	t.Helper()
	pattern := fmt.Sprintf(`^created %d  existed %d  failed %d  in \d+\.\d s \([\d,]+/s\)\n$`, created, existed, failed)
	if !regexp.MustCompile(pattern).MatchString(stdout) {
		t.Errorf("report %q, want created %d existed %d failed %d", stdout, created, existed, failed)
	}
}

func ndjsonOf(n int) (text string, keys []string) {
	var b strings.Builder
	for i := range n {
		key := fmt.Sprintf("k%05d", i)
		keys = append(keys, key)
		fmt.Fprintf(&b, "{\"key\":%q, \"n\" : %d}\n", key, i)
	}
	return b.String(), keys
}

func writeTemp(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestImportFileAndRerun(t *testing.T) {
	s := newBulkServer(t)
	text, keys := ndjsonOf(1234)
	path := writeTemp(t, "in.ndjson", text)

	out, _, err := runImport(t, s.URL, "", "--batch", "100", path)
	if err != nil {
		t.Fatal(err)
	}
	wantReport(t, out, 1234, 0, 0)
	out, _, err = runImport(t, s.URL, "", "--batch", "77", "--concurrency", "1", path)
	if err != nil {
		t.Fatal(err)
	}
	wantReport(t, out, 0, 1234, 0)
	if got := s.keys(); !slices.Equal(got, keys) {
		t.Errorf("the server has %d records, want %d", len(got), len(keys))
	}
	if got, want := s.records["k00007"], `{"key":"k00007", "n" : 7}`; got != want {
		t.Errorf("record %s, want it byte for byte as %s", got, want)
	}
}

func TestImportStdin(t *testing.T) {
	s := newBulkServer(t)
	out, _, err := runImport(t, s.URL, utf8BOM+"{\"key\":\"a\"}\r\n\n  \n {\"key\":\"b\"} \n{\"key\":\"c\"}", "-")
	if err != nil {
		t.Fatal(err)
	}
	wantReport(t, out, 3, 0, 0)
	want := map[string]string{"a": `{"key":"a"}`, "b": ` {"key":"b"} `, "c": `{"key":"c"}`}
	if !maps.Equal(s.records, want) {
		t.Errorf("records %q, want %q", s.records, want)
	}
}

func TestImportRefusesArguments(t *testing.T) {
	s := newBulkServer(t)
	dir := t.TempDir()
	path := writeTemp(t, "in.ndjson", `{"key":"a"}`)
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no file", []string{filepath.Join(dir, "none")}, "no such file"},
		{"a folder", []string{dir}, "is a folder"},
		{"empty file", []string{writeTemp(t, "empty", "\n\n")}, "no records in it"},
		{"failures onto the input", []string{"--failures", path, path}, "would overwrite the input"},
		{"failures nowhere", []string{"--failures", filepath.Join(dir, "no", "f"), path}, "--failures: "},
		{"no URL", []string{"--server", "localhost:8080", path}, "--server: an http or https URL"},
		{"all faults", []string{"--batch", "0", "--format", "xml", "--concurrency", "65", path},
			"--batch: 1 to 100000 (got 0)\n--concurrency: 1 to 64 (got 65)\n--format: auto, ndjson or csv (got \"xml\")"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, _, err := runImport(t, s.URL, "", tt.args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(out, "created") {
				t.Errorf("got %q, %v, want %s", out, err, tt.want)
			}
		})
	}
	if len(s.keys()) > 0 {
		t.Errorf("records were created: %q", s.keys())
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != `{"key":"a"}` {
		t.Errorf("the input is now %q, %v", text, err)
	}
}

func TestImportInterrupted(t *testing.T) {
	s := newBulkServer(t)
	s.requests = make(chan int, 100)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	input, feed := io.Pipe() // never ends, like a terminal
	go func() {
		text, _ := ndjsonOf(25)
		_, _ = io.WriteString(feed, text)
		for post := range s.requests {
			if post == 2 { // the third chunk is not full and waits for more
				interrupt()
				return
			}
		}
	}()
	var out, errOut bytes.Buffer
	err := hasty(t, s.URL, nil).file(ctx, "-", input, &out, &errOut)
	_ = feed.Close()
	if !errors.Is(err, errImportInterrupted) {
		t.Errorf("error %v", err)
	}
	wantReport(t, out.String(), 20, 0, 0)
}

func TestImportProgressLines(t *testing.T) {
	text, _ := ndjsonOf(500)
	s := newBulkServer(t)
	shown := make(chan struct{})
	var once sync.Once
	s.disturb = func(_, index int, key string) int {
		if key == "k00495" {
			s.mu.Unlock() // the lock is held around disturb
			<-shown
			s.mu.Lock()
		}
		return asUsual
	}
	var out bytes.Buffer
	var errOut lockedBuffer
	errOut.wrote = func(line string) {
		if strings.Contains(line, "490 records") || strings.Contains(line, "495 records") {
			once.Do(func() { close(shown) })
		}
	}
	r := hasty(t, s.URL, func(r *importRun) { r.tick, r.concurrency = time.Millisecond, 1 })
	if err := r.file(t.Context(), writeTemp(t, "in", text), nil, &out, &errOut); err != nil {
		t.Fatal(err)
	}
	if want := regexp.MustCompile(`(?m)^import: 49\d records, [\d,]+/s, 9\d %, \d+s left$`); !want.MatchString(errOut.text.String()) {
		t.Errorf("stderr %s", errOut.text.String())
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %s, want %s", n, got, want)
		}
	}
}
