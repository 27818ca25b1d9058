package capture

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// job says what to capture, and where to.
type job struct {
	dir    string // directory of the file
	filter string // empty matches everything
	snap   int    // bytes of a packet to keep; 0 is the engine's default
	// processes makes Sonde name the process of each packet.
	processes bool
	// namespace of the target, for Sonde alone; nil is the Env's.
	namespace *os.File
}

// running is a running capture.
type running interface {
	// PID of the process that captures.
	PID() int
	// stop ends the capture, waits for the process, and returns its file, drops and CPU time.
	stop(ctx context.Context) (ended, error)
}

type ended struct {
	file    string
	dropped int
	cpu     time.Duration // user and system time since the start of the process
}

// starters start the engines, except EngineNone. They return when every following packet is captured or counted.
var starters = map[string]func(ctx context.Context, b *host.Env, j *job) (running, error){
	figures.EngineBPF:      sondeBy(captureconfig.EngineBPF),
	figures.EngineAFPacket: sondeBy(captureconfig.EngineAFPacket),
	figures.EngineMain:     peer(tcpdump("-B", "65536"), "listening on", tcpdumpDrops),
	"tcpdump":              peer(tcpdump(), "listening on", tcpdumpDrops),
	"dumpcap":              peer(dumpcap, "File:", dumpcapDrops),
	"netsniff-ng":          peer(netsniff, "Running!", netsniffDrops),
}

var (
	tcpdumpDrops  = regexp.MustCompile(`(\d+) packets? dropped by kernel`)
	netsniffDrops = regexp.MustCompile(`(\d+)\s+packets failed filter \(out of space\)`)
	dumpcapDrops  = regexp.MustCompile(`Packets received/dropped on interface '[^']*': \d+/(\d+) `)
)

func tcpdump(more ...string) func(j *job, file string) []string {
	return func(j *job, file string) []string {
		args := append([]string{"tcpdump", "-i", host.TargetLink, "-n", "-Z", "root", "-w", file}, more...)
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
	args := []string{"dumpcap", "-q", "-i", host.TargetLink, "-B", "64", "-w", file}
	if j.snap > 0 {
		args = append(args, "-s", strconv.Itoa(j.snap))
	}
	if j.filter != "" {
		args = append(args, "-f", j.filter)
	}
	return args
}

// netsniff keeps the settings of the machine and the CPUs of interrupts.
func netsniff(j *job, file string) []string {
	args := []string{"netsniff-ng", "-i", host.TargetLink, "-o", file, "-s", "-A", "-N", "-Q", "-S", "64MiB"}
	if j.filter != "" {
		args = append(args, "-f", j.filter)
	}
	return args
}

// peer starts another program, which prints ready when it captures, and its drops at its end.
func peer(command func(j *job, file string) []string, ready string, drops *regexp.Regexp) func(context.Context, *host.Env, *job) (running, error) {
	return func(ctx context.Context, b *host.Env, j *job) (running, error) {
		p := &peerProcess{file: filepath.Join(j.dir, "peer.pcap"), drops: drops}
		p.cmd = host.RoleCommand(ctx, "role-inside", b.CaptureCPU, []*os.File{b.Net.Target}, command(j, p.file)...)
		p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
		if err := p.cmd.Start(); err != nil {
			return nil, fmt.Errorf("start %s: %w", command(j, "")[0], err)
		}
		err := host.Await(ctx, "it captures", func() (bool, error) {
			return strings.Contains(p.said.String(), ready), host.StillRuns(p.cmd.Process.Pid)
		})
		if err != nil {
			host.Kill(p.cmd)
			return nil, fmt.Errorf("start %v: %w: %s", command(j, p.file), err, p.said.String())
		}
		return p, nil
	}
}

type peerProcess struct {
	cmd   *exec.Cmd
	file  string
	said  host.Output
	drops *regexp.Regexp
}

func (p *peerProcess) PID() int { return p.cmd.Process.Pid }

func (p *peerProcess) stop(ctx context.Context) (ended, error) {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return ended{}, fmt.Errorf("stop %s: %w", p.cmd.Args[3], err)
	}
	if err := host.Wait(ctx, p.cmd); err != nil {
		return ended{}, fmt.Errorf("%w: %s", err, p.said.String())
	}
	m := p.drops.FindStringSubmatch(p.said.String())
	if m == nil {
		return ended{}, fmt.Errorf("it does not say how many packets it dropped: %s", p.said.String())
	}
	n, err := strconv.Atoi(m[1])
	return ended{file: p.file, dropped: n, cpu: host.Used(p.cmd)}, err
}
