package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// job is what an engine is to capture.
type job struct {
	dir    string // where the file goes
	filter string // empty takes everything
	snap   int    // bytes of a packet to keep; 0 is the engine's default
}

// running is a capture that is under way.
type running interface {
	// pid of the process that captures.
	pid() int
	// stop ends the capture, waits for the process and returns the file, the drops that it reports and its CPU time.
	stop(ctx context.Context) (ended, error)
}

type ended struct {
	file    string
	dropped int
	cpu     time.Duration // user and system, since the process began
}

// engine is a row of the table: a way to capture. start returns when every further packet is captured or counted.
type engine struct {
	name  string
	label string
	// exact says that stop takes what is still in the ring; else packets have to follow that push it out.
	exact bool
	// whole says that it keeps packets as they are, of the link's size at most: it knows no snap length and no large segments.
	whole bool
	start func(ctx context.Context, b *bench, j *job) (running, error)
}

// Names that other parts of bench ask for.
const (
	engineNone     = "none"
	engineBPF      = "sonde-bpf"
	engineAFPacket = "sonde-afpacket"
	engineMain     = "tcpdump-64M" // the peer that goals speak of
)

// own are Sonde's engines.
var own = []string{engineBPF, engineAFPacket}

// engines in the order in which they take turns.
var engines = []engine{
	{name: engineNone, label: "no capture"},
	{name: engineBPF, label: "Sonde, bpf", exact: true, start: sondeBy(captureconfig.EngineBPF)},
	{name: engineAFPacket, label: "Sonde, afpacket", exact: true, start: sondeBy(captureconfig.EngineAFPacket)},
	{name: engineMain, label: "tcpdump -B 65536", start: peer(tcpdump("-B", "65536"), "listening on", tcpdumpDrops)},
	{name: "tcpdump", label: "tcpdump", start: peer(tcpdump(), "listening on", tcpdumpDrops)},
	{name: "dumpcap", label: "dumpcap -B 64", start: peer(dumpcap, "File:", dumpcapDrops)},
	{name: "netsniff-ng", label: "netsniff-ng -S 64MiB", whole: true, start: peer(netsniff, "Running!", netsniffDrops)},
}

func engineByName(name string) *engine {
	for i := range engines {
		if engines[i].name == name {
			return &engines[i]
		}
	}
	return nil
}

var (
	tcpdumpDrops  = regexp.MustCompile(`(\d+) packets? dropped by kernel`)
	netsniffDrops = regexp.MustCompile(`(\d+)\s+packets failed filter \(out of space\)`)
	dumpcapDrops  = regexp.MustCompile(`Packets received/dropped on interface '[^']*': \d+/(\d+) `)
)

func tcpdump(more ...string) func(j *job, file string) []string {
	return func(j *job, file string) []string {
		args := append([]string{"tcpdump", "-i", targetLink, "-n", "-Z", "root", "-w", file}, more...)
		if j.snap > 0 {
			args = append(args, "-s", strconv.Itoa(j.snap))
		}
		if j.filter != "" {
			args = append(args, j.filter)
		}
		return args
	}
}

func dumpcap(j *job, file string) []string {
	args := []string{"dumpcap", "-q", "-i", targetLink, "-B", "64", "-w", file}
	if j.snap > 0 {
		args = append(args, "-s", strconv.Itoa(j.snap))
	}
	if j.filter != "" {
		args = append(args, "-f", j.filter)
	}
	return args
}

// netsniff leaves the machine's settings, and the interrupts' CPUs, as they are.
func netsniff(j *job, file string) []string {
	args := []string{"netsniff-ng", "-i", targetLink, "-o", file, "-s", "-A", "-N", "-Q", "-S", "64MiB"}
	if j.filter != "" {
		args = append(args, "-f", j.filter)
	}
	return args
}

// peer starts another program, which says ready once it captures, and its drops at its end.
func peer(command func(j *job, file string) []string, ready string, drops *regexp.Regexp) func(context.Context, *bench, *job) (running, error) {
	return func(ctx context.Context, b *bench, j *job) (running, error) {
		p := &peerProcess{file: filepath.Join(j.dir, "peer.pcap"), drops: drops}
		p.cmd = roleCommand(ctx, "role-inside", b.captureCPU, []*os.File{b.net.target}, command(j, p.file)...)
		p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
		if err := p.cmd.Start(); err != nil {
			return nil, fmt.Errorf("start %s: %w", command(j, "")[0], err)
		}
		err := await(ctx, "it captures", func() (bool, error) {
			return strings.Contains(p.said.String(), ready), stillRuns(p.cmd.Process.Pid)
		})
		if err != nil {
			kill(p.cmd)
			return nil, fmt.Errorf("start %v: %w: %s", command(j, p.file), err, p.said.String())
		}
		return p, nil
	}
}

type peerProcess struct {
	cmd   *exec.Cmd
	file  string
	said  output
	drops *regexp.Regexp
}

func (p *peerProcess) pid() int { return p.cmd.Process.Pid }

func (p *peerProcess) stop(ctx context.Context) (ended, error) {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return ended{}, fmt.Errorf("stop %s: %w", p.cmd.Args[3], err)
	}
	if err := wait(ctx, p.cmd); err != nil {
		return ended{}, fmt.Errorf("%w: %s", err, p.said.String())
	}
	m := p.drops.FindStringSubmatch(p.said.String())
	if m == nil {
		return ended{}, fmt.Errorf("it does not say how many packets it dropped: %s", p.said.String())
	}
	n, err := strconv.Atoi(m[1])
	return ended{file: p.file, dropped: n, cpu: used(p.cmd)}, err
}

func used(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// output collects what a process says while others read it.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// patience is the longest that anything may take.
const patience = 60 * time.Second

// await waits until done, a few times in a millisecond at first and then less often.
func await(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// stillRuns returns an error for a process that has ended, and was not waited for.
func stillRuns(pid int) error {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return fmt.Errorf("it is gone: %w", err)
	}
	if _, rest, _ := bytes.Cut(b[bytes.LastIndexByte(b, ')')+1:], []byte{' '}); len(rest) > 0 && rest[0] == 'Z' {
		return fmt.Errorf("it has ended")
	}
	return nil
}

// wait waits for a process's end, and ends it when that takes too long.
func wait(ctx context.Context, cmd *exec.Cmd) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("wait for %s: %w", filepath.Base(cmd.Args[0]), err)
	}
	return nil
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
