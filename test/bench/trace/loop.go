package trace

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
	"time"

	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// work is a running worker.
type work struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	said host.Output
}

// startLoop starts a worker on a CPU, or on any CPU if that is -1. With inside, it belongs to the target Pod. before is
// a program with its arguments that starts the worker on the same CPU.
func startLoop(ctx context.Context, b *host.Env, l *figures.Loop, cpu int, inside bool, before ...string) (*work, error) {
	file := filepath.Join(b.Memory, "loop")
	if err := os.WriteFile(file, []byte("a"), 0o644); err != nil {
		return nil, fmt.Errorf("make the loop's file: %w", err)
	}
	w := &work{cmd: host.RoleCommand(ctx, "role-loop", cpu, nil, l.Name, file)}
	if len(before) > 0 {
		own, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		w.cmd = host.RoleCommand(ctx, "role-exec", cpu, nil, append(before, own, "role-loop", "-1", l.Name, file)...)
	}
	// A call that a signal interrupts is repeated and counts twice, so Go must not send signals to preempt itself.
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
		err = os.WriteFile(filepath.Join(host.PodCgroup(b.Cgroup), "cgroup.procs"), []byte(strconv.Itoa(w.PID())), 0)
	}
	if err != nil {
		w.kill()
		return nil, fmt.Errorf("start the loop: %w", err)
	}
	return w, nil
}

func (w *work) PID() int { return w.cmd.Process.Pid }

// do runs the turns of an order and returns their time.
func (w *work) do(ctx context.Context, o order) (time.Duration, error) {
	if err := w.send(o); err != nil {
		return 0, err
	}
	return w.answer(ctx)
}

func (w *work) send(o order) error {
	if _, err := io.WriteString(w.in, o.String()); err != nil {
		return fmt.Errorf("send the order to the loop: %w: %s", err, w.said.String())
	}
	return nil
}

// answer waits for the answer to an order. It kills a worker that does not answer.
func (w *work) answer(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, host.Patience)
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

// end ends the worker, and the program that started it.
func (w *work) end(ctx context.Context) error {
	if err := w.in.Close(); err != nil {
		return fmt.Errorf("end the loop: %w", err)
	}
	if err := host.Wait(ctx, w.cmd); err != nil {
		return fmt.Errorf("end the loop: %w: %s", err, w.said.String())
	}
	return nil
}

// kill kills the worker. It may follow end.
func (w *work) kill() {
	if w.cmd.ProcessState == nil {
		host.Kill(w.cmd)
	}
}
