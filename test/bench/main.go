// Command bench compares both engines of Sonde's capture with tcpdump, dumpcap and netsniff-ng: the same frames over the same veth pair, in turn; and
// its trace with bpftrace and strace, at the same loops. It measures what they cost, in their own process and in those
// that they look at, and what they lose; docs/benchmarks-method.md says how. It needs root and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/sonde-operator/sonde/agents/capture"
)

// commands of a user. Those in roles are for bench's own children.
var commands = map[string]func(ctx context.Context, args []string) error{
	"run":     runBench,
	"page":    runPage,
	"compare": runCompare,
}

const usage = `usage: bench run [flags]               measure, and write results.json, machine.md, capture.md and trace.md
       bench page results.json [DIR]   write the pages again
       bench compare A.json B.json     do the ratios of two runs agree?`

func main() {
	if ran, err := runRole(os.Args[1:]); ran {
		exitOn(err)
		return
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := commands[os.Args[1]](ctx, os.Args[2:])
	if ctx.Err() != nil {
		err = errors.New("interrupted; no results, and nothing is left behind")
	}
	stop()
	exitOn(err)
}

func exitOn(err error) {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// options of a run.
type options struct {
	agent   string // the agent's binary
	out     string // directory of the results
	disk    string // directory on the disk that is measured
	memory  string // directory on a tmpfs
	rounds  int
	packets int
	stream  int64 // bytes of the TCP stream
	ring    int64 // bytes of Sonde's rings, as by the manager's flag --ring-bytes
	only    string
	part    string
	turns   int  // of the slowest loop
	cold    bool // do not touch all free memory
}

// Parts of a run.
const (
	partAll     = "all"
	partCapture = "capture"
	partTrace   = "trace"
)

func runBench(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench run", flag.ContinueOnError)
	var o options
	flags.StringVar(&o.agent, "agent", filepath.Join("bin", "linux_"+runtime.GOARCH, "agent"), "the agent's `binary`, as it is in the image")
	flags.StringVar(&o.out, "out", filepath.Join("build", "bench"), "`directory` for results")
	flags.StringVar(&o.disk, "disk", filepath.Join("build", "bench"), "`directory` on the disk to write captures to")
	flags.StringVar(&o.memory, "tmpfs", "/dev/shm", "`directory` on a tmpfs to write captures to")
	flags.IntVar(&o.rounds, "rounds", 7, "how `often` each measurement is repeated")
	flags.IntVar(&o.packets, "packets", 1_000_000, "packets of one measurement")
	flags.Int64Var(&o.stream, "stream", 2<<30, "`bytes` of the TCP stream of one measurement")
	flags.Int64Var(&o.ring, "ring", capture.DefaultRingBytes, "`bytes` of Sonde's rings, all interfaces together")
	flags.StringVar(&o.only, "only", "", "measure only scenarios and loops whose name contains `text`, and search no rates of captures")
	flags.StringVar(&o.part, "part", partAll, "`what` to measure: all, capture or trace")
	flags.IntVar(&o.turns, "turns", 1_000_000, "turns of opening, reading and closing a file of one measurement")
	flags.BoolVar(&o.cold, "cold", false, "do not touch all free memory first: for a short look on a machine that others use")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.rounds < 1 || o.packets < 1000 || o.stream < 1<<20 || o.turns < 1000 {
		return errors.New("at least 1 round, 1000 packets, a stream of 1 MiB and 1000 turns are needed")
	}
	if !slices.Contains([]string{partAll, partCapture, partTrace}, o.part) {
		return fmt.Errorf("-part %s: there are %s, %s and %s", o.part, partAll, partCapture, partTrace)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	began := time.Now()
	res, err := measure(ctx, &o, os.Stderr)
	if err != nil {
		return err
	}
	path := filepath.Join(o.out, began.UTC().Format("20060102T150405Z")+".json")
	if err := errors.Join(res.write(path), writePages(res, o.out)); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s in %s\n", path, time.Since(began).Round(time.Second))
	return nil
}

func runPage(_ context.Context, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return errors.New(usage)
	}
	dir := filepath.Dir(args[0])
	if len(args) == 2 {
		dir = args[1]
	}
	res, err := readResults(args[0])
	if err != nil {
		return err
	}
	return writePages(res, dir)
}

// writePages writes the pages of what was measured.
func writePages(res *results, dir string) error {
	pages := map[string]string{}
	if len(res.Samples) > 0 {
		pages["machine.md"], pages["capture.md"] = machinePage(res), capturePage(res)
	}
	if len(res.Traces) > 0 {
		pages["trace.md"] = tracePage(res)
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write page: %w", err)
		}
	}
	return nil
}
