package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"keyrange/idsegment"
	"keyrange/store"
	"keyrange/store/sqldb"
)

// errBehind is the verdict of a look that found an issuer which the gateways refuse, and has been printed already.
var errBehind = errors.New("issuers: at least one is behind or does not answer, see above; gateway issuers repair brings those that are behind up to the ledgers")

func issuersCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "issuers",
		Short: "Compare the issuers with the ledgers of the nodes, and mend them after a restore",
		Long: "Compares how far each issuer has come with what the nodes' ledgers say that it leased. An issuer that is behind, because it\n" +
			"was restored from a backup, gives no IDs until it is mended. Without a subcommand nothing is changed.",
		Args: cobra.NoArgs,
	}
	config := command.PersistentFlags().String("config", "", configUsage)
	command.RunE = withFleet(config, showIssuers)
	command.AddCommand(repairCommand(config), rebuildCommand(config))
	return command
}

func repairCommand(config *string) *cobra.Command {
	command := &cobra.Command{
		Use:   "repair",
		Short: "Raise issuers that are behind to what the ledgers say; safe while gateways run",
		Args:  cobra.NoArgs,
	}
	skip := command.Flags().Int64("skip", 0, "give up so many IDs more, of each issuer and range: for when nodes were set back too")
	command.RunE = withFleet(config, func(ctx context.Context, cfg *Config, fleet store.Fleet, out io.Writer) error {
		if *skip < 0 || *skip > cfg.Ranges.Size {
			return fmt.Errorf("issuers repair: --skip must be 0 to %d, the size of a range (got %d)", cfg.Ranges.Size, *skip)
		}
		if err := connectIssuers(ctx, fleet); err != nil {
			return err
		}
		mended, err := fleet.Repair(ctx, collectionNames(cfg), *skip)
		for _, s := range mended {
			fmt.Fprintf(out, "issuer %d, %s: raised from %d to %d\n", s.Issuer, s.Name, s.Next, s.Raised)
		}
		if err == nil {
			fmt.Fprintf(out, "mended: %d\n", len(mended))
		}
		return err
	})
	return command
}

func rebuildCommand(config *string) *cobra.Command {
	command := &cobra.Command{
		Use:   "rebuild",
		Short: "Make issuers anew from the ledgers: a lost one, or all of them to change their number",
		Long: "Makes the issuers that the config lists anew from the nodes' ledgers, whatever their databases hold. With --issuer it is one\n" +
			"that was lost, and gateways may run. Without, it is all of them, which changes their number to what the config says: every\n" +
			"gateway must have been stopped before, and --stopped says that they were.",
		Args: cobra.NoArgs,
	}
	only := command.Flags().Int("issuer", 0, "rebuild only this one, counted from 1")
	stopped := command.Flags().Bool("stopped", false, "every gateway has been stopped")
	command.RunE = withFleet(config, func(ctx context.Context, cfg *Config, fleet store.Fleet, out io.Writer) error {
		switch {
		case *only < 0 || *only > len(fleet.Issuers):
			return fmt.Errorf("issuers rebuild: --issuer must be 1 to %d (got %d)", len(fleet.Issuers), *only)
		case *only == 0 && !*stopped:
			return errors.New("issuers rebuild: to rebuild all issuers, stop every gateway first and say so with --stopped; to rebuild a lost one, name it with --issuer")
		}
		for i := range fleet.Issuers {
			if *only > 0 && i != *only-1 {
				fleet.Issuers[i] = nil
			}
		}
		if err := connectIssuers(ctx, fleet); err != nil {
			return err
		}
		if err := fleet.Rebuild(ctx, collectionNames(cfg)); err != nil {
			return err
		}
		for i, issuer := range fleet.Issuers {
			if issuer != nil {
				fmt.Fprintf(out, "rebuilt: %s, %d of %d, at %s\n", store.IssuerName(i, len(fleet.Issuers)), i+1, len(fleet.Issuers), issuer.Describe())
			}
		}
		return nil
	})
	return command
}

// withFleet runs a command on the databases of a config, which it does not connect to.
func withFleet(config *string, run func(ctx context.Context, cfg *Config, fleet store.Fleet, out io.Writer) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, _ []string) error {
		cfg, err := LoadConfig(*config, os.Environ())
		if err != nil {
			return err
		}
		for i, n := range cfg.Nodes {
			if loc, err := sqldb.ParseURL(n.DSN.Reveal()); err == nil && isNew(loc) {
				return fmt.Errorf("nodes[%d] (%s): %s does not exist yet", i, n.Name, loc)
			}
		}
		p := newParts()
		defer p.closeDatabases()
		fleet, err := p.openFleet(cfg)
		if err != nil {
			return err
		}
		return run(command.Context(), cfg, fleet, command.OutOrStdout())
	}
}

// connectIssuers makes sure that all issuers answer.
func connectIssuers(ctx context.Context, fleet store.Fleet) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var errs []error
	for i, issuer := range fleet.Issuers {
		if issuer == nil {
			continue
		}
		if err := issuer.Ping(ctx); err != nil {
			errs = append(errs, fmt.Errorf("ids.issuers[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// showIssuers prints each issuer, and how it stands with each range.
func showIssuers(ctx context.Context, cfg *Config, fleet store.Fleet, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	faults := 0
	for i, issuer := range fleet.Issuers {
		name := store.IssuerName(i, len(fleet.Issuers))
		is, err := askIssuer(ctx, issuer)
		if err != nil {
			fmt.Fprintf(table, "%s\t%s\tFAULT\t%s\n", name, issuer.Describe(), err)
			fleet.Issuers[i] = nil
			faults++
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", name, issuer.Describe(), is)
	}
	standings, err := fleet.Standings(ctx, collectionNames(cfg))
	if err != nil {
		return errors.Join(table.Flush(), err)
	}
	fmt.Fprintf(table, "\nrange\tissuer\tnext ID\tledger\t\n")
	for _, s := range standings {
		verdict := "ok"
		if s.Behind() {
			verdict = "BEHIND"
			faults++
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\n", s.Name, s.Issuer, s.Next, s.Ledger, verdict)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if faults > 0 {
		return errBehind
	}
	return nil
}

func askIssuer(ctx context.Context, issuer *idsegment.Issuer) (idsegment.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := issuer.Ping(ctx); err != nil {
		return idsegment.Identity{}, err
	}
	return issuer.Identity(ctx)
}
