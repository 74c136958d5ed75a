package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"keyrange/index"
	"keyrange/store"
	"keyrange/store/sqldb"
)

const (
	// fsckGrace is the least time between the two looks at an entry that dangles, and fsckMargin how much it is above the
	// request timeout, where gateways may be running.
	fsckGrace, fsckMargin = 10 * time.Second, 5 * time.Second
)

// errDamage is the verdict of a look that found damage, which has been printed already; errDamageLeft that of a repair.
var (
	errDamage     = errors.New("fsck: there is damage, see above; with --repair, stray records get their entries again, groups are listed in full again and dangling entries go")
	errDamageLeft = errors.New("fsck: there is damage that needs a person, see above and the procedure in docs/operations.md")
)

const fsckLong = `Look at every entry of the index and at every row of the nodes, once, and tell what does not fit:

  dangling   an entry without a record. Harmless: it reads as 404, and the next create of the key takes it over
  stray      a record without an entry: it cannot be read
  double     a second record of a key; it cannot be read
  misplaced  a row in a range table that its ID does not belong to
  unlisted   a range with records of a group that the directory of groups does not name: lists of the group lack them
  beyond     an entry that points beyond the last range of the config, or at a range without a table

With --repair, dangling entries go and stray records get their entries again, and ranges are named again. That makes an index anew that was lost as a
whole. Records are never deleted. Without --repair nothing is changed but that the place for a collection's entries is made
if there is none, as every start of a gateway does.

Gateways may run meanwhile. Only embedded databases belong to one process at a time: stop their gateway first.

The exit code is 1 when there is damage (left), and 0 when there is none; dangling entries do not count.`

// fsckOptions are the flags of the fsck command.
type fsckOptions struct {
	config, collection string
	repair, showKeys   bool
	grace              time.Duration
	graceGiven         bool
}

func fsckCommand() *cobra.Command {
	var o fsckOptions
	command := &cobra.Command{
		Use: "fsck", Short: "Compare the index with the rows of the nodes, and mend what does not fit", Long: fsckLong,
		Example: `  gateway fsck
  gateway fsck --repair
  gateway fsck --collection orders --show-keys`,
		Args: cobra.NoArgs,
	}
	flags := command.Flags()
	flags.StringVar(&o.config, "config", "", configUsage)
	flags.StringVar(&o.collection, "collection", "", "look at this one only (default all of them)")
	flags.BoolVar(&o.repair, "repair", false, "mend what can be mended")
	flags.BoolVar(&o.showKeys, "show-keys", false, "print keys, which may be confidential, beside IDs")
	flags.DurationVar(&o.grace, "grace", 0, "the time between the two looks at an entry that dangles, longer than any request takes "+
		"(default 10s or 5s more than server.request_timeout; 0s on embedded databases)")
	command.RunE = func(command *cobra.Command, _ []string) error {
		o.graceGiven = command.Flags().Changed("grace")
		cfg, err := LoadConfig(o.config, os.Environ())
		if err != nil {
			return err
		}
		return o.run(command.Context(), cfg, command.OutOrStdout(), command.ErrOrStderr())
	}
	return command
}

// run looks at the databases of a config and prints what it has found. Progress goes to notes.
func (o fsckOptions) run(ctx context.Context, cfg *Config, out, notes io.Writer) error {
	about := store.Fsck{Collections: collectionNames(cfg), Groups: groupsOf(cfg), Repair: o.repair, Grace: o.graceOf(cfg), Now: time.Now}
	if o.collection != "" {
		if !slices.Contains(about.Collections, o.collection) {
			return fmt.Errorf("--collection: there is no collection %q; the config has %s", o.collection, strings.Join(about.Collections, ", "))
		}
		about.Collections = []string{o.collection}
	}
	if o.grace < 0 {
		return fmt.Errorf("--grace: must not be negative (got %s)", o.grace)
	}
	p := newParts()
	defer p.closeDatabases()
	fleet, err := p.openFleet(cfg)
	if err != nil {
		return err
	}
	if err := leaveOutNew(cfg, &fleet); err != nil {
		return err
	}
	if about.Index, err = index.New(cfg.Index.URI.Reveal(), indexOptions(cfg)); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	p.closers = append(p.closers, about.Index.Close)
	if err := reach(ctx, about.Index); err != nil {
		return hintInUse(cfg, err)
	}
	report := newFsckReport(out, o.showKeys)
	progress := newFsckProgress(notes)
	about.Found, about.Progress = report.found, progress.show
	began := time.Now()
	counts, err := fleet.Fsck(ctx, about)
	progress.finish()
	if err != nil && counts == (store.SweepCounts{}) {
		return hintInUse(cfg, err)
	}
	report.print(counts, o.repair, time.Since(began))
	switch {
	case err != nil:
		return fmt.Errorf("fsck has not come to an end: %w", err)
	case counts.Harmful() == 0:
		return nil
	case o.repair:
		return errDamageLeft
	}
	return errDamage
}

// reach makes sure that the index answers.
func reach(ctx context.Context, ix index.Index) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := ix.Ping(ctx); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	return nil
}

// graceOf is the grace period: what the flag says, or as long as a request may take and some more. An embedded database is
// this process's alone, so that no request can be under way.
func (o fsckOptions) graceOf(cfg *Config) time.Duration {
	switch {
	case o.graceGiven:
		return o.grace
	case isEmbedded(cfg.Index.URI):
		return 0
	}
	return max(fsckGrace, cfg.Server.RequestTimeout+fsckMargin)
}

// isEmbedded reports whether a location is a SQLite file. The index, the issuers and the nodes all are, or none.
func isEmbedded(dsn Secret) bool {
	loc, err := sqldb.ParseURL(dsn.Reveal())
	return err == nil && loc.Engine == sqldb.SQLite
}

// hintInUse says what to do when embedded databases are in use.
func hintInUse(cfg *Config, err error) error {
	if isEmbedded(cfg.Index.URI) && (errors.Is(err, sqldb.ErrUnavailable) || errors.Is(err, index.ErrUnavailable)) {
		return fmt.Errorf("%w\nEmbedded databases belong to one process at a time. What a gateway that runs on them has found out by itself: curl http://%s/admin/sweeper", err, cfg.Admin.Listen)
	}
	return err
}
