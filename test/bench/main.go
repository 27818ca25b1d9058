// Command bench compares the engines of a PacketCapture with tcpdump, dumpcap and netsniff-ng, a Trace with bpftrace and
// strace, and the data path of an InterceptRequest with netstack WireGuard and a plain proxy. It also measures the stream of
// a running capture, and what the names of processes add to a packet. All engines capture the same frames on the same veth pair, all tracers trace the same loops, all streams have the same ends. It measures the
// cost in their own processes and in the observed ones, and the losses; docs/benchmarks-method.md describes the method.
// It needs root, and removes everything that it creates.
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
	"strings"
	"syscall"
	"time"

	agentcapture "github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/test/bench/capture"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
	"github.com/sonde-operator/sonde/test/bench/intercept"
	"github.com/sonde-operator/sonde/test/bench/live"
	"github.com/sonde-operator/sonde/test/bench/trace"
)

// commands of the user. The roles of the packages are for the child processes of bench.
var commands = map[string]func(ctx context.Context, args []string) error{
	"run":     runBench,
	"page":    runPage,
	"compare": runCompare,
}

const usage = `usage: bench run [flags]               measure, and write results.json and a page for each part
       bench page results.json [DIR]   write the pages again
       bench compare A.json B.json     do the ratios of two runs agree?`

func main() {
	if ran, err := host.RunRole(os.Args[1:], host.MergeRoles(host.Roles, capture.Roles, trace.Roles, intercept.Roles, live.Roles)); ran {
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
	host.Settings
	out     string // directory of the results
	rounds  int
	packets int
	only    string
	part    string
	turns   int  // of the slowest loop
	cold    bool // do not touch all free memory
	tunnel  intercept.Sizes
	live    live.Sizes
}

// Parts of a run.
const (
	partAll       = "all"
	partCapture   = "capture"
	partTrace     = "trace"
	partIntercept = "intercept"
	partLive      = "live"
)

var parts = []string{partAll, partCapture, partTrace, partIntercept, partLive}

func (o *options) has(part string) bool { return o.part == partAll || o.part == part }

func runBench(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench run", flag.ContinueOnError)
	o := options{tunnel: intercept.Sizes{Still: 3 * time.Second}, live: live.Sizes{Ways: figures.LiveWays}}
	flags.StringVar(&o.Agent, "agent", filepath.Join("bin", "linux_"+runtime.GOARCH, "agent"), "the agent's `binary`, as it is in the image")
	flags.StringVar(&o.out, "out", filepath.Join("build", "bench"), "`directory` for results")
	flags.StringVar(&o.Disk, "disk", filepath.Join("build", "bench"), "`directory` on the disk to write captures to")
	flags.StringVar(&o.Memory, "tmpfs", "/dev/shm", "`directory` on a tmpfs to write captures to")
	flags.IntVar(&o.rounds, "rounds", 7, "how `often` each measurement is repeated")
	flags.IntVar(&o.packets, "packets", 1_000_000, "packets of one measurement")
	flags.Int64Var(&o.Stream, "stream", 2<<30, "`bytes` of the TCP stream of one measurement")
	flags.Int64Var(&o.Ring, "ring", agentcapture.DefaultRingBytes, "`bytes` of Sonde's rings, all interfaces together")
	flags.StringVar(&o.only, "only", "", "measure only scenarios and loops whose name contains `text`, no intercepts and live captures, and search no rates of captures")
	flags.StringVar(&o.part, "part", partAll, "`what` to measure: "+strings.Join(parts, ", "))
	flags.IntVar(&o.turns, "turns", 1_000_000, "turns of opening, reading and closing a file of one measurement")
	flags.StringVar(&o.tunnel.WireGuard, "wireguard", filepath.Join("bin", "bench-wireguard"), "the `binary` of test/bench/wireguard")
	flags.IntVar(&o.tunnel.Requests, "requests", 10_000, "keep-alive requests that do not match, by each way")
	flags.IntVar(&o.tunnel.Clients, "clients", 50, "clients of Stowaway when its memory is measured")
	flags.StringVar(&o.live.Plugin, "plugin", filepath.Join("bin", "kubectl-sonde"), "the plugin's `binary`")
	flags.IntVar(&o.live.Packets, "latencies", 60, "packets whose latency is measured by each way")
	flags.DurationVar(&o.live.Follow, "follow", 10*time.Second, "`time` of a stream of several Pods")
	flags.BoolVar(&o.cold, "cold", false, "do not touch all free memory first: for a short look on a machine that others use")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	o.live.Frames = o.packets
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	began := time.Now()
	res, err := measure(ctx, &o, os.Stderr)
	if err != nil {
		return err
	}
	path := filepath.Join(o.out, began.UTC().Format("20060102T150405Z")+".json")
	if err := errors.Join(res.Write(path), writePages(res, o.out)); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s in %s\n", path, time.Since(began).Round(time.Second))
	return nil
}

// check refuses sizes that measure nothing.
func (o *options) check() error {
	if o.rounds < 1 || o.packets < 1000 || o.Stream < 1<<20 || o.turns < 1000 || o.tunnel.Requests < 1 || o.tunnel.Clients < 1 {
		return errors.New("at least 1 round, 1000 packets, a stream of 1 MiB, 1000 turns, 1 request and 1 client are needed")
	}
	if o.live.Packets < 1 || o.live.Packets > live.MostPackets || o.live.Follow < time.Second || o.live.Follow > live.Longest {
		return fmt.Errorf("1 to %d packets for the latency, and a stream of 1 s to %s are needed", live.MostPackets, live.Longest)
	}
	if !slices.Contains(parts, o.part) {
		return fmt.Errorf("-part %s: there are %s", o.part, strings.Join(parts, ", "))
	}
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
	res, err := figures.Read(args[0])
	if err != nil {
		return err
	}
	return writePages(res, dir)
}

// writePages writes the pages of what was measured.
func writePages(res *figures.Results, dir string) error {
	pages := map[string]string{}
	if len(res.Samples) > 0 {
		pages["machine.md"], pages["capture.md"] = figures.MachinePage(res), figures.CapturePage(res)
	}
	if len(res.Traces) > 0 {
		pages["trace.md"] = figures.TracePage(res)
	}
	if len(res.Intercept.Streams) > 0 {
		pages["intercept.md"] = figures.InterceptPage(res)
	}
	if len(res.Live.Followed) > 0 {
		pages["live.md"] = figures.LivePage(res)
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write page: %w", err)
		}
	}
	return nil
}

func runCompare(_ context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New(usage)
	}
	a, err := figures.Read(args[0])
	if err != nil {
		return err
	}
	b, err := figures.Read(args[1])
	if err != nil {
		return err
	}
	return figures.Compare(os.Stdout, a, b)
}
