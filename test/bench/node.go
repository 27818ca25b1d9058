package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A node is what the agent's probe believes to run on: a process namespace with one Pod, whose process is in a cgroup
// that is named as a kubelet names it, and in the target's network namespace.
const (
	podUID      = "00000000-0000-4000-8000-00000000be4c"
	containerID = "00000000000000000000000000000000000000000000000000000000000be4c0"
)

// cgroupRoot is the hierarchy of version 2, or where there is none, the pids hierarchy of version 1.
func cgroupRoot() string {
	const root = "/sys/fs/cgroup"
	for _, v1 := range []string{"unified", "pids"} {
		if _, err := os.Stat(filepath.Join(root, v1, "cgroup.procs")); err == nil {
			return filepath.Join(root, v1)
		}
	}
	return root
}

// newCgroup makes the Pod's cgroup and returns the one that all of it lies in.
func newCgroup() (string, error) {
	for _, old := range leftBehind(cgroupRoot()) {
		// Of a run that was killed. Another one's holds a process, and has a Pod of the same UID.
		if err := removeCgroup(old); err != nil {
			return "", fmt.Errorf("another bench runs, or has left a process: two at once would measure each other; end it first: %w", err)
		}
	}
	base := filepath.Join(cgroupRoot(), workName())
	if err := os.MkdirAll(podCgroup(base), 0o755); err != nil {
		return "", fmt.Errorf("make cgroup of the target: %w", err)
	}
	return base, nil
}

func podCgroup(base string) string {
	return filepath.Join(base, "kubepods", "pod"+podUID, containerID)
}

// removeCgroup removes a cgroup without processes and those in it.
func removeCgroup(base string) error {
	var err error
	for dir := podCgroup(base); len(dir) >= len(base); dir = filepath.Dir(dir) {
		if e := os.Remove(dir); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// nodeEnded is what a node says of the program that it ran.
type nodeEnded struct {
	CPU time.Duration `json:"cpu"`
}

// runNode is process 1 of a node: the arguments are the Pod's cgroup, the CPU of the agent, and the agent's command. It
// ends with the agent, and says what that took.
func runNode(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	cpu, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("read CPU: %w", err)
	}
	ctx := context.Background() // process 1 ends by being killed, and all with it
	hold := roleCommand(ctx, "role-hold", -1, []*os.File{os.NewFile(netnsFD, "netns")})
	up, err := hold.StdoutPipe()
	if err != nil {
		return err
	}
	if err := hold.Start(); err != nil {
		return fmt.Errorf("start target: %w", err)
	}
	if _, err := up.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("start target: %w", err)
	}
	if err := os.WriteFile(filepath.Join(args[0], "cgroup.procs"), []byte(strconv.Itoa(hold.Process.Pid)), 0); err != nil {
		return fmt.Errorf("put target into its cgroup: %w", err)
	}
	agent := roleCommand(ctx, "role-exec", cpu, nil, args[2:]...)
	agent.Stderr = os.Stderr
	if err := agent.Run(); err != nil {
		return fmt.Errorf("run %s: %w", args[2], err)
	}
	kill(hold) // before bench removes its cgroup
	return json.NewEncoder(os.Stdout).Encode(nodeEnded{CPU: used(agent)})
}

// runHold is the process of the target Pod. It sleeps in its namespace until it is killed.
func runHold([]string) error {
	if err := enter(netnsFD); err != nil {
		return err
	}
	fmt.Println("up")
	for {
		time.Sleep(time.Hour)
	}
}

// nodeProcess finds the process of a node that runs a program.
func nodeProcess(node *exec.Cmd, program string) (pid int, ok bool) {
	const longest = 15 // of a name in /proc
	name := filepath.Base(program)
	name = name[:min(len(name), longest)]
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range found {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		head, rest, _ := strings.Cut(string(b), ") ")
		_, comm, _ := strings.Cut(head, " (")
		if f := strings.Fields(rest); len(f) > 1 && comm == name && f[1] == strconv.Itoa(node.Process.Pid) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid, err == nil
		}
	}
	return 0, false
}
