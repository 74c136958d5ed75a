package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"keyrange/handlers"
	"keyrange/idsegment"
	"keyrange/store"
	"keyrange/store/sqldb"
)

const (
	// rangesTimeout bounds a look that does not count every record.
	rangesTimeout = 30 * time.Second
	// rangesLineTick is the pause between two lines about the progress of a count, where progress is a log.
	rangesLineTick = 5 * time.Second
	// rangesMaxBytes bounds the answer of a gateway: about 300 bytes for each range.
	rangesMaxBytes = 1 * gibibyte
)

const rangesLong = `Show how full the ranges are, how fast IDs are used and how many days are left, for each collection.

The databases of the config are asked, so no gateway needs to run, and nothing is written. Embedded databases belong to
the gateway that runs on them; --server asks that one, or any other, by the address of its admin listener.

How many records there are, and their size, is estimated from 4096 IDs of each range and marked ~. --exact counts every
record, which reads all of them.`

// rangesOptions are the flags of the ranges command.
type rangesOptions struct {
	config, server  string
	exact, jsonForm bool
	caller          callerOptions
}

func rangesCommand() *cobra.Command {
	var o rangesOptions
	command := &cobra.Command{
		Use: "ranges", Short: "Show how full the ranges are and how long they last, and change nothing", Long: rangesLong,
		Example: `  gateway ranges
  gateway ranges --server http://127.0.0.1:9090 --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ranges, err := o.ask(command.Context(), command.ErrOrStderr())
			if err != nil {
				return err
			}
			if o.jsonForm {
				return json.NewEncoder(command.OutOrStdout()).Encode(ranges)
			}
			return printRanges(command.OutOrStdout(), ranges)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.config, "config", "", configUsage)
	flags.StringVar(&o.server, "server", "", "URL of the admin listener of a running gateway, which is asked instead of the databases")
	flags.BoolVar(&o.exact, "exact", false, "count every record")
	flags.BoolVar(&o.jsonForm, "json", false, "print what GET /admin/ranges answers")
	o.caller.addTo(command)
	command.MarkFlagsMutuallyExclusive("config", "server")
	return command
}

// ask finds out how full the ranges are. Progress and what could not be asked go to notes.
func (o rangesOptions) ask(ctx context.Context, notes io.Writer) (handlers.Ranges, error) {
	if !o.exact {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rangesTimeout)
		defer cancel()
	}
	if o.server != "" {
		return fetchRanges(ctx, o.server, o.exact, o.caller)
	}
	cfg, err := LoadConfig(o.config, os.Environ())
	if err != nil {
		return handlers.Ranges{}, err
	}
	levels, err := surveyDatabases(ctx, cfg, o.exact, notes)
	return handlers.NewRanges(levels), err
}

// surveyDatabases asks the databases that the config names. Those that do not answer are named in notes and left out.
func surveyDatabases(ctx context.Context, cfg *Config, exact bool, notes io.Writer) (store.Levels, error) {
	p := newParts()
	defer p.closeDatabases()
	fleet, err := p.openFleet(cfg)
	if err != nil {
		return store.Levels{}, err
	}
	if err := leaveOutNew(cfg, &fleet); err != nil {
		return store.Levels{}, err
	}
	verdict := fleet.Verify(ctx)
	if err := verdict.Err(); err != nil {
		return store.Levels{}, err
	}
	if err := leaveOutAway(cfg, &fleet, verdict, notes); err != nil {
		return store.Levels{}, err
	}
	about := store.Survey{Collections: collectionNames(cfg), Alarms: alarmLevelsOf(cfg), Exact: exact, Now: time.Now}
	if exact {
		progress, finish := showCounting(notes)
		about.Progress = progress
		defer finish()
	}
	return fleet.Levels(ctx, about)
}

// leaveOutNew takes embedded databases out of a fleet that no gateway has made yet: connecting would make them.
func leaveOutNew(cfg *Config, fleet *store.Fleet) error {
	made := func(dsn Secret) bool {
		loc, err := sqldb.ParseURL(dsn.Reveal())
		return err != nil || !isNew(loc)
	}
	anyMade := false
	for i, c := range cfg.IDs.Issuers {
		if !made(c.DSN) {
			fleet.Issuers[i] = nil
		}
		anyMade = anyMade || fleet.Issuers[i] != nil
	}
	for i, c := range cfg.Nodes {
		if !made(c.DSN) {
			fleet.Nodes[i] = nil
		}
	}
	if !anyMade {
		return errors.New("no gateway has been started with this config yet: the embedded databases that issue IDs do not exist")
	}
	return nil
}

// leaveOutAway takes databases out of a fleet that do not answer, and tells why. It fails when no issuer is left, and for
// embedded databases, which a gateway that runs on them keeps to itself.
func leaveOutAway(cfg *Config, fleet *store.Fleet, verdict store.Verdict, notes io.Writer) error {
	var away []error
	for i, found := range verdict.Issuers {
		if found.Away && found.Err != nil {
			fleet.Issuers[i] = nil
			away = append(away, found.Err)
		}
	}
	for i, found := range verdict.Nodes {
		if found.Away && found.Err != nil {
			fleet.Nodes[i] = nil
			away = append(away, found.Err)
		}
	}
	if len(away) == 0 {
		return nil
	}
	if loc, err := sqldb.ParseURL(cfg.IDs.Issuers[0].DSN.Reveal()); err == nil && loc.Engine == sqldb.SQLite {
		return fmt.Errorf("%w\nA gateway that runs on these databases can be asked: gateway ranges --server http://%s", away[0], cfg.Admin.Listen)
	}
	if !slices.ContainsFunc(fleet.Issuers, func(i *idsegment.Issuer) bool { return i != nil }) {
		return errors.Join(away...)
	}
	for _, why := range away {
		fmt.Fprintf(notes, "left out, as it does not answer: %v\n", why)
	}
	return nil
}

// showCounting returns a function that shows how many IDs of how many have been looked at, and one that ends that.
func showCounting(notes io.Writer) (progress func(done, of int64), finish func()) {
	if f, ok := notes.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		bar := progressbar.NewOptions64(-1, progressbar.OptionSetWriter(notes), progressbar.OptionSetDescription("counting"),
			progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
		return func(done, of int64) {
			bar.ChangeMax64(of)
			_ = bar.Set64(done)
		}, func() { _ = bar.Clear() }
	}
	last := time.Now()
	return func(done, of int64) {
		if time.Since(last) >= rangesLineTick {
			last = time.Now()
			fmt.Fprintf(notes, "ranges: looked at %s of %s IDs\n", thousands(done), thousands(of))
		}
	}, func() {}
}

// fetchRanges asks a running gateway.
func fetchRanges(ctx context.Context, server string, exact bool, caller callerOptions) (ranges handlers.Ranges, err error) {
	base, err := url.Parse(server)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return ranges, fmt.Errorf("--server: an http or https URL (got %q)", server)
	}
	target := base.JoinPath("admin", "ranges")
	if exact {
		target.RawQuery = "exact=true"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return ranges, err
	}
	transport, err := caller.transport()
	if err != nil {
		return ranges, err
	}
	defer transport.CloseIdleConnections()
	client, err := caller.client(transport)
	if err != nil {
		return ranges, err
	}
	response, err := client.Do(request)
	if err != nil {
		return ranges, err // names the URL
	}
	defer func() { _ = response.Body.Close() }() // it was read
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(rangesMaxBytes)))
	if err != nil {
		return ranges, fmt.Errorf("%s: %w", target.Redacted(), err)
	}
	if response.StatusCode != http.StatusOK {
		var problem struct{ Code, Detail string }
		_ = json.Unmarshal(body, &problem) // no problem document, no code
		if response.StatusCode == http.StatusNotFound {
			problem.Detail = "is this the admin listener of a gateway?"
		}
		return ranges, fmt.Errorf("%s answered %s: %s", target.Redacted(), response.Status, cmp.Or(problem.Detail, "not a gateway"))
	}
	if err := json.Unmarshal(body, &ranges); err != nil {
		return ranges, fmt.Errorf("%s: not a gateway's answer: %w", target.Redacted(), err)
	}
	return ranges, nil
}
