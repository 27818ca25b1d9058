package trace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// traceJob says what to trace, and where to.
type traceJob struct {
	dir  string // directory of the file
	loop *figures.Loop
	cpu  int // CPU of the tracer; -1 is any
}

// tracing is a running tracer.
type tracing interface {
	// PID of the process that reads the events.
	PID() int
	// stop ends the tracer and returns how many events it reports as written and lost.
	stop(ctx context.Context) (recorded, error)
}

type recorded struct {
	written, lost int
	size          int64 // of the file, in bytes
}

// starters start the tracers. They return when every following call is recorded or counted.
var starters = map[string]func(ctx context.Context, b *host.Env, j *traceJob) (tracing, error){
	figures.TracerBinary: startRecords,
	figures.TracerSonde:  startTrace(false),
	figures.TracerTimed:  startTrace(true),
	figures.TracerMain:   startBpftrace(),
	figures.TracerOpens:  startBpftrace("openat"),
	figures.TracerStrace: startStrace,
}

// probeTrace is a probe that traces the target Pod in the PID namespace of the loops, as on a node.
type probeTrace struct {
	host.Probe
	cmd *exec.Cmd
}

func startTrace(durations bool) func(context.Context, *host.Env, *traceJob) (tracing, error) {
	return func(ctx context.Context, b *host.Env, j *traceJob) (tracing, error) {
		p := &probeTrace{Probe: host.NewProbe(j.dir)}
		config, message := filepath.Join(j.dir, captureconfig.Key), filepath.Join(j.dir, "termination-log")
		text, err := captureconfig.Config{
			UID: host.CaptureUID, Kind: "Trace", Namespace: "bench", Name: "bench", JobID: "bench", Requester: "bench",
			Target: "Pod/bench", TargetNamespace: "bench", MaxBytes: 1 << 40, RingBytes: b.Ring,
			DiskFloor: &captureconfig.Floor{Bytes: 1 << 20},
			Trace:     &captureconfig.Trace{Groups: []string{string(j.loop.Group)}, Durations: durations},
		}.Marshal()
		if err == nil {
			err = errors.Join(os.Mkdir(p.Results, 0o755), os.Mkdir(p.Control, 0o755),
				os.WriteFile(config, []byte(text), 0o644), os.WriteFile(message, nil, 0o644))
		}
		if err != nil {
			return nil, err
		}
		// The loops are in the network namespace of bench, so for the probe the Pod has hostNetwork.
		p.cmd = host.RoleCommand(ctx, "role-host", j.cpu, nil, b.Agent, "probe", "--config", config, "--capture-uid", host.CaptureUID,
			"--pod-uid", host.PodUID, "--pod-name", "bench", "--node", "bench", "--duration", host.Longest, "--host-network",
			"--results", p.Results, "--control", p.Control, "--termination-log", message)
		p.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		p.cmd.Stderr = &p.Said
		if err := p.cmd.Start(); err != nil {
			return nil, fmt.Errorf("start the agent: %w", err)
		}
		p.Agent = p.cmd.Process.Pid
		err = host.Await(ctx, "it traces", func() (bool, error) {
			a, err := p.Account()
			return err == nil && a.State == account.StateCapturing, host.StillRuns(p.Agent)
		})
		if err != nil {
			host.Kill(p.cmd)
			return nil, fmt.Errorf("start the agent: %w: %s", err, p.Said.String())
		}
		return p, nil
	}
}

func (p *probeTrace) stop(ctx context.Context) (recorded, error) {
	if err := os.WriteFile(filepath.Join(p.Control, captureconfig.StopFile), []byte(account.ReasonStopped), 0o644); err != nil {
		return recorded{}, err
	}
	if err := host.Wait(ctx, p.cmd); err != nil {
		return recorded{}, fmt.Errorf("%w: %s", err, p.Said.String())
	}
	a, err := p.Account()
	if err != nil {
		return recorded{}, err
	}
	if !a.AddsUp() || !a.Complete || len(a.Files) != 1 {
		return recorded{}, fmt.Errorf("the account is incomplete: %+v", a)
	}
	return recorded{written: int(a.Events), lost: int(a.LostEvents()), size: a.Bytes}, nil
}

// runHost executes another program that sees itself as process 1. A probe takes the namespaces of
// process 1 for the node's. In a container, bench may not read the namespaces of the machine's process 1.
func runHost(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	if err := unix.Mount("/proc/"+strconv.Itoa(os.Getpid()), "/proc/1", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount over process 1: %w", err)
	}
	return host.RunExec(args)
}

// recordsTrace is a child process of bench that reads binary records.
type recordsTrace struct {
	cmd          *exec.Cmd
	said, report host.Output
}

// startRecords starts the tracer that writes the binary records without encoding them.
func startRecords(ctx context.Context, b *host.Env, j *traceJob) (tracing, error) {
	p := &recordsTrace{cmd: host.RoleCommand(ctx, "role-records", j.cpu, nil, string(j.loop.Group), strconv.FormatInt(b.Ring, 10), filepath.Join(j.dir, "records"))}
	p.cmd.Stdout, p.cmd.Stderr = &p.report, &p.said
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start reading records: %w", err)
	}
	err := host.Await(ctx, "it reads records", func() (bool, error) {
		return strings.Contains(p.said.String(), recordsReady), host.StillRuns(p.PID())
	})
	if err != nil {
		host.Kill(p.cmd)
		return nil, fmt.Errorf("start reading records: %w: %s", err, p.said.String())
	}
	return p, nil
}

func (p *recordsTrace) PID() int { return p.cmd.Process.Pid }

func (p *recordsTrace) stop(ctx context.Context) (recorded, error) {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return recorded{}, fmt.Errorf("stop reading records: %w", err)
	}
	if err := host.Wait(ctx, p.cmd); err != nil {
		return recorded{}, fmt.Errorf("%w: %s", err, p.said.String())
	}
	var r recordsRead
	if err := json.Unmarshal([]byte(p.report.String()), &r); err != nil {
		return recorded{}, fmt.Errorf("read the report %q: %w", p.report.String(), err)
	}
	return recorded{written: r.Written, lost: r.Lost, size: r.Size}, nil
}
