package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// roles are what bench's own children do: the same binary, started on a CPU and in a network namespace of its own.
var roles = map[string]func(args []string) error{
	"role-flood":   runFlood,
	"role-stream":  runStream,
	"role-node":    runNode,
	"role-hold":    runHold,
	"role-host":    runHost,
	"role-exec":    runExec,
	"role-inside":  runInside,
	"role-loop":    runLoop,
	"role-records": runRecords,
	"role-tracefs": runTracefs,
}

// A namespace belongs to a thread, and so does the CPU. What /proc/PID says of a process is its first thread's, which the main
// goroutine surely runs on only if it is locked before main.
func init() { runtime.LockOSThread() }

// runRole runs a child's part: the arguments are role, CPU (or -1), and the role's own.
func runRole(args []string) (ran bool, err error) {
	if len(args) < 2 || roles[args[0]] == nil {
		runtime.UnlockOSThread()
		return false, nil
	}
	cpu, err := strconv.Atoi(args[1])
	if err != nil {
		return true, fmt.Errorf("read CPU: %w", err)
	}
	if cpu < 0 {
		return true, roles[args[0]](args[2:])
	}
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return true, fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	// Anew, so that every thread of it is pinned.
	args = append([]string{os.Args[0], args[0], "-1"}, args[2:]...)
	return true, fmt.Errorf("execute itself: %w", syscall.Exec("/proc/self/exe", args, os.Environ()))
}

// netnsFD is where a child finds the network namespace that it is to work in, streamFD where a stream's other end is.
const (
	netnsFD  = 3
	streamFD = 4
)

func enter(fd int) error {
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

// roleCommand is the command of a child, which dies with bench, however that ends.
func roleCommand(ctx context.Context, role string, cpu int, namespaces []*os.File, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{role, strconv.Itoa(cpu)}, args...)...)
	cmd.ExtraFiles = namespaces
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// runInside becomes another program in the namespace.
func runInside(args []string) error {
	if err := enter(netnsFD); err != nil {
		return err
	}
	unix.CloseOnExec(netnsFD)
	return runExec(args)
}

// runExec becomes another program.
func runExec(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("%w: run make deps", err)
	}
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, args, os.Environ()))
}
