// Command bench compares the gateway with what it replaces: clients that use the plain drivers one by one. Both sides run
// in turns, on the same servers, in the same run, so that its ratios mean something on any machine.
//
// It takes its servers from GATEWAY_TEST_MYSQL and GATEWAY_TEST_MONGO (scripts/stack.sh run sets them), works in
// databases of its own, and drops them at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// plan is what a run measures, from its flags.
type plan struct {
	rounds     int
	clients    []int
	sizes      []int
	duration   time.Duration
	workloads  []workload
	records    int64
	out        string
	gateway    string
	logLevel   string
	directPool int
	load       float64
	growth     bool
	growthMax  int64
	growthTime time.Duration
	// command is the command line as a reader can repeat it, without paths of this machine.
	command string
}

// maxDuration keeps a pause of two phases below the gateway's keep-alive of 2 minutes.
const maxDuration = 30 * time.Second

func main() {
	// Never stopped: a second Ctrl-C must not cut off the dropping of the databases.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// run measures as the arguments say and writes the results. Nothing is written when anything fails.
func run(ctx context.Context, args []string, progress io.Writer) (err error) {
	p, err := parsePlan(args, progress)
	if err != nil {
		return err
	}
	s, err := askServers(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "keyrange-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	b := &bench{plan: p, servers: s, folder: folder, progress: progress, started: time.Now()}
	b.say("%s; %s", s, p)
	if b.binary, err = buildGateway(ctx, p.gateway, folder); err != nil {
		return err
	}
	results, err := b.measure(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted; nothing was written")
		}
		return err
	}
	if err := write(p.out, results); err != nil {
		return err
	}
	b.say("%s; wrote %s", judge(results), p.out)
	return nil
}

// parsePlan reads the flags. -quick changes the defaults of the others, never what was given.
func parsePlan(args []string, usage io.Writer) (*plan, error) {
	p := &plan{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(usage)
	clients := f.String("clients", "1,64,256,1024", "numbers of clients")
	sizes := f.String("sizes", "300,4096", "sizes of documents, in bytes")
	workloads := f.String("workloads", strings.Join(workloadNames(), ","), "what to measure; none skips all of them")
	quick := f.Bool("quick", false, "a look in about a minute: 1 round of 1s, 1 and 64 clients, 300 bytes, 2000 records")
	f.IntVar(&p.rounds, "rounds", 5, "alternating rounds of closed-loop load")
	f.DurationVar(&p.duration, "duration", 3*time.Second, "how long each side is measured in each round")
	f.Int64Var(&p.records, "records", 20_000, "records that are there before reads and updates")
	f.StringVar(&p.out, "out", "docs/benchmarks", "folder of the results")
	f.StringVar(&p.gateway, "gateway", "", "gateway binary to measure; built from this module when empty")
	f.StringVar(&p.logLevel, "log-level", "warn", "log.level of the gateway; info writes a line per request")
	f.IntVar(&p.directPool, "direct-connections", 200, "most connections of the direct clients to each database")
	f.Float64Var(&p.load, "load", 0.7, "rate of the open load, as a share of what the slower side reached in round 1")
	f.BoolVar(&p.growth, "growth", false, "also measure latency while the number of records grows")
	f.Int64Var(&p.growthMax, "growth-max", 1_000_000, "most records of -growth; levels are powers of ten from 10000")
	f.DurationVar(&p.growthTime, "growth-time", 20*time.Minute, "when -growth stops filling, for each of its layouts")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	given := map[string]bool{}
	f.Visit(func(one *flag.Flag) { given[one.Name] = true })
	if *quick {
		for name, value := range map[string]string{"rounds": "1", "duration": "1s", "clients": "1,64", "sizes": "300", "records": "2000"} {
			if !given[name] {
				_ = f.Set(name, value) // a constant that parses
			}
		}
	}
	var faults []error
	p.clients = numbers("clients", *clients, 1, 10_000, &faults)
	p.sizes = numbers("sizes", *sizes, minDocumentBytes, 512<<10, &faults)
	p.workloads = pickWorkloads(*workloads, &faults)
	if p.rounds < 1 || p.duration <= 0 || p.records < 1 || p.directPool < 1 || p.load <= 0 || p.load >= 1 {
		faults = append(faults, errors.New("-rounds, -duration, -records and -direct-connections must be positive, -load between 0 and 1"))
	}
	if p.duration > maxDuration {
		faults = append(faults, fmt.Errorf("-duration: at most %s, because the gateway closes connections that wait longer for the other side", maxDuration))
	}
	if f.NArg() > 0 {
		faults = append(faults, fmt.Errorf("unexpected argument %q", f.Arg(0)))
	}
	p.command = commandLine(f)
	return p, errors.Join(faults...)
}

// commandLine repeats the flags that were given, but for those that name paths. -quick sets others, which show too.
func commandLine(f *flag.FlagSet) string {
	words := []string{"go run ./test/bench"}
	f.Visit(func(one *flag.Flag) {
		if one.Name != "out" && one.Name != "gateway" && one.Name != "quick" {
			words = append(words, fmt.Sprintf("-%s=%s", one.Name, one.Value))
		}
	})
	return strings.Join(words, " ")
}

// numbers reads a list of numbers between least and most, each once, and sorts it.
func numbers(flagName, list string, least, most int, faults *[]error) []int {
	var parsed []int
	for _, word := range strings.Split(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < least || n > most {
			*faults = append(*faults, fmt.Errorf("-%s: %q is not a number from %d to %d", flagName, word, least, most))
			continue
		}
		parsed = append(parsed, n)
	}
	slices.Sort(parsed)
	return slices.Compact(parsed)
}

// String says what is going to be measured.
func (p *plan) String() string {
	return fmt.Sprintf("%d workloads, clients %v, documents of %v bytes, %d rounds of %s a side", len(p.workloads), p.clients, p.sizes, p.rounds, p.duration)
}
