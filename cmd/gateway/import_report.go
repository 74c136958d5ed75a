package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

const (
	importShownFailures = 10
	importBarTick       = 200 * time.Millisecond
	importLineTick      = 5 * time.Second // where progress is a log and not a screen
)

// importFailure is one record that was not imported, as a line of the --failures file.
type importFailure struct {
	Line   int    `json:"line"`
	Key    string `json:"key,omitempty"` // absent when the record has none
	Status int    `json:"status"`        // 0: it was not sent
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (r importRecord) failure() importFailure {
	return importFailure{r.line, r.key, r.answer.Status, r.answer.Error.Code, r.answer.Error.Detail}
}

// importCounts says what became of the records so far.
type importCounts struct {
	created, existed, failed int64
	input                    int64 // bytes of the input that are done with
}

func (c importCounts) records() int64 { return c.created + c.existed + c.failed }

func (c importCounts) report(took time.Duration) string {
	return fmt.Sprintf("created %d  existed %d  failed %d  in %.1f s (%s/s)",
		c.created, c.existed, c.failed, took.Seconds(), perSecond(c.records(), took))
}

// importTally counts, prints the first failures and writes all of them to a file, if there is one. It is safe for
// concurrent use once writeTo was called.
type importTally struct {
	print func(string) // a line for people
	path  string       // of the failures file, for messages; empty for none

	mu     sync.Mutex
	counts importCounts
	out    *bufio.Writer
}

func (t *importTally) writeTo(w io.Writer) { t.out = bufio.NewWriter(w) }

func (t *importTally) flush() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("--failures: %w", err)
	}
	return nil
}

func (t *importTally) snapshot() importCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// settle counts a record by its answer, which is final. The error is about writing the failures file.
func (t *importTally) settle(r importRecord) error {
	created, existed := r.answer.Status == http.StatusCreated, r.answer.Status == http.StatusConflict
	if !created && !existed {
		return t.fail(r.failure(), r.input)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.input += r.input
	if created {
		t.counts.created++
	} else {
		t.counts.existed++
	}
	return nil
}

// fail counts a record as failed, of so many bytes of the input. The error is about writing the failures file.
func (t *importTally) fail(f importFailure, input int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.failed++
	t.counts.input += input
	t.show(f)
	if t.out == nil {
		return nil
	}
	line, err := json.Marshal(f)
	if err == nil {
		_, err = t.out.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("--failures: %w", err)
	}
	return nil
}

// show prints the latest failure, while they are few.
func (t *importTally) show(f importFailure) {
	switch {
	case t.counts.failed <= importShownFailures && f.Status == 0:
		t.print(fmt.Sprintf("line %d: %s: %s", f.Line, f.Code, f.Detail))
	case t.counts.failed <= importShownFailures:
		t.print(fmt.Sprintf("line %d: %d %s: %s", f.Line, f.Status, f.Code, f.Detail))
	case t.counts.failed == importShownFailures+1 && t.path == "":
		t.print("further failures are not printed; --failures FILE takes all of them")
	case t.counts.failed == importShownFailures+1:
		t.print("further failures are not printed; all are in " + t.path)
	}
}

// importScreen shows progress: a bar on a terminal, a line every few seconds elsewhere.
type importScreen struct {
	verb string // what is going on, in front of a line
	out  io.Writer
	size int64 // of the input in bytes; -1 when unknown: then no time left is shown
	bar  *progressbar.ProgressBar
	tick time.Duration
	now  func() time.Time

	mu sync.Mutex
}

// newImportScreen chooses by what out is; a tick of 0 takes the usual one.
func newImportScreen(verb string, out io.Writer, size int64, tick time.Duration, now func() time.Time) *importScreen {
	s := &importScreen{verb: verb, out: out, size: size, tick: importLineTick, now: now}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.tick = importBarTick
		s.bar = progressbar.NewOptions64(size,
			progressbar.OptionSetWriter(out),
			progressbar.OptionShowBytes(true),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionShowElapsedTimeOnFinish(),
			progressbar.OptionClearOnFinish(),
		)
	}
	if tick > 0 {
		s.tick = tick
	}
	return s
}

// print puts a line out without tearing the bar.
func (s *importScreen) print(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		_ = s.bar.Clear()
	}
	_, _ = fmt.Fprintln(s.out, line)
}

// watch shows a tally at every tick until the function it returns is called.
func (s *importScreen) watch(snapshot func() importCounts) (stop func()) {
	began := s.now()
	if s.bar != nil {
		_ = s.bar.RenderBlank() // its clock starts here
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(s.tick)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
				s.show(snapshot(), s.now().Sub(began))
			}
		}
	}()
	return func() {
		close(quit)
		<-done
		if s.bar != nil {
			_ = s.bar.Clear()
		}
	}
}

func (s *importScreen) show(c importCounts, took time.Duration) {
	records := fmt.Sprintf("%s records, %s/s", thousands(c.records()), perSecond(c.records(), took))
	if s.bar == nil {
		s.print(s.verb + ": " + records + s.remaining(c.input, took))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bar.Describe(records)
	_ = s.bar.Set64(c.input)
}

// remaining says how far the input is and how long the rest will take at the speed so far; empty when it cannot be told.
func (s *importScreen) remaining(input int64, took time.Duration) string {
	if s.size <= 0 || input <= 0 || input > s.size {
		return ""
	}
	left := time.Duration(float64(took) * float64(s.size-input) / float64(input))
	return fmt.Sprintf(", %d %%, %s left", input*100/s.size, left.Round(time.Second))
}

func perSecond(n int64, took time.Duration) string {
	if took <= 0 {
		return thousands(n)
	}
	return thousands(int64(float64(n) / took.Seconds()))
}

// thousands writes n, not negative, with commas: 4,800.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
