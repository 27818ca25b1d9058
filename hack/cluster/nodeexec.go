package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// exitStatus is the error of a command that only passes on its exit status.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func nodeExecCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "node-exec NODE -- PROGRAM ARGS...",
		Short: "Run a program as root inside a node (its mounts, processes and network)",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return nodeExec(cmd.Context(), o.layout(), args[0], args[1:])
		},
	}
}

// nodeExec runs argv in all namespaces of a node and in its cgroup, so that `down` ends it too. It must run on a locked
// thread.
func nodeExec(ctx context.Context, l layout, node string, argv []string) error {
	c, err := readNode(l, node)
	if err != nil {
		return errors.Join(err, notUp(l))
	}
	pid, err := nodePID(l, node)
	if err != nil {
		return err
	}
	if err := joinNodeCgroup(l, node); err != nil {
		return err
	}
	if err := enterProcess(pid); err != nil {
		return fmt.Errorf("enter node %s: %w", node, err)
	}
	env := append(daemonEnv(c.Binaries), "TERM="+os.Getenv("TERM"))
	for _, e := range env {
		// LookPath below searches the node's programs.
		if path, ok := cutEnv(e, "PATH"); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return fmt.Errorf("set PATH: %w", err)
			}
		}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// Pass the end of this command on as SIGTERM or SIGINT; the program may take its time.
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return passStatus(cmd.Run())
}

func cutEnv(entry, name string) (string, bool) {
	if len(entry) > len(name) && entry[:len(name)] == name && entry[len(name)] == '=' {
		return entry[len(name)+1:], true
	}
	return "", false
}

// passStatus turns the failure of a program into its exit status.
func passStatus(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exitStatus(exit.ExitCode())
	}
	return err
}

// joinNodeCgroup joins the cgroup of a node's own processes. On v2 that is a
// child of the node's cgroup, see mountUnified.
func joinNodeCgroup(l layout, node string) error {
	unified, err := unifiedCgroups()
	if err != nil {
		return err
	}
	if unified {
		return joinCgroup(l, filepath.Join(node, "init"))
	}
	return joinCgroup(l, node)
}

// enterProcess moves the calling thread into the namespaces of a process. The pid namespace takes effect only for
// children.
func enterProcess(pid int) error {
	kinds := []struct {
		name string
		flag int
	}{
		{"cgroup", unix.CLONE_NEWCGROUP},
		{"ipc", unix.CLONE_NEWIPC},
		{"uts", unix.CLONE_NEWUTS},
		{"net", unix.CLONE_NEWNET},
		{"pid", unix.CLONE_NEWPID},
		// Last, because it changes /proc.
		{"mnt", unix.CLONE_NEWNS},
	}
	var files []*os.File
	for _, k := range kinds {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, k.name))
		if err != nil {
			return fmt.Errorf("open a namespace: %w", err)
		}
		defer f.Close()
		files = append(files, f)
	}
	// A thread may change its mount namespace only if it shares its root and working directory with no other thread.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the working directory: %w", err)
	}
	for i, k := range kinds {
		if err := unix.Setns(int(files[i].Fd()), k.flag); err != nil {
			return fmt.Errorf("enter the %s namespace: %w", k.name, err)
		}
	}
	return nil
}
