// Command gateway serves records by business key over HTTP, and checks, fills and describes such a gateway.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	// The first signal asks the command to stop; after that the default holds again, so a second one kills.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "gateway: %v\n", err)
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "gateway",
		Short:         "Records by business key, over an index in MongoDB and range-sharded rows in MySQL",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(serveCommand(), checkCommand(), importCommand(), versionCommand())
	return root
}

// configFlag gives a command its --config flag.
func configFlag(command *cobra.Command) *string {
	return command.Flags().String("config", "", "the config file (default "+defaultConfigFile+" in the working directory)")
}
