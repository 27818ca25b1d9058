package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Used returns the CPU time of a process that has ended.
func Used(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// Output collects the output of a process while others read it.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends p.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Patience is the timeout of all waiting.
const Patience = 60 * time.Second

// Await polls done until it returns true or an error, at first every millisecond and then less often.
func Await(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
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

// StillRuns returns an error if a process has ended.
func StillRuns(pid int) error {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return fmt.Errorf("it is gone: %w", err)
	}
	if _, rest, _ := bytes.Cut(b[bytes.LastIndexByte(b, ')')+1:], []byte{' '}); len(rest) > 0 && rest[0] == 'Z' {
		return fmt.Errorf("it has ended")
	}
	return nil
}

// Wait waits until a process has ended, and kills it after Patience.
func Wait(ctx context.Context, cmd *exec.Cmd) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("wait for %s: %w", filepath.Base(cmd.Args[0]), err)
	}
	return nil
}

// Kill kills a process and waits for it.
func Kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// KillPID kills a process after a failed run. A process that has ended is no error.
func KillPID(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end process: %w", err)
	}
	return nil
}

// Talk runs a child process of bench and decodes the JSON that it prints.
func Talk(ctx context.Context, cmd *exec.Cmd, said any) error {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start sender: %w", err)
	}
	if err := Wait(ctx, cmd); err != nil {
		return fmt.Errorf("send: %w: %s", err, errs.String())
	}
	if err := json.Unmarshal(out.Bytes(), said); err != nil {
		return fmt.Errorf("read the sender's report %q: %w", out.String(), err)
	}
	return nil
}

// Settled waits until a process has been idle for several polls.
func Settled(ctx context.Context, pid int) error {
	const (
		polls = 8
		idle  = 500 * time.Microsecond // CPU time of waking up without work
	)
	last, since := ProcessTime(pid), 0
	return Await(ctx, "the capture has caught up", func() (bool, error) {
		now := ProcessTime(pid)
		since++
		if now-last > idle || !Quiet(pid) {
			since = 0
		}
		last = now
		return since >= polls, StillRuns(pid)
	})
}
