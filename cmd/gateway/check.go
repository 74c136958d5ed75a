package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"keyrange/idsegment"
	"keyrange/index"
	"keyrange/store"
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
	offline := command.Flags().Bool("offline", false, "check the config alone and ask no database")
	command.RunE = func(command *cobra.Command, _ []string) error {
		cfg, err := LoadConfig(*config, os.Environ())
		if err != nil {
			return err
		}
		if *offline {
			fmt.Fprintf(command.OutOrStdout(), "config valid, collections: %d, nodes: %d; no database was asked\n", len(cfg.Collections), len(cfg.Nodes))
			return nil
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
	fleet, verdict := findFleet(ctx, cfg)
	findings := append([]finding{findIndex(ctx, cfg, verdict)}, fleet...)
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
	fmt.Fprintf(out, "config valid, collections: %d, nodes: %d, no fault\n", len(cfg.Collections), len(cfg.Nodes))
	return nil
}

// findIndex looks at the index, and whether it belongs to the fleet.
func findIndex(ctx context.Context, cfg *Config, fleet store.Verdict) finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	const what = "index"
	uri := cfg.Index.URI.Reveal()
	if loc, err := sqldb.ParseURL(uri); err == nil && isNew(loc) {
		if found := fleet.JudgeIndex("", loc.String()); found.Err != nil {
			return faulty(what, loc.String(), found.Err)
		}
		return finding{what, loc.String(), "new", "is made at the first start"}
	}
	ix, err := index.Open(ctx, uri, indexOptions(cfg))
	if err != nil {
		return faulty(what, "", err)
	}
	defer func() { _ = ix.Close() }() // nothing was written
	stamp, err := ix.Stamp(ctx)
	if err == nil {
		err = fleet.JudgeIndex(stamp, ix.Describe()).Err
	}
	if err != nil {
		return faulty(what, ix.Describe(), err)
	}
	return finding{what, ix.Describe(), "reachable", ""}
}

// findFleet looks at the issuers and the nodes, each by itself and whether they belong together.
func findFleet(ctx context.Context, cfg *Config) ([]finding, store.Verdict) {
	layout, err := layoutOf(cfg)
	if err != nil {
		return []finding{faulty("nodes", "", err)}, store.Verdict{}
	}
	issuers := len(cfg.IDs.Issuers)
	findings := make([]finding, issuers+len(cfg.Nodes))
	dbs := make([]*sqldb.DB, len(findings)) // nil where there is nothing to compare
	fleet := store.Fleet{Map: layout, Issuers: make([]*idsegment.Issuer, issuers)}
	var wg sync.WaitGroup
	for i, issuer := range cfg.IDs.Issuers {
		wg.Go(func() {
			if findings[i], dbs[i] = findDatabase(ctx, store.IssuerName(i, issuers), issuer.DSN); dbs[i] != nil {
				fleet.Issuers[i] = idsegment.NewIssuer(dbs[i], i+1, issuers)
			}
		})
	}
	for i, n := range cfg.Nodes {
		wg.Go(func() { findings[issuers+i], dbs[issuers+i] = findDatabase(ctx, n.Name, n.DSN) })
	}
	wg.Wait()
	fleet.Nodes = dbs[issuers:]
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	verdict := fleet.Verify(ctx)
	fleet.JudgeGroups(ctx, &verdict, groupsOf(cfg))
	for i, db := range dbs {
		if db == nil {
			continue
		}
		defer func() { _ = db.Close() }()
		f := &findings[i]
		var found store.Finding
		if i < issuers {
			found = verdict.Issuers[i]
		} else {
			found = verdict.Nodes[i-issuers]
			f.detail += ", ranges " + cfg.Nodes[i-issuers].Ranges + ", " + stampState(found.Stamped())
		}
		if i >= issuers && found.Err == nil && !found.Away {
			found.Err = store.JudgeTables(ctx, db, collectionsOf(cfg))
		}
		if found.Err != nil {
			*f = faulty(f.what, f.where, found.Err)
		}
	}
	return findings, verdict
}

func stampState(stamped bool) string {
	if stamped {
		return "stamp fits"
	}
	return "no stamp yet"
}

// findDatabase opens one SQL database; nil when it does not answer or does not exist yet.
func findDatabase(ctx context.Context, what string, dsn Secret) (finding, *sqldb.DB) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	loc, err := sqldb.ParseURL(dsn.Reveal())
	if err != nil {
		return faulty(what, "", err), nil
	}
	if isNew(loc) {
		return finding{what, loc.String(), "new", "is made at the first start"}, nil
	}
	db, err := sqldb.Open(ctx, dsn.Reveal(), sqldb.Options{})
	if err != nil {
		return faulty(what, loc.String(), err), nil
	}
	return finding{what, loc.String(), "reachable", fmt.Sprintf("%s %s", db.Engine(), db.Server().Version)}, db
}

// isNew reports whether a location is an embedded database that no gateway has made yet.
func isNew(loc sqldb.Location) bool {
	if loc.Engine != sqldb.SQLite {
		return false
	}
	_, err := os.Stat(loc.Path)
	return errors.Is(err, fs.ErrNotExist)
}
