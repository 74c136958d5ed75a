package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"keyrange/handlers/access"
)

func keygenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen",
		Short: "Print a fresh API key, and the SHA-256 of it for auth.keys_file",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			key, sum := access.NewKey()
			_, err := fmt.Fprintf(command.OutOrStdout(), "key     %s\nsha256  %x\n", key, sum)
			return err
		},
	}
}
