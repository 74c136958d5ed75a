// Command gateway serves records by business key over HTTP, and checks, fills and describes such a gateway.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// gcPercent lets the heap grow to three times what is live before it is collected. The live heap of a gateway is small
// and its requests allocate much, so this halves the cost of collecting (docs/benchmarks); GOGC overrides it.
const gcPercent = 200

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
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
	root.AddCommand(serveCommand(), checkCommand(), rangesCommand(), issuersCommand(), fsckCommand(), importCommand(), exportCommand(), openAPICommand(), keygenCommand(), versionCommand())
	return root
}

// configFlag gives a command its --config flag.
func configFlag(command *cobra.Command) *string {
	return command.Flags().String("config", "", configUsage)
}

// configUsage explains --config.
const configUsage = "the config file (default " + defaultConfigFile + " in the working directory)"
