package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/agents/trace/decode"
)

// loop is a few system calls that a process makes again and again: what tracers are measured at.
type loop struct {
	name  string
	label string
	// calls of one turn; asked are those that every tracer is asked for, and all that group has of them.
	calls int
	asked []string
	group decode.Group
	// own are events of the group that are none of the loop's: of being told what to do, and of answering.
	own int
	// times is how many turns it does where the slowest loop does one.
	times int
	// prints is what bpftrace is asked, with a place for its filter, for each of asked.
	prints map[string]string
	// turns does so many, and says whether each went well.
	turns func(w *worker, n int) bool
}

// Loops.
const (
	loopOpen = "trace-open"
	loopRead = "trace-read"
)

var loops = []loop{
	{
		name: loopOpen, label: "openat, read, close", calls: 3, asked: []string{"openat", "close"}, group: decode.GroupFile, times: 1,
		prints: map[string]string{
			"openat": `tracepoint:syscalls:sys_enter_openat /%[1]s/ { @name[tid] = args->filename; } ` +
				`tracepoint:syscalls:sys_exit_openat /%[1]s/ { printf("%%d %%s openat %%s %%d\n", pid, comm, str(@name[tid]), args->ret); delete(@name[tid]); }`,
			"close": `tracepoint:syscalls:sys_exit_close /%[1]s/ { printf("%%d %%s close %%d\n", pid, comm, args->ret); }`,
		},
		turns: (*worker).opens,
	},
	{
		name: loopRead, label: "read of a byte", calls: 1, asked: []string{"read"}, group: decode.GroupIO, own: 2, times: 4,
		prints: map[string]string{
			"read": `tracepoint:syscalls:sys_exit_read /%[1]s/ { printf("%%d %%s read %%d\n", pid, comm, args->ret); }`,
		},
		turns: (*worker).reads,
	},
}

func loopByName(name string) *loop {
	for i := range loops {
		if loops[i].name == name {
			return &loops[i]
		}
	}
	return nil
}

// script asks bpftrace for some of the loop's calls, of the processes in a cgroup.
func (l *loop) script(cgroup uint64, calls []string) string {
	var parts []string
	for _, c := range calls {
		parts = append(parts, fmt.Sprintf(l.prints[c], fmt.Sprintf("cgroup == %d", cgroup)))
	}
	return strings.Join(parts, " ")
}

// work is a worker as bench has it.
type work struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	said output
}

// startLoop starts a worker on a CPU, or on any where that is -1. It belongs to the target Pod where inside. before is
// a program that starts it, with its arguments, on the same CPU.
func (b *bench) startLoop(ctx context.Context, l *loop, cpu int, inside bool, before ...string) (*work, error) {
	file := filepath.Join(b.memory, "loop")
	if err := os.WriteFile(file, []byte("a"), 0o644); err != nil {
		return nil, fmt.Errorf("make the loop's file: %w", err)
	}
	w := &work{cmd: roleCommand(ctx, "role-loop", cpu, nil, l.name, file)}
	if len(before) > 0 {
		own, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		w.cmd = roleCommand(ctx, "role-exec", cpu, nil, append(before, own, "role-loop", "-1", l.name, file)...)
	}
	// A call that a signal interrupts is made again, and counts twice; Go interrupts itself.
	w.cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1")
	w.cmd.Stderr = &w.said
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the loop: %w", err)
	}
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the loop: %w", err)
	}
	w.out = bufio.NewReader(out)
	if _, err = w.answer(ctx); err == nil && inside {
		err = os.WriteFile(filepath.Join(podCgroup(b.cgroup), "cgroup.procs"), []byte(strconv.Itoa(w.pid())), 0)
	}
	if err != nil {
		w.kill()
		return nil, fmt.Errorf("start the loop: %w", err)
	}
	return w, nil
}

func (w *work) pid() int { return w.cmd.Process.Pid }

// do has so many turns done and returns how long they took.
func (w *work) do(ctx context.Context, o order) (time.Duration, error) {
	if err := w.tell(o); err != nil {
		return 0, err
	}
	return w.answer(ctx)
}

func (w *work) tell(o order) error {
	if _, err := io.WriteString(w.in, o.String()); err != nil {
		return fmt.Errorf("tell the loop to run: %w: %s", err, w.said.String())
	}
	return nil
}

// answer waits for it, and kills a worker from which none comes.
func (w *work) answer(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = w.cmd.Process.Kill() })()
	line, err := w.out.ReadBytes('\n')
	if err != nil {
		return 0, fmt.Errorf("wait for the loop: %w: %s", errors.Join(err, ctx.Err()), w.said.String())
	}
	var a worked
	if err := json.Unmarshal(line, &a); err != nil {
		return 0, fmt.Errorf("read the loop's answer %q: %w", line, err)
	}
	return a.Wall, nil
}

// end ends it, and with it the program that started it.
func (w *work) end(ctx context.Context) error {
	if err := w.in.Close(); err != nil {
		return fmt.Errorf("end the loop: %w", err)
	}
	if err := wait(ctx, w.cmd); err != nil {
		return fmt.Errorf("end the loop: %w: %s", err, w.said.String())
	}
	return nil
}

// kill may follow end.
func (w *work) kill() {
	if w.cmd.ProcessState == nil {
		kill(w.cmd)
	}
}
