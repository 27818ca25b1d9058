//go:build vm

package main

import (
	"bytes"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/account"
)

// stepClock sets the machine's clock forwards or back, which is allowed only in a virtual machine (hack/vm).
func stepClock(t *testing.T, by time.Duration) {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		t.Fatal(err)
	}
	now = unix.NsecToTimespec(now.Nano() + by.Nanoseconds())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		t.Fatal(err)
	}
}

// TestClockStep steps the clock by an hour during the capture, and back during retention. Duration and retention stay
// as configured, no packet is missing, and no end is before its start.
func TestClockStep(t *testing.T) {
	if os.Getenv(roleVariable) != roleNode {
		runOnNode(t)
		return
	}
	for name, by := range map[string]time.Duration{"forwards": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) { clockSteps(newPod(t), by) })
	}
}

func clockSteps(p *pod, by time.Duration) {
	t := p.t
	const duration, retain = 10 * time.Second, 5 * time.Second
	p.startTarget(syscall.CLONE_NEWNET)
	p.startKeeper("--retain", retain.String())
	started := time.Now() // time.Since uses the monotonic clock
	p.startProbe("--duration", duration.String())
	p.ready()
	p.sends(100)
	stepClock(t, by)
	p.sends(100)
	if code := p.exit(p.probe); code != 0 {
		t.Errorf("the probe's exit code is %d", code)
	}
	ended := time.Now()
	if took := ended.Sub(started); took < duration {
		t.Errorf("the capture of %v was over after %v", duration, took)
	}
	a := p.terminationMessage()
	if a.Reason != account.ReasonDuration || !a.Complete || a.Packets != 200 || a.Seen != 200 {
		t.Errorf("termination message %+v", a)
	}
	if lasted := a.Ended.Sub(a.Started); lasted < duration || lasted > duration+testTimeout {
		t.Errorf("the account has a duration of %v, from %v to %v; want %v", lasted, a.Started, a.Ended, duration)
	}
	c := read(t, bytes.NewReader(p.download("")))
	c.eachOnce(t, 200)
	for _, s := range c.statistics {
		if s.End < s.Start {
			t.Errorf("the file's statistics end at %d, before they start at %d", s.End, s.Start)
		}
	}
	stepClock(t, -by)
	p.download("")
	if code := p.exit(p.keeper); code != 0 {
		t.Errorf("the keeper's exit code is %d", code)
	}
	// The keeper checks for the end every 250 ms.
	if kept := time.Since(ended); kept < retain-time.Second {
		t.Errorf("the result was kept for %v, want %v", kept, retain)
	}
}
