package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"keyrange/index"
	"keyrange/rangeshard"
	"keyrange/store/sqldb"
)

// checkTimeout bounds the look at one database.
const checkTimeout = 5 * time.Second

// errCheck is the verdict of a check that found faults, which it has printed already.
var errCheck = errors.New("check: there are faults, see above")

func checkCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "check",
		Short: "Check the config and every database that it names, and change nothing",
		Args:  cobra.NoArgs,
	}
	config := configFlag(command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		cfg, err := LoadConfig(*config, os.Environ())
		if err != nil {
			return err
		}
		return check(command.Context(), cfg, command.OutOrStdout())
	}
	return command
}

// finding is one line of the report.
type finding struct {
	what, where string
	// state is "reachable", "new" for an embedded database that does not exist yet, or "FAULT".
	state, detail string
}

func faulty(what, where string, err error) finding { return finding{what, where, "FAULT", err.Error()} }

// check looks at each database and prints a line for it. It writes nothing anywhere.
func check(ctx context.Context, cfg *Config, out io.Writer) error {
	findings := []finding{findIndex(ctx, cfg), findIssuer(ctx, cfg)}
	findings = append(findings, findNodes(ctx, cfg)...)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	faults := 0
	for _, f := range findings {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.what, f.where, f.state, strings.ReplaceAll(f.detail, "\n", "; "))
		if f.state == "FAULT" {
			faults++
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if faults > 0 {
		return errCheck
	}
	fmt.Fprintf(out, "config valid, %d collections, %d nodes, no fault\n", len(cfg.Collections), len(cfg.Nodes))
	return nil
}

func findIndex(ctx context.Context, cfg *Config) finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	const what = "index"
	uri := cfg.Index.URI.Reveal()
	if loc, err := sqldb.ParseURL(uri); err == nil && isNew(loc) {
		return finding{what, loc.String(), "new", "is made at the first start"}
	}
	ix, err := index.Open(ctx, uri, indexOptions(cfg))
	if err != nil {
		return faulty(what, "", err)
	}
	defer func() { _ = ix.Close() }() // nothing was written
	if err := ix.Ping(ctx); err != nil {
		return faulty(what, ix.Describe(), err)
	}
	return finding{what, ix.Describe(), "reachable", ""}
}

func findIssuer(ctx context.Context, cfg *Config) finding {
	return look(ctx, "issuer", cfg.IDs.Issuers[0].DSN, func(_ context.Context, db *sqldb.DB) (string, error) {
		return describeServer(db), nil
	})
}

// findNodes compares stamps with the config, and with each other: all must be of one cluster.
func findNodes(ctx context.Context, cfg *Config) []finding {
	layout, err := layoutOf(cfg)
	if err != nil {
		return []finding{faulty("nodes", "", err)}
	}
	var findings []finding
	cluster := ""
	for i, n := range cfg.Nodes {
		findings = append(findings, look(ctx, n.Name, n.DSN, func(ctx context.Context, db *sqldb.DB) (string, error) {
			have, ok, err := rangeshard.ReadStamp(ctx, db)
			if err != nil {
				return "", err
			}
			facts := describeServer(db) + ", ranges " + n.Ranges
			if !ok {
				return facts + ", no stamp yet", nil
			}
			if cluster == "" {
				cluster = have.Cluster
			}
			return facts + ", stamp fits", have.Accept(stampOf(layout, layout.Nodes()[i], cluster))
		}))
	}
	return findings
}

// look opens one SQL database and lets describe say what it found there.
func look(ctx context.Context, what string, dsn Secret, describe func(context.Context, *sqldb.DB) (string, error)) finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	loc, err := sqldb.ParseURL(dsn.Reveal())
	if err != nil {
		return faulty(what, "", err)
	}
	if isNew(loc) {
		return finding{what, loc.String(), "new", "is made at the first start"}
	}
	db, err := sqldb.Open(ctx, dsn.Reveal(), sqldb.Options{})
	if err != nil {
		return faulty(what, loc.String(), err)
	}
	defer func() { _ = db.Close() }()
	detail, err := describe(ctx, db)
	if err != nil {
		return faulty(what, loc.String(), err)
	}
	return finding{what, loc.String(), "reachable", detail}
}

func describeServer(db *sqldb.DB) string {
	return fmt.Sprintf("%s %s", db.Engine(), db.Server().Version)
}

// isNew reports whether a location is an embedded database that no gateway has made yet.
func isNew(loc sqldb.Location) bool {
	if loc.Engine != sqldb.SQLite {
		return false
	}
	_, err := os.Stat(loc.Path)
	return errors.Is(err, fs.ErrNotExist)
}
