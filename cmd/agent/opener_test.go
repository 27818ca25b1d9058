package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/opener"
	"github.com/sonde-operator/sonde/internal/wire/handover"
)

const (
	openerUser = 65532
	// steeredPort is one that nothing listens on.
	steeredPort = 8080
)

// startOpener starts the opener of a Pod and returns its socket.
func (p *pod) startOpener() (cmd *exec.Cmd, socket string) {
	p.t.Helper()
	socket = filepath.Join(p.control, "opener.sock")
	return p.start(exec.Command(os.Getenv(agentVariable), "opener", "--pod-uid", p.uid, "--pod-name", "web-1",
		"--carrier-user", fmt.Sprint(openerUser), "--socket", socket, "--termination-log", p.message)), socket
}

// openerEnds waits for an opener's end.
func (p *pod) openerEnds(cmd *exec.Cmd, code int, reason handover.Reason) {
	p.t.Helper()
	got := p.exit(cmd)
	b, err := os.ReadFile(p.message)
	if err != nil {
		p.t.Fatal(err)
	}
	outcome, err := handover.ParseOutcome(b)
	if err != nil || got != code || outcome.Reason != reason {
		p.t.Errorf("exit code %d, outcome %+v, %v; want %d, %s", got, outcome, err, code, reason)
	}
}

// connectAs connects to an opener as the carrier's user. Only this thread becomes that user.
func connectAs(ctx context.Context, user uintptr, socket string) (c *handover.Client, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends here
		keep := ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, user, keep); errno != 0 {
			err = errno
			return
		}
		c, err = handover.Connect(ctx, socket)
	}()
	<-done
	return c, err
}

// opensAPod: an opener finds the target, hands its sockets over, and ends with the Pod.
func opensAPod(p *pod) {
	p.startTarget(syscall.CLONE_NEWNET)
	cmd, socket := p.startOpener()
	p.eventually("the opener is ready", func() bool {
		return exec.Command(os.Getenv(agentVariable), "ready", "--file", socket+readySuffix).Run() == nil
	})
	c, err := connectAs(p.t.Context(), openerUser, socket)
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	for _, l := range c.Listeners() {
		defer l.Close()
	}
	if got := p.connects(); !errors.Is(got, unix.ECONNREFUSED) {
		p.t.Errorf("before steering: %v", got)
	}
	if err := c.Steer(p.t.Context(), steeredPort, true); err != nil {
		p.t.Fatal(err)
	}
	if got := p.connects(); got != nil {
		p.t.Errorf("while steering: %v", got)
	}
	_ = p.target.Process.Kill()
	_ = p.target.Wait()
	p.openerEnds(cmd, opener.ExitEnded, handover.ReasonTargetGone)
	<-c.Done()
}

// connects connects to the steered port in the target.
func (p *pod) connects() error {
	p.t.Helper()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.target.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	defer ns.Close()
	return links.InNetNS(int(ns.Fd()), func() error {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", steeredPort), 10*time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// refusesNodesNetwork: no port of the node may be steered.
func refusesNodesNetwork(p *pod) {
	p.startTarget(0)
	cmd, _ := p.startOpener()
	p.openerEnds(cmd, opener.ExitFailed, handover.ReasonHostNetwork)
}
