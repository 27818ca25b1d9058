package host

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespaces and CPU affinity belong to a thread. /proc/PID shows only the first thread's. The main
// goroutine is certain to run on that thread only if it is locked before main.
func init() { runtime.LockOSThread() }

// RunRole runs the role of a child process. The arguments are the role, a CPU (or -1), and the role's own. ran is
// false if they name no role.
func RunRole(args []string, roles map[string]func(args []string) error) (ran bool, err error) {
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
	// Execute the program again, so that all of its threads are pinned.
	args = append([]string{os.Args[0], args[0], "-1"}, args[2:]...)
	return true, fmt.Errorf("execute itself: %w", syscall.Exec("/proc/self/exe", args, os.Environ()))
}

// NetnsFD is the file descriptor of a child's network namespace, and StreamFD of the other end's of a stream.
const (
	NetnsFD  = 3
	StreamFD = 4
)

// Enter moves the calling thread into a network namespace.
func Enter(fd int) error {
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

// InNamespace runs fn on a thread of its own in a network namespace. Sockets that fn makes stay there.
func InNamespace(fd int, fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if err := Enter(fd); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

// InsideCommand returns the command of a program all of whose threads are in a network namespace.
func InsideCommand(ctx context.Context, namespace *os.File, program string, args ...string) *exec.Cmd {
	return RoleCommand(ctx, "role-inside", -1, []*os.File{namespace}, append([]string{program}, args...)...)
}

// RoleCommand returns the command of a child process. The kernel kills it when bench ends.
func RoleCommand(ctx context.Context, role string, cpu int, namespaces []*os.File, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{role, strconv.Itoa(cpu)}, args...)...)
	cmd.ExtraFiles = namespaces
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// runInside executes another program in the namespace.
func runInside(args []string) error {
	if err := Enter(NetnsFD); err != nil {
		return err
	}
	unix.CloseOnExec(NetnsFD)
	return RunExec(args)
}

// RunExec executes another program.
func RunExec(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("%w: run make deps", err)
	}
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, args, os.Environ()))
}

// Roles are the roles of this package.
var Roles = map[string]func(args []string) error{
	"role-exec":   RunExec,
	"role-inside": runInside,
}

// MergeRoles returns one map with all roles.
func MergeRoles(all ...map[string]func(args []string) error) map[string]func(args []string) error {
	merged := map[string]func(args []string) error{}
	for _, roles := range all {
		maps.Copy(merged, roles)
	}
	return merged
}
