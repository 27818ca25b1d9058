package trace

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// peerTrace is another program that traces.
type peerTrace struct {
	cmd  *exec.Cmd
	file string
	said host.Output
	// line reports whether a line of its file is an event.
	line func([]byte) bool
}

func (p *peerTrace) PID() int { return p.cmd.Process.Pid }

// startBpftrace prints some of the loop's calls, or all that tracers should record.
func startBpftrace(calls ...string) func(context.Context, *host.Env, *traceJob) (tracing, error) {
	return func(ctx context.Context, b *host.Env, j *traceJob) (tracing, error) {
		var pod unix.Stat_t
		if err := unix.Stat(host.PodCgroup(b.Cgroup), &pod); err != nil {
			return nil, fmt.Errorf("find the number of the Pod's cgroup: %w", err)
		}
		asked := calls
		if len(asked) == 0 {
			asked = j.loop.Asked
		}
		p := &peerTrace{file: filepath.Join(j.dir, "bpftrace.out"), line: func(l []byte) bool { return l[0] >= '0' && l[0] <= '9' }}
		p.cmd = host.RoleCommand(ctx, "role-tracefs", j.cpu, nil, "bpftrace", "-B", "full", "-o", p.file, "-e", script(j.loop, pod.Ino, asked))
		p.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
		if err := p.cmd.Start(); err != nil {
			return nil, fmt.Errorf("start bpftrace: %w", err)
		}
		// It reports that it attaches before it does, and is idle afterwards. The caller waits until it is idle.
		err := host.Await(ctx, "bpftrace attaches", func() (bool, error) {
			return bytes.Contains(host.FileContent(p.file), []byte("Attaching")) || strings.Contains(p.said.String(), "Attaching"), host.StillRuns(p.PID())
		})
		if err != nil {
			host.Kill(p.cmd)
			return nil, fmt.Errorf("start bpftrace: %w: %s", err, p.said.String())
		}
		return p, nil
	}
}

func (p *peerTrace) stop(ctx context.Context) (recorded, error) {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return recorded{}, fmt.Errorf("stop %s: %w", p.cmd.Args[3], err)
	}
	if err := p.repeat(ctx); err != nil {
		return recorded{}, fmt.Errorf("%w: %s", err, p.said.String())
	}
	return p.count()
}

// repeat sends the signal until the process ends: bpftrace 0.17 only notices a signal that interrupts its epoll_wait,
// and none between two calls.
func (p *peerTrace) repeat(ctx context.Context) error {
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Second):
				if host.Quiet(p.PID()) {
					_ = p.cmd.Process.Signal(os.Interrupt)
				}
			}
		}
	}()
	return host.Wait(ctx, p.cmd)
}

// count counts the events in its file.
func (p *peerTrace) count() (recorded, error) {
	b, err := os.ReadFile(p.file)
	if err != nil {
		return recorded{}, fmt.Errorf("count events: %w", err)
	}
	n := 0
	for line := range bytes.Lines(b) {
		if p.line(line) {
			n++
		}
	}
	return recorded{written: n, size: int64(len(b))}, nil
}

// straceTrace is strace. It starts the process that it traces, because its filter (--seccomp-bpf) does not work with a
// running process.
type straceTrace struct {
	peerTrace
	loop *work
}

// startStrace runs strace on the CPU of the loop, because at each traced call one of the two waits for the other.
func startStrace(ctx context.Context, b *host.Env, j *traceJob) (tracing, error) {
	p := &straceTrace{peerTrace: peerTrace{file: filepath.Join(j.dir, "strace.out"), line: func(l []byte) bool { return bytes.Contains(l, []byte(" = ")) }}}
	var err error
	p.loop, err = startLoop(ctx, b, j.loop, b.SendCPU, false, "strace", "-f", "--seccomp-bpf", "-o", p.file, "-e", "trace="+strings.Join(j.loop.Asked, ","))
	if err != nil {
		return nil, err
	}
	p.cmd = p.loop.cmd
	return p, nil
}

// worker returns the traced process.
func (p *straceTrace) worker() *work { return p.loop }

func (p *straceTrace) stop(ctx context.Context) (recorded, error) {
	if err := p.loop.end(ctx); err != nil {
		return recorded{}, err
	}
	return p.count()
}

// runTracefs executes another program after mounting tracefs where the program expects it.
func runTracefs(args []string) error {
	const debugfs, tracefs = "/sys/kernel/debug", "/sys/kernel/debug/tracing"
	if _, err := os.Stat(tracefs + "/events"); err != nil {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("keep mounts apart: %w", err)
		}
		if err := unix.Mount("debugfs", debugfs, "debugfs", 0, ""); err != nil {
			return fmt.Errorf("mount debugfs: %w", err)
		}
		if _, err := os.Stat(tracefs + "/events"); err != nil { // if opening it does not mount it
			if err := unix.Mount("tracefs", tracefs, "tracefs", 0, ""); err != nil {
				return fmt.Errorf("mount tracefs: %w", err)
			}
		}
	}
	return host.RunExec(args)
}

// prints are the bpftrace programs for each call of a loop, with a placeholder for the filter.
var prints = map[string]map[string]string{
	figures.LoopOpen: {
		"openat": `tracepoint:syscalls:sys_enter_openat /%[1]s/ { @name[tid] = args->filename; } ` +
			`tracepoint:syscalls:sys_exit_openat /%[1]s/ { printf("%%d %%s openat %%s %%d\n", pid, comm, str(@name[tid]), args->ret); delete(@name[tid]); }`,
		"close": `tracepoint:syscalls:sys_exit_close /%[1]s/ { printf("%%d %%s close %%d\n", pid, comm, args->ret); }`,
	},
	figures.LoopRead: {
		"read": `tracepoint:syscalls:sys_exit_read /%[1]s/ { printf("%%d %%s read %%d\n", pid, comm, args->ret); }`,
	},
}

// script returns the bpftrace program for some calls of a loop by the processes in a cgroup.
func script(l *figures.Loop, cgroup uint64, calls []string) string {
	var parts []string
	for _, c := range calls {
		parts = append(parts, fmt.Sprintf(prints[l.Name][c], fmt.Sprintf("cgroup == %d", cgroup)))
	}
	return strings.Join(parts, " ")
}
