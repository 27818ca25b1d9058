package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// nodeConfig is the configuration of a node. `up` writes it into the node's directory, and the node's own processes
// read it.
type nodeConfig struct {
	Name    string `json:"name"`
	IP      string `json:"ip"`
	PodCIDR string `json:"podCIDR"`
	// Base and Instance are the cluster's layout, Binaries is the set of programs.
	Base     string `json:"base"`
	Instance int    `json:"instance,omitempty"`
	Binaries string `json:"binaries"`
	// Runc and CNIPlugins are the paths of programs from the machine's packages.
	Runc       string `json:"runc"`
	CNIPlugins string `json:"cniPlugins"`
}

func (c nodeConfig) layout() layout { return layout{base: c.Base, instance: c.Instance} }

func nodeConfigPath(l layout, name string) string { return filepath.Join(l.node(name), "node.json") }

// writeNode prepares the directory of a node. It holds everything that must be on disk: images and files of containers,
// volumes of Pods (including emptyDirs) and logs.
func writeNode(c nodeConfig) error {
	dir := c.layout().node(c.Name)
	for _, d := range diskDirs {
		if err := os.MkdirAll(filepath.Join(dir, d.name), 0o755); err != nil {
			return fmt.Errorf("make the directory of node %s: %w", c.Name, err)
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode the configuration of node %s: %w", c.Name, err)
	}
	if err := os.WriteFile(nodeConfigPath(c.layout(), c.Name), b, 0o600); err != nil {
		return fmt.Errorf("write the configuration of node %s: %w", c.Name, err)
	}
	return nil
}

func readNode(l layout, name string) (nodeConfig, error) {
	var c nodeConfig
	b, err := os.ReadFile(nodeConfigPath(l, name))
	if errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("the cluster has no node %q", name)
	}
	if err != nil {
		return c, fmt.Errorf("read the configuration of node %s: %w", name, err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("parse %s: %w", nodeConfigPath(l, name), err)
	}
	return c, nil
}

// startNode starts a node whose directory writeNode has prepared.
func startNode(s spawner, name string) (*daemon, error) {
	argv, err := s.ownCommand("node-run", name)
	if err != nil {
		return nil, err
	}
	return s.spawn(name, place{cgroup: name, netns: s.netns(name)}, argv...)
}

// nodeRunCommand is the hidden process that holds a node. It starts the node's first process in new namespaces and ends
// with it. If this process dies, the kernel kills the node.
func nodeRunCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:    "node-run NODE",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return runNode(o.layout(), args[0])
		},
	}
}

func runNode(l layout, name string) error {
	argv, err := l.ownCommand("node-init", name)
	if err != nil {
		return err
	}
	// The kernel sends Pdeathsig when the starting thread ends, so stay on one thread.
	runtime.LockOSThread()
	// No context: the node lives until its holder is killed.
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWCGROUP,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the first process of node %s: %w", name, err)
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	if err := os.WriteFile(l.nodePID(name), []byte(pid), 0o600); err != nil {
		return fmt.Errorf("write the pid of node %s: %w", name, err)
	}
	if err := leaveNodeCgroup(l); err != nil {
		return err
	}
	return cmd.Wait()
}

// leaveNodeCgroup moves the holder of a node out of the node's cgroup on a v2 machine, where a cgroup that delegates
// controllers may hold no process itself. It is untested, because the test machines have v1.
func leaveNodeCgroup(l layout) error {
	if unified, err := unifiedCgroups(); err != nil || !unified {
		return err
	}
	return joinCgroup(l, "holders")
}

// nodePID returns the machine's pid of a node's first process.
func nodePID(l layout, name string) (int, error) {
	if _, err := readNode(l, name); err != nil {
		return 0, err
	}
	b, err := os.ReadFile(l.nodePID(name))
	if err != nil {
		return 0, fmt.Errorf("node %s is not running: %w", name, err)
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", l.nodePID(name), err)
	}
	// The kernel reuses pids: trust this one only if it is in the node's cgroup.
	cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.Contains(string(cgroups), "/"+filepath.Join(l.name(), name)) {
		return 0, fmt.Errorf("node %s is not running: its first process %d is gone; see %s", name, pid, l.log(name))
	}
	return pid, nil
}

// nodeCommand returns a command that runs argv inside a node.
func nodeCommand(ctx context.Context, l layout, node string, argv ...string) (*exec.Cmd, error) {
	enter, err := l.ownCommand("node-exec", node, "--")
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, enter[0], append(enter[1:], argv...)...), nil
}

// runQuietly runs a command and shows its output only if it fails.
func runQuietly(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
