package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

const (
	importMaxBatch       = 100_000
	importMaxConcurrency = 64

	importBatchBytes = 4 << 20 // of documents in one request, at least one document; bounds memory with the batch
	importGrace      = 5 * time.Second

	// The first request goes alone and is small: a server reads that much before it refuses, so a wrong address or
	// collection is answered in words and not by a reset connection.
	importFirstBatch = 100
	importFirstBytes = 64 << 10
)

var errImportInterrupted = errors.New("interrupted; run the same import again to go on")

const importLong = `Create the records of an NDJSON or CSV file through the gateway's bulk endpoint.

The file may be imported again, after an interruption or at any time: a record whose key is already there counts as
"existed" and is left as it is, whatever the file says. Records that were created by a request whose answer was lost
count as existed too. Of two records with one key in the same file, either may be the one that is created.

NDJSON: one JSON object per line; blank lines are skipped; no byte of a record is changed.
CSV (RFC 4180): the header row names the members, every value becomes a JSON string.

Each record must carry its key, or the gateway would make one and a second run would create it twice. When the key is
under another name, --key FIELD copies the value of FIELD (a string or an integer) to the key member, in front of the
record.

A record that is not valid or is refused counts as failed and the import goes on; the first ten are printed with their
line, all are written to --failures. Records the server is too busy for are sent again. The exit code is 0 only when no
record failed.`

// importOptions are the flags of the import command.
type importOptions struct {
	server      string
	collection  string
	key         importKey
	format      string // auto, ndjson or csv
	batch       int    // most records per request
	concurrency int    // requests at a time
	failures    string // a file to write, empty for none
	caller      callerOptions
}

// importCommand needs nothing but a gateway's URL: no config, no database. Its context ends at an interruption.
func importCommand() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import --server URL --collection C [--key FIELD] FILE|-",
		Short: "Create records from an NDJSON or CSV file, or from standard input",
		Long:  importLong,
		Example: `  gateway import --server http://127.0.0.1:8080 --collection records packages.ndjson
  gateway import --server http://127.0.0.1:8080 --collection records --key sha256 --failures failed.ndjson files.csv`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := newImportRun(o, args[0])
			if err != nil {
				return err
			}
			return run.file(cmd.Context(), args[0], cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.server, "server", "", "URL of the gateway, e.g. http://127.0.0.1:8080")
	flags.StringVar(&o.collection, "collection", "", "collection to create the records in")
	flags.StringVar(&o.key.field, "key", "", "member of the input that is the business key (default: the key member)")
	flags.StringVar(&o.key.member, "key-member", "key", "the collection's key member, as the gateway's config names it")
	flags.StringVar(&o.format, "format", "auto", "auto, ndjson or csv; auto takes a file named *.csv for CSV")
	flags.IntVar(&o.batch, "batch", 2000, "most records per request")
	flags.IntVar(&o.concurrency, "concurrency", 4, "requests at a time")
	flags.StringVar(&o.failures, "failures", "", "write every failed record's line, status, code and detail to this file (NDJSON)")
	o.caller.addTo(cmd)
	requireFlags(cmd, "server", "collection")
	return cmd
}

// importRun is one import: the file is read by one goroutine in chunks, which a few others send. It holds at most two
// chunks per sender and one more, however long the file is.
type importRun struct {
	importOptions
	sender importSender
	tally  *importTally

	tick time.Duration    // between signs of progress; 0 chooses by the kind of output
	now  func() time.Time // for the rate and the time it took
}

// newImportRun checks what can be checked before anything is opened; the error names every fault.
func newImportRun(o importOptions, path string) (*importRun, error) {
	var faults []error
	base, err := url.Parse(o.server)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		faults = append(faults, fmt.Errorf("--server: an http or https URL (got %q)", o.server))
	}
	if o.collection == "" {
		faults = append(faults, errors.New("--collection: not empty"))
	}
	if o.key.member == "" {
		faults = append(faults, errors.New("--key-member: not empty"))
	}
	if o.batch < 1 || o.batch > importMaxBatch {
		faults = append(faults, fmt.Errorf("--batch: 1 to %d (got %d)", importMaxBatch, o.batch))
	}
	if o.concurrency < 1 || o.concurrency > importMaxConcurrency {
		faults = append(faults, fmt.Errorf("--concurrency: 1 to %d (got %d)", importMaxConcurrency, o.concurrency))
	}
	switch o.format {
	case "auto":
		o.format = "ndjson"
		if strings.EqualFold(filepath.Ext(path), ".csv") {
			o.format = "csv"
		}
	case "ndjson", "csv":
	default:
		faults = append(faults, fmt.Errorf("--format: auto, ndjson or csv (got %q)", o.format))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if o.key.field == "" {
		o.key.field = o.key.member
	}
	sender, err := newImportSender(base, o.collection, o.concurrency, o.caller)
	if err != nil {
		return nil, err
	}
	return &importRun{importOptions: o, sender: sender, now: time.Now}, nil
}

