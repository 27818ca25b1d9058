package main

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
)

// peerTrace is another program that traces.
type peerTrace struct {
	cmd  *exec.Cmd
	file string
	said output
	// line tells which lines of its file are events.
	line func([]byte) bool
}

func (p *peerTrace) pid() int { return p.cmd.Process.Pid }

// startBpftrace prints some of the loop's calls, or all that are asked for.
func startBpftrace(calls ...string) func(context.Context, *bench, *traceJob) (tracing, error) {
	return func(ctx context.Context, b *bench, j *traceJob) (tracing, error) {
		var pod unix.Stat_t
		if err := unix.Stat(podCgroup(b.cgroup), &pod); err != nil {
			return nil, fmt.Errorf("find the number of the Pod's cgroup: %w", err)
		}
		asked := calls
		if len(asked) == 0 {
			asked = j.loop.asked
		}
		p := &peerTrace{file: filepath.Join(j.dir, "bpftrace.out"), line: func(l []byte) bool { return l[0] >= '0' && l[0] <= '9' }}
		p.cmd = roleCommand(ctx, "role-tracefs", j.cpu, nil, "bpftrace", "-B", "full", "-o", p.file, "-e", j.loop.script(pod.Ino, asked))
		p.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
		if err := p.cmd.Start(); err != nil {
			return nil, fmt.Errorf("start bpftrace: %w", err)
		}
		// It says that it attaches before it does, and is quiet when it has: that is awaited by who measures.
		err := await(ctx, "bpftrace attaches", func() (bool, error) {
			return bytes.Contains(fileContent(p.file), []byte("Attaching")) || strings.Contains(p.said.String(), "Attaching"), stillRuns(p.pid())
		})
		if err != nil {
			kill(p.cmd)
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

// repeat waits for its end, and asks for it again where it goes on waiting for events: bpftrace 0.17 ends by a signal
// that interrupts its epoll_wait, and by none that comes between two of them.
func (p *peerTrace) repeat(ctx context.Context) error {
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Second):
				if quiet(p.pid()) {
					_ = p.cmd.Process.Signal(os.Interrupt)
				}
			}
		}
	}()
	return wait(ctx, p.cmd)
}

// count reads its file.
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

// straceTrace is strace, which starts the process that it traces: its filter (--seccomp-bpf) cannot be put upon one
// that is there.
type straceTrace struct {
	peerTrace
	loop *work
}

// startStrace runs it on the CPU of the loop: each call that is traced is waited for by one of both.
func startStrace(ctx context.Context, b *bench, j *traceJob) (tracing, error) {
	p := &straceTrace{peerTrace: peerTrace{file: filepath.Join(j.dir, "strace.out"), line: func(l []byte) bool { return bytes.Contains(l, []byte(" = ")) }}}
	var err error
	p.loop, err = b.startLoop(ctx, j.loop, b.sendCPU, false, "strace", "-f", "--seccomp-bpf", "-o", p.file, "-e", "trace="+strings.Join(j.loop.asked, ","))
	if err != nil {
		return nil, err
	}
	p.cmd = p.loop.cmd
	return p, nil
}

// worker is what is traced.
func (p *straceTrace) worker() *work { return p.loop }

func (p *straceTrace) stop(ctx context.Context) (recorded, error) {
	if err := p.loop.end(ctx); err != nil {
		return recorded{}, err
	}
	return p.count()
}

// runTracefs becomes another program that finds the kernel's description of its tracepoints where it looks for it.
func runTracefs(args []string) error {
	const debugfs, tracefs = "/sys/kernel/debug", "/sys/kernel/debug/tracing"
	if _, err := os.Stat(tracefs + "/events"); err != nil {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("keep mounts apart: %w", err)
		}
		if err := unix.Mount("debugfs", debugfs, "debugfs", 0, ""); err != nil {
			return fmt.Errorf("mount debugfs: %w", err)
		}
		if _, err := os.Stat(tracefs + "/events"); err != nil { // where it is not mounted by being looked at
			if err := unix.Mount("tracefs", tracefs, "tracefs", 0, ""); err != nil {
				return fmt.Errorf("mount tracefs: %w", err)
			}
		}
	}
	return runExec(args)
}
