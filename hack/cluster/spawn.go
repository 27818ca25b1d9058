package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// place is where a program of the cluster runs.
type place struct {
	// cgroup is the part of the cluster whose cgroup it joins.
	cgroup string
	// netns is the path of its network namespace; empty for the machine's.
	netns string
}

// daemon is a program of the cluster that outlives the command that started it.
type daemon struct {
	name string
	log  string
	// ended reports how the program ended, if it does so before this command.
	ended <-chan error
}

// spawner starts the programs of a cluster.
type spawner struct {
	layout
	// lock is held by the starting command, and by each program until it is in its cgroup. `down` waits for the lock,
	// so it never searches for processes while one of a killed `up` is not yet in its cgroup.
	lock *os.File
}

// lockFD is the lock's descriptor in a child: the first after stderr.
const lockFD = 3

// ownCommand returns the arguments that run another command of this program, on
// the same cluster.
func (l layout) ownCommand(args ...string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return append([]string{self, "--cache", l.base, "--instance", strconv.Itoa(l.instance)}, args...), nil
}

// dieTogether makes the kernel kill a child when this command is killed. Use it only for children that the main thread
// starts and awaits.
func dieTogether() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// spawn starts argv as a daemon at a place, with its output in its log. This binary's hidden `enter` command goes to
// the place and then becomes the program.
func (s spawner) spawn(name string, at place, argv ...string) (*daemon, error) {
	enter, err := s.ownCommand("enter", "--cgroup", at.cgroup, "--netns", at.netns, "--")
	if err != nil {
		return nil, err
	}
	logFile, err := os.OpenFile(s.log(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer logFile.Close()
	// No context: it outlives this command.
	cmd := exec.CommandContext(context.Background(), enter[0], append(enter[1:], argv...)...)
	cmd.Env = daemonEnv(filepath.Dir(argv[0]))
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{s.lock}
	// A new session, so that Ctrl-C in the terminal does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return &daemon{name: name, log: s.log(name), ended: ended}, nil
}

// daemonEnv is the whole environment of the cluster's programs. Nothing of the caller's environment leaks in: an
// HTTPS_PROXY would send webhook calls out of the cluster.
func daemonEnv(bin string) []string {
	return []string{
		"PATH=" + bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8",
	}
}

const tailBytes = 2000

// tail returns the end of the daemon's log, for an error.
func (d *daemon) tail() string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-tailBytes):]))
}

// failed returns an error if one of the daemons has ended.
func failed(daemons []*daemon) error {
	for _, d := range daemons {
		select {
		case err := <-d.ended:
			if err == nil {
				err = exitStatus(0)
			}
			return fmt.Errorf("%s ended: %w; the end of its log %s:\n%s", d.name, err, d.log, d.tail())
		default:
		}
	}
	return nil
}

// enterCommand is the hidden command that goes to a place and becomes a program.
func enterCommand(o *options) *cobra.Command {
	var at place
	cmd := &cobra.Command{
		Use:    "enter -- PROGRAM ARGS...",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, argv []string) error {
			return at.become(o.layout(), argv)
		},
	}
	cmd.Flags().StringVar(&at.cgroup, "cgroup", "", "part of the cluster whose cgroup to join")
	cmd.Flags().StringVar(&at.netns, "netns", "", "network namespace to enter")
	return cmd
}

// become replaces this process by argv at the place. It must run on a locked thread, because namespaces belong to a
// thread, and exec keeps its caller's.
func (at place) become(l layout, argv []string) error {
	if err := joinCgroup(l, at.cgroup); err != nil {
		return err
	}
	if at.netns != "" {
		if err := enterNetns(at.netns); err != nil {
			return err
		}
	}
	unix.CloseOnExec(lockFD)
	if err := unix.Exec(argv[0], argv, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	return nil
}
