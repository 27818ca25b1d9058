package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	// pollInterval is the time between checks of a condition that sends no notification.
	pollInterval = 100 * time.Millisecond
	// restartDelay is the pause before a node restarts a dead program.
	restartDelay = 2 * time.Second
)

// nodeInitCommand is the hidden first process of a node's pid namespace. It sets up the node's file system, starts
// containerd, kubelet and kube-proxy like a machine's init, and reaps orphans.
func nodeInitCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:    "node-init NODE",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readNode(o.layout(), args[0])
			if err != nil {
				return err
			}
			return nodeInit(cmd.Context(), c)
		},
	}
}

func nodeInit(ctx context.Context, c nodeConfig) error {
	if err := unix.Sethostname([]byte(c.Name)); err != nil {
		return fmt.Errorf("name the node: %w", err)
	}
	if err := makeNodeFiles(c); err != nil {
		return fmt.Errorf("make the file system of node %s: %w", c.Name, err)
	}
	s := supervisor{config: c, services: map[int]service{}}
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, unix.SIGCHLD)
	go s.bringUp(ctx)
	for range deaths {
		s.reap()
	}
	return nil
}

// service is one long-running program of a node.
type service struct {
	name string
	argv []string
}

// supervisor is a node's init: it restarts services that die.
type supervisor struct {
	config nodeConfig
	// mu makes sure that a service's start is recorded before its death is reaped.
	mu       sync.Mutex
	services map[int]service
}

// bringUp starts each service when its dependencies are ready.
func (s *supervisor) bringUp(ctx context.Context) {
	pki := s.config.layout().pki()
	s.start(service{"containerd", []string{"containerd", "--config", "/etc/containerd/config.toml"}})
	// kubelet exits without a container runtime.
	waitFor(ctx, func() bool {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", containerdSocket)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
	// kubelet and kube-proxy back off for long after a failed first call.
	api, err := newAPI(fmt.Sprintf("https://%s:%d", controlPlaneIP, apiPort), filepath.Join(pki, "ca.crt"))
	if err != nil {
		log.Fatal(err)
	}
	waitFor(ctx, func() bool { return api.ready(ctx) == nil })
	s.start(service{"kubelet", []string{
		"kubelet", "--config=" + kubeletConfig,
		"--kubeconfig=" + filepath.Join(pki, "kubelet-"+s.config.Name+".kubeconfig"),
		"--hostname-override=" + s.config.Name, "--node-ip=" + s.config.IP,
	}})
	s.start(service{"kube-proxy", []string{"kube-proxy", "--config=" + kubeProxyConfig}})
}

// start starts a service, and ends the node if that fails.
func (s *supervisor) start(sv service) {
	if err := s.tryStart(sv); err != nil {
		log.Fatalf("start %s: %v", sv.name, err)
	}
}

// tryStart starts a service with its own log, which outlives restarts.
func (s *supervisor) tryStart(sv service) error {
	name := s.config.Name + "-" + sv.name
	logFile, err := os.OpenFile(s.config.layout().log(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open its log: %w", err)
	}
	defer logFile.Close()
	// No context: it runs as long as the node, which ends by SIGKILL.
	cmd := exec.CommandContext(context.Background(), filepath.Join(s.config.Binaries, sv.argv[0]), sv.argv[1:]...)
	cmd.Env = daemonEnv(s.config.Binaries)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	s.services[cmd.Process.Pid] = sv
	log.Printf("started %s as process %d", sv.name, cmd.Process.Pid)
	// reap waits for it; this only frees the resources of os/exec.
	return cmd.Process.Release()
}

// reap collects all dead children: services, and processes of containers whose parents died first.
func (s *supervisor) reap() {
	for {
		s.mu.Lock()
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		sv, known := s.services[pid]
		delete(s.services, pid)
		s.mu.Unlock()
		if pid <= 0 || err != nil {
			return
		}
		if known {
			log.Printf("%s ended with status %d, signal %d; starting it again in %s", sv.name, status.ExitStatus(), status.Signal(), restartDelay)
			time.AfterFunc(restartDelay, func() { s.start(sv) })
		}
	}
}

// waitFor polls a condition until it holds or ctx ends.
func waitFor(ctx context.Context, holds func() bool) {
	t := time.NewTicker(pollInterval)
	defer t.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
