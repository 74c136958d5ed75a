package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"keyrange/handlers/apidoc"
)

const openAPILong = `Print the description of the API as an OpenAPI 3.1 document, the one that a gateway serves at /openapi.json.

With --config it names the collections of that config; without, it leaves their names open.`

func openAPICommand() *cobra.Command {
	var config string
	command := &cobra.Command{
		Use: "openapi", Short: "Print the description of the API, an OpenAPI 3.1 document", Long: openAPILong,
		Example: `  gateway openapi > openapi.json`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			var collections []string
			if config != "" {
				cfg, err := LoadConfig(config, os.Environ())
				if err != nil {
					return err
				}
				collections = collectionNames(cfg)
			}
			d, err := apidoc.New(collections...)
			if err != nil {
				return err
			}
			document, err := d.JSON()
			if err != nil {
				return err
			}
			if _, err := command.OutOrStdout().Write(document); err != nil {
				return fmt.Errorf("print the document: %w", err)
			}
			return nil
		},
	}
	command.Flags().StringVar(&config, "config", "", "a config file whose collections are named")
	return command
}
