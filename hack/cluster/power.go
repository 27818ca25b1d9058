package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// The commands here stop parts of a cluster and bring them back, for tests of what survives. Everything gets SIGKILL at
// once without a shutdown, as when the power fails.

const apiServer = "kube-apiserver"

func nodeStopCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "node-stop NODE",
		Short: "Kill all processes of a node and its Pods at once, as when the power fails",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCluster(o.layout(), newProgress(cmd.ErrOrStderr()), func(u *up) error { return u.stopNode(args[0]) })
		},
	}
}

func nodeStartCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "node-start NODE",
		Short: "Start a node that node-stop has stopped, and wait until it is Ready",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCluster(o.layout(), newProgress(cmd.ErrOrStderr()), func(u *up) error { return u.restartNode(cmd.Context(), args[0]) })
		},
	}
}

func apiStopCommand(o *options) *cobra.Command {
	var freeze bool
	cmd := &cobra.Command{
		Use:   "api-stop",
		Short: "Kill the API server, or freeze it: it then accepts connections and never answers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withCluster(o.layout(), newProgress(cmd.ErrOrStderr()), func(u *up) error { return u.stopAPI(freeze) })
		},
	}
	cmd.Flags().BoolVar(&freeze, "freeze", false, "SIGSTOP instead of SIGKILL")
	return cmd
}

func apiStartCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "api-start",
		Short: "Bring back the API server that api-stop has killed or frozen, and wait until it is ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withCluster(o.layout(), newProgress(cmd.ErrOrStderr()), func(u *up) error { return u.restartAPI(cmd.Context()) })
		},
	}
}

// withCluster runs a function on the running cluster while no other command changes it.
func withCluster(l layout, p *progress, do func(*up) error) error {
	lock, err := takeLock(l.runLock(), p)
	if err != nil {
		return err
	}
	defer lock.Close()
	s, err := completeState(l)
	if err != nil {
		return err
	}
	return do(&up{spawner: spawner{layout: l, lock: lock}, progress: p, state: s})
}

// stopNode kills a node with everything that runs on it. Its Node object, its disk and its network namespace stay.
func (u *up) stopNode(name string) error {
	if _, err := nodePID(u.layout, name); err != nil {
		return err
	}
	killed, err := killAll(u.layout, name)
	if err != nil {
		return err
	}
	if err := removeCgroups(u.layout, name); err != nil {
		return err
	}
	u.step("node %s stopped, %d processes killed", name, killed)
	return nil
}

// restartNode starts a stopped node on its old disk, with nothing in memory, as after a reboot.
func (u *up) restartNode(ctx context.Context, name string) error {
	c, err := readNode(u.layout, name)
	if err != nil {
		return err
	}
	if _, err := nodePID(u.layout, name); err == nil {
		return fmt.Errorf("node %s runs already: stop it with `cluster node-stop %[1]s` first", name)
	}
	// Its Node object may still have the old Ready condition; times there are whole seconds.
	since := time.Now().Truncate(time.Second).Add(time.Second)
	d, err := startNode(u.spawner, name)
	if err != nil {
		return err
	}
	u.daemons = append(u.daemons, d)
	return u.awaitNode(ctx, c, since)
}

// stopAPI kills or freezes the API server; etcd and the controllers keep running.
func (u *up) stopAPI(freeze bool) error {
	pids, err := programPIDs(u.layout, controlPlanePart, apiServer)
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		return errors.New("the API server does not run: start it with `cluster api-start`")
	}
	signal, done := unix.SIGKILL, "killed"
	if freeze {
		signal, done = unix.SIGSTOP, "frozen"
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, signal); err != nil {
			return fmt.Errorf("signal the API server: %w", err)
		}
	}
	if !freeze {
		if err := awaitDead(u.layout, pids); err != nil {
			return err
		}
	}
	u.step("API server %s", done)
	return nil
}

// awaitDead waits until killed processes are gone and have released their resources, such as ports.
func awaitDead(l layout, pids []int) error {
	for deadline := time.Now().Add(killPatience); ; time.Sleep(killInterval) {
		left, err := clusterProcesses(l)
		if err != nil || !slices.ContainsFunc(pids, func(pid int) bool { return slices.Contains(left, pid) }) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v did not die within %s of SIGKILL", pids, killPatience)
		}
	}
}

// restartAPI thaws or starts the API server.
func (u *up) restartAPI(ctx context.Context) error {
	pids, err := programPIDs(u.layout, controlPlanePart, apiServer)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGCONT); err != nil {
			return fmt.Errorf("signal the API server: %w", err)
		}
	}
	if len(pids) == 0 {
		d, err := u.controlPlane().startAPIServer()
		if err != nil {
			return err
		}
		u.daemons = append(u.daemons, d)
	}
	return u.awaitAPI(ctx)
}

// programPIDs returns the pids of the processes in a part of the cluster that run the program of this name.
func programPIDs(l layout, part, program string) ([]int, error) {
	pids, err := clusterProcesses(l, part)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		// This is empty for a zombie.
		content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		first, _, _ := bytes.Cut(content, []byte{0})
		return err != nil || filepath.Base(string(first)) != program
	}), nil
}