// file imports the file at path, or stdin for "-", and prints the report. The error is nil only when every record of
// it was created or existed.
func (r *importRun) file(ctx context.Context, path string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	input, size := stdin, int64(-1)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if info.IsDir() {
			return fmt.Errorf("%s is a folder", path)
		}
		if info.Mode().IsRegular() {
			size = info.Size()
		}
		input = f
	}

	screen := newImportScreen("import", stderr, size, r.tick, r.now)
	r.tally = &importTally{print: screen.print, path: r.failures}
	if r.failures != "" {
		if same(path, r.failures) {
			return fmt.Errorf("--failures %s would overwrite the input", r.failures)
		}
		f, err := os.Create(r.failures)
		if err != nil {
			return fmt.Errorf("--failures: %w", err)
		}
		defer func() { err = errors.Join(err, r.tally.flush(), f.Close()) }()
		r.tally.writeTo(f)
	}

	began := r.now()
	stop := screen.watch(r.tally.snapshot)
	err = r.stream(ctx, interruptible(ctx, input))
	stop()

	c := r.tally.snapshot()
	if err == nil && c.records() == 0 {
		return fmt.Errorf("%s: no records in it", path)
	}
	if c.records() > 0 || errors.Is(err, errImportInterrupted) {
		if _, werr := fmt.Fprintln(stdout, c.report(r.now().Sub(began))); werr != nil {
			return errors.Join(err, werr)
		}
	}
	if err == nil && c.failed > 0 {
		return fmt.Errorf("%d of %d records failed", c.failed, c.records())
	}
	return err
}

// stream sends everything input holds. On an interruption no further request starts, and those under way get
// importGrace to end, so that the counts say what happened. The error is the first that ended the run.
func (r *importRun) stream(ctx context.Context, input io.Reader) error {
	source, err := newImportSource(input, r.format, r.key)
	if err != nil {
		return r.interrupted(ctx, err)
	}
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(importGrace, cancel) })
	defer unhook()

	first, readErr := r.nextChunk(source, min(r.batch, importFirstBatch), importFirstBytes)
	if ctx.Err() != nil {
		return errImportInterrupted
	}
	if err := r.send(sending, ctx.Done(), first); err != nil {
		return r.interrupted(ctx, err)
	}

	group, sending := errgroup.WithContext(sending)
	chunks := make(chan []importRecord)
	group.Go(func() error {
		defer close(chunks)
		for readErr == nil {
			var c []importRecord
			c, readErr = r.nextChunk(source, r.batch, importBatchBytes)
			select {
			case chunks <- c:
			case <-ctx.Done():
				return nil // an error would cut the requests under way
			case <-sending.Done():
				return nil
			}
		}
		return nil
	})
	for range r.concurrency {
		group.Go(func() error {
			for c := range chunks {
				if err := r.send(sending, ctx.Done(), c); err != nil && !errors.Is(err, errImportInterrupted) {
					return err
				}
			}
			return nil
		})
	}
	err = group.Wait()
	if err == nil && !errors.Is(readErr, io.EOF) {
		err = readErr
	}
	return r.interrupted(ctx, err)
}

// interrupted replaces the many errors an interruption causes, or none, by one.
func (r *importRun) interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errImportInterrupted
	}
	return err
}

// interruptible returns a reader of r that fails once ctx ends, even while r has nothing to give (a terminal, a pipe).
// A reader that never returns costs one goroutine.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	pr, pw := io.Pipe()
	context.AfterFunc(ctx, func() { pr.CloseWithError(ctx.Err()); pw.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err) // nil is the end of file
	}()
	return pr
}

// same tells whether two paths lead to one file that exists.
func same(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
