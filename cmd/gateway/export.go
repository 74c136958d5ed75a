package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
)

var errExportInterrupted = errors.New("interrupted; run the same export again to go on")

const exportLong = `Write the records of a collection to a file, one JSON object per line, in the order of their IDs.

With --out FILE an export that was interrupted, or that gave up on a gateway that did not answer, goes on where it was
when the same command runs again: FILE.progress says how far FILE is whole, and is removed at the end. An export that is
complete is never overwritten.

Records that are there from the beginning to the end of the export are in the file exactly once, as they were at some
moment in between; one that comes or goes meanwhile may be in it or not. Every byte of a record is kept, except that a
line break between its members becomes a space, because a record is one line. "gateway import" takes the file.`

// exportOptions are the flags of the export command.
type exportOptions struct {
	server     string
	collection string
	out        string // a file to write, "-" for standard output
	order      string // asc or desc
	caller     callerOptions
}

// exportCommand needs nothing but a gateway's URL: no config, no database. Its context ends at an interruption.
func exportCommand() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export --server URL --collection C [--out FILE]",
		Short: "Write the records of a collection to an NDJSON file, or to standard output",
		Long:  exportLong,
		Example: `  gateway export --server http://127.0.0.1:8080 --collection records --out records.ndjson
  gateway export --server http://127.0.0.1:8080 --collection records | gzip > records.ndjson.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			run, err := newExportRun(o)
			if err != nil {
				return err
			}
			return run.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.server, "server", "", "URL of the gateway, e.g. http://127.0.0.1:8080")
	flags.StringVar(&o.collection, "collection", "", "collection to export")
	flags.StringVar(&o.out, "out", "-", "file to write; - is standard output, which cannot be resumed")
	flags.StringVar(&o.order, "order", "asc", "asc or desc, by ID")
	o.caller.addTo(cmd)
	requireFlags(cmd, "server", "collection")
	return cmd
}

// exportRun is one export. It holds one page, however large the collection is.
type exportRun struct {
	exportOptions
	sender importSender

	tick      time.Duration // between signs of progress; 0 chooses by the kind of output
	saveEvery time.Duration // between two notes of how far the file is
	now       func() time.Time

	mu    sync.Mutex
	state exportState // what was written, in whole pages
	run0  int64       // records that earlier runs had written
	lines []byte      // of the last page, for reuse
}

// newExportRun checks what can be checked before anything is opened; the error names every fault.
func newExportRun(o exportOptions) (*exportRun, error) {
	var faults []error
	base, err := url.Parse(o.server)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		faults = append(faults, fmt.Errorf("--server: an http or https URL (got %q)", o.server))
	}
	if o.collection == "" {
		faults = append(faults, errors.New("--collection: not empty"))
	}
	if o.out == "" {
		faults = append(faults, errors.New("--out: not empty"))
	}
	if o.order != "asc" && o.order != "desc" {
		faults = append(faults, fmt.Errorf("--order: asc or desc (got %q)", o.order))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	sender, err := newImportSender(base, o.collection, 1, o.caller)
	if err != nil {
		return nil, err
	}
	return &exportRun{
		exportOptions: o, sender: sender, saveEvery: exportSaveEvery, now: time.Now,
		state: exportState{Version: exportStateVersion, Server: o.server, Collection: o.collection, Order: o.order},
	}, nil
}

// run exports to the file, or to stdout, and prints the report.
func (r *exportRun) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	report := stderr // the records are on stdout
	var out exportOutput = plainOutput{stdout}
	screen := newImportScreen("export", stderr, -1, r.tick, r.now)
	if r.out != "-" {
		file, openErr := r.openFile(screen.print)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out, report = file, stdout
	}
	r.run0 = r.state.Records
	began := r.now()
	stop := screen.watch(r.snapshot)
	err = r.pages(ctx, out)
	stop()
	if ctx.Err() != nil && err != nil {
		err = errExportInterrupted
	}
	if _, werr := fmt.Fprintln(report, r.report(r.now().Sub(began))); werr != nil {
		return errors.Join(err, werr)
	}
	return err
}

// pages writes page after page until the end of the collection.
func (r *exportRun) pages(ctx context.Context, out exportOutput) error {
	saved := r.now()
	for {
		p, err := r.fetch(ctx, r.state.Cursor)
		if err != nil {
			return errors.Join(err, out.save(r.state))
		}
		if err := out.write(p.lines); err != nil {
			return err
		}
		r.mu.Lock()
		r.state.Bytes += int64(len(p.lines))
		r.state.Records += p.records
		r.state.Folded += p.folded
		r.state.Cursor = p.next
		r.mu.Unlock()
		if p.next == "" {
			return out.finish()
		}
		if r.now().Sub(saved) >= r.saveEvery {
			if err := out.save(r.state); err != nil {
				return err
			}
			saved = r.now()
		}
	}
}

// snapshot is the progress of this run, as the screen of an import counts it.
func (r *exportRun) snapshot() importCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return importCounts{created: r.state.Records - r.run0, input: r.state.Bytes}
}

func (r *exportRun) report(took time.Duration) string {
	text := fmt.Sprintf("exported %d records, %s", r.state.Records, humanize.IBytes(uint64(r.state.Bytes)))
	if r.run0 > 0 {
		text += fmt.Sprintf(", %d of them by this run,", r.state.Records-r.run0)
	}
	text += fmt.Sprintf(" in %.1f s (%s/s)", took.Seconds(), perSecond(r.state.Records-r.run0, took))
	if r.state.Folded > 0 {
		text += fmt.Sprintf("; in %d of them line breaks became spaces", r.state.Folded)
	}
	return text
}

// exportOutput is where lines go.
type exportOutput interface {
	// write adds the lines of a whole page.
	write(lines []byte) error
	// save notes that all that was written is whole.
	save(exportState) error
	// finish completes the output.
	finish() error
}

// plainOutput cannot be resumed.
type plainOutput struct{ io.Writer }

func (p plainOutput) write(lines []byte) error {
	_, err := p.Write(lines)
	return err
}

func (plainOutput) save(exportState) error { return nil }

func (plainOutput) finish() error { return nil }

// fileExists tells a path that leads somewhere, or of which nobody can tell.
func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}
