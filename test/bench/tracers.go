package main

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
)

// traceJob is what a tracer is to do.
type traceJob struct {
	dir  string // where the file goes
	loop *loop
	cpu  int // of the tracer; -1 is any
}

// tracing is a tracer that is under way.
type tracing interface {
	// pid of the process that reads.
	pid() int
	// stop ends it and returns how many events it has written and how many it says that it has lost.
	stop(ctx context.Context) (recorded, error)
}

type recorded struct {
	written, lost int
	size          int64 // of the file, in bytes
}

// tracer is a row of the table: a way to see system calls.
type tracer struct {
	name  string
	label string
	// one turn in so many is made, of those that a quick one is measured at.
	slow int
	// exact says that it counts every event: what it has written and lost is what the loop has made.
	exact bool
	// bystander says that what it costs a process that is not traced is measured, too.
	bystander bool
	// loop, if not empty, is the only one that it is for.
	loop string
	// start returns when every further call is recorded or counted.
	start func(ctx context.Context, b *bench, j *traceJob) (tracing, error)
}

// Names that other parts of bench ask for.
const (
	tracerBinary = "sonde-binary"
	tracerSonde  = "sonde"
	tracerTimed  = "sonde-timed"
	tracerMain   = "bpftrace" // the peer that goals speak of
	tracerOpens  = "bpftrace-openat"
	tracerStrace = "strace"
)

// tracers in the order in which they take turns.
var tracers = []tracer{
	{name: tracerBinary, label: "Sonde, binary", slow: 1, exact: true, start: startRecords},
	{name: tracerSonde, label: "Sonde, NDJSON", slow: 1, exact: true, bystander: true, start: startTrace(false)},
	{name: tracerTimed, label: "Sonde, NDJSON with durations", slow: 1, exact: true, bystander: true, start: startTrace(true)},
	{name: tracerMain, label: "bpftrace printf", slow: 20, bystander: true, start: startBpftrace()},
	{name: tracerOpens, label: "bpftrace printf, openat alone", slow: 20, loop: loopOpen, start: startBpftrace("openat")},
	{name: tracerStrace, label: "strace --seccomp-bpf", slow: 50, start: startStrace},
}

func tracerByName(name string) *tracer {
	for i := range tracers {
		if tracers[i].name == name {
			return &tracers[i]
		}
	}
	return nil
}

// of tells how many events of a loop's turns a tracer is asked for.
func (t *tracer) of(l *loop) int {
	if t.name == tracerOpens {
		return 1
	}
	return len(l.asked)
}

// probeTrace is the agent's probe, tracing the target Pod as on a node: in the process namespace that the loops are in.
type probeTrace struct {
	sondeProcess
	cmd *exec.Cmd
}

func startTrace(durations bool) func(context.Context, *bench, *traceJob) (tracing, error) {
	return func(ctx context.Context, b *bench, j *traceJob) (tracing, error) {
		p := &probeTrace{sondeProcess: sondeProcess{results: filepath.Join(j.dir, "results"), control: filepath.Join(j.dir, "control")}}
		config, message := filepath.Join(j.dir, captureconfig.Key), filepath.Join(j.dir, "termination-log")
		text, err := captureconfig.Config{
			UID: captureUID, Kind: "Trace", Namespace: "bench", Name: "bench", JobID: "bench", Requester: "bench",
			Target: "Pod/bench", TargetNamespace: "bench", MaxBytes: 1 << 40, RingBytes: b.ring,
			DiskFloor: &captureconfig.Floor{Bytes: 1 << 20},
			Trace:     &captureconfig.Trace{Groups: []string{string(j.loop.group)}, Durations: durations},
		}.Marshal()
		if err == nil {
			err = errors.Join(os.Mkdir(p.results, 0o755), os.Mkdir(p.control, 0o755),
				os.WriteFile(config, []byte(text), 0o644), os.WriteFile(message, nil, 0o644))
		}
		if err != nil {
			return nil, err
		}
		// The loops are in the network namespace of bench: for the probe that is a Pod's with hostNetwork.
		p.cmd = roleCommand(ctx, "role-host", j.cpu, nil, b.agent, "probe", "--config", config, "--capture-uid", captureUID,
			"--pod-uid", podUID, "--pod-name", "bench", "--node", "bench", "--duration", longest, "--host-network",
			"--results", p.results, "--control", p.control, "--termination-log", message)
		p.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		p.cmd.Stderr = &p.said
		if err := p.cmd.Start(); err != nil {
			return nil, fmt.Errorf("start the agent: %w", err)
		}
		p.agent = p.cmd.Process.Pid
		err = await(ctx, "it traces", func() (bool, error) {
			a, err := p.account()
			return err == nil && a.State == account.StateCapturing, stillRuns(p.agent)
		})
		if err != nil {
			kill(p.cmd)
			return nil, fmt.Errorf("start the agent: %w: %s", err, p.said.String())
		}
		return p, nil
	}
}

func (p *probeTrace) stop(ctx context.Context) (recorded, error) {
	if err := os.WriteFile(filepath.Join(p.control, captureconfig.StopFile), []byte(account.ReasonStopped), 0o644); err != nil {
		return recorded{}, err
	}
	if err := wait(ctx, p.cmd); err != nil {
		return recorded{}, fmt.Errorf("%w: %s", err, p.said.String())
	}
	a, err := p.account()
	if err != nil {
		return recorded{}, err
	}
	if !a.AddsUp() || !a.Complete || len(a.Files) != 1 {
		return recorded{}, fmt.Errorf("the account is not whole: %+v", a)
	}
	return recorded{written: int(a.Events), lost: int(a.LostEvents()), size: a.Bytes}, nil
}

// runHost becomes another program, for which itself is process 1: where bench is a guest itself, as in a container, it may
// not ask the machine's for its namespaces, which a probe does to know the node's.
func runHost(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	if err := unix.Mount("/proc/"+strconv.Itoa(os.Getpid()), "/proc/1", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("stand in for process 1: %w", err)
	}
	return runExec(args)
}

// recordsTrace is a reader of the binary records alone, by a child of bench.
type recordsTrace struct {
	cmd          *exec.Cmd
	said, report output
}

// startRecords has the records read and written as they are, with nothing made of them.
func startRecords(ctx context.Context, b *bench, j *traceJob) (tracing, error) {
	p := &recordsTrace{cmd: roleCommand(ctx, "role-records", j.cpu, nil, string(j.loop.group), strconv.FormatInt(b.ring, 10), filepath.Join(j.dir, "records"))}
	p.cmd.Stdout, p.cmd.Stderr = &p.report, &p.said
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start reading records: %w", err)
	}
	err := await(ctx, "it reads records", func() (bool, error) {
		return strings.Contains(p.said.String(), recordsReady), stillRuns(p.pid())
	})
	if err != nil {
		kill(p.cmd)
		return nil, fmt.Errorf("start reading records: %w: %s", err, p.said.String())
	}
	return p, nil
}

func (p *recordsTrace) pid() int { return p.cmd.Process.Pid }

func (p *recordsTrace) stop(ctx context.Context) (recorded, error) {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return recorded{}, fmt.Errorf("stop reading records: %w", err)
	}
	if err := wait(ctx, p.cmd); err != nil {
		return recorded{}, fmt.Errorf("%w: %s", err, p.said.String())
	}
	var r recordsRead
	if err := json.Unmarshal([]byte(p.report.String()), &r); err != nil {
		return recorded{}, fmt.Errorf("read the report %q: %w", p.report.String(), err)
	}
	return recorded{written: r.Written, lost: r.Lost, size: r.Size}, nil
}
