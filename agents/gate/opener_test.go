package gate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// namespaces are the process namespaces of gates: one of its own, or a shared one (shareProcessNamespace, hostPID).
var namespaces = map[string]uintptr{"process 1": syscall.CLONE_NEWPID, "not process 1": 0}

// rounds returns how often tests repeat races: less often on an emulated processor, as in hack/vm.
func rounds() int {
	if testing.Short() {
		return 5
	}
	return 50
}

// A signal before the handler is installed is lost, and never ends a gate.
func TestEarlySignalIsHarmless(t *testing.T) {
	for name, flags := range namespaces {
		t.Run(name, func(t *testing.T) {
			cgroup := container(t, gateID)
			for range rounds() {
				p := startGate(t, in(cgroup, flags))
				for range 3 {
					_ = p.cmd.Process.Signal(Signal) // it may arrive in time and open the gate
				}
				// Not Open: a program that has just started has not named itself yet, and is not recognised as a gate.
				ctx, cancel := context.WithCancel(t.Context())
				go func() { <-p.done; cancel() }()
				if _, err := opener(t).Await(ctx, uid); err != nil && !errors.Is(err, ErrNoGate) && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				if code := p.exit(t); code != 0 || !strings.Contains(p.out.String(), string(gateconfig.Opened)) {
					t.Fatalf("exit code %d (%v), it said %q", code, p.cmd.ProcessState, p.out.String())
				}
			}
		})
	}
}

func TestOpenWhenItWaits(t *testing.T) {
	for name, flags := range namespaces {
		t.Run(name, func(t *testing.T) {
			cgroup := container(t, gateID)
			for range rounds() {
				p := startGate(t, in(cgroup, flags))
				p.waits(t)
				if opened, err := opener(t).Open(t.Context(), uid); err != nil || opened.Took <= 0 || opened.ContainerID != gateID {
					t.Fatalf("%+v: %v", opened, err)
				}
				// Open returns only when the gate has ended.
				if code := p.exit(t); code != 0 || !strings.Contains(p.out.String(), string(gateconfig.Opened)) {
					t.Fatalf("exit code %d, it said %q", code, p.out.String())
				}
			}
		})
	}
}

// The opener may run before the gate, and signal it in any state.
func TestAwait(t *testing.T) {
	for name, flags := range namespaces {
		t.Run(name, func(t *testing.T) {
			cgroup := container(t, gateID)
			for range rounds() {
				opened := make(chan error, 1)
				go func() {
					_, err := opener(t).Await(t.Context(), uid)
					opened <- err
				}()
				p := startGate(t, in(cgroup, flags))
				if err := <-opened; err != nil {
					t.Fatal(err)
				}
				if code := p.exit(t); code != 0 {
					t.Fatalf("exit code %d, it said %q", code, p.out.String())
				}
			}
		})
	}
}

// A gate needs only its binary: no /proc, no /dev, no network and no writable file, and it runs as any user.
func TestGateNeedsNothing(t *testing.T) {
	attr := in(container(t, gateID), syscall.CLONE_NEWPID|syscall.CLONE_NEWNET|syscall.CLONE_NEWIPC)
	attr.Credential = &syscall.Credential{Uid: 1000660000, Gid: 0, NoSetGroups: true}
	attr.Chroot = filepath.Dir(agentBinary(t))
	p := startProgram(t, "/agent", gateconfig.Config{Timeout: 2 * testTimeout, OnTimeout: gateconfig.Fail}.Args(), attr)
	p.waits(t)
	if _, err := opener(t).Open(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(t); code != 0 || !strings.Contains(p.out.String(), string(gateconfig.Opened)) {
		t.Errorf("exit code %d, it said %q", code, p.out.String())
	}
	if left, err := os.ReadDir(attr.Chroot); err != nil || len(left) != 1 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestNoGate(t *testing.T) {
	cgroup := container(t, webID)
	if _, err := opener(t).Open(t.Context(), uid); !errors.Is(err, ErrNoGate) {
		t.Errorf("a Pod without a process: %v", err)
	}
	p := startNeighbour(t, in(cgroup, 0))
	p.says(t, "up")
	ctx, cancel := context.WithTimeout(t.Context(), 5*minPause)
	defer cancel()
	if _, err := opener(t).Await(ctx, uid); !errors.Is(err, ErrNoGate) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a Pod without a gate: %v", err)
	}
	if _, err := opener(t).Open(t.Context(), "web-1"); err == nil || errors.Is(err, ErrNoGate) {
		t.Errorf("an invalid UID: %v", err)
	}
}

// Other processes get no signal: in the Pod, in the gate's container, and under the gate's name.
func TestNeighboursAreNotSignalled(t *testing.T) {
	web, gate := container(t, webID), container(t, gateID)
	script := filepath.Join(t.TempDir(), gateconfig.Subcommand)
	// It waits without a child, which would outlive it.
	text := "exec 3<> <(:)\ntrap 'echo got winch' WINCH\necho up\nwhile :; do read -t 0.01 -u 3; done\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	neighbours := []*runningProcess{
		startNeighbour(t, in(web, 0)),
		startNeighbour(t, in(gate, 0), gateconfig.Subcommand),
		startProgram(t, "/bin/bash", []string{script}, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(web.Fd()), Pdeathsig: syscall.SIGKILL}),
		startGate(t, nil), // a gate, but no Pod's
	}
	for _, n := range neighbours[:3] {
		n.says(t, "up")
	}
	neighbours[3].waits(t)
	for range 20 {
		p := startGate(t, in(gate, syscall.CLONE_NEWPID))
		if _, err := opener(t).Await(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		p.exit(t)
	}
	for i, n := range neighbours {
		select {
		case <-n.done:
			t.Errorf("neighbour %d has ended (%v) and said %q", i, n.err, n.out.String())
		default:
		}
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
		if i != 2 { // the script ends only when it is killed
			n.exit(t)
		}
		if strings.Contains(n.out.String(), "got") || strings.Contains(n.out.String(), string(gateconfig.Opened)) {
			t.Errorf("neighbour %d said %q", i, n.out.String())
		}
	}
}

// The opener gives up a gate that cannot end, and opens one that is continued.
func TestStuck(t *testing.T) {
	p := startGate(t, in(container(t, gateID), 0))
	p.waits(t)
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	o := opener(t)
	o.Timeout = 50 * time.Millisecond
	if _, err := o.Open(t.Context(), uid); !errors.Is(err, ErrStuck) {
		t.Errorf("a gate that is stopped: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.Open(ctx, uid); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has given up: %v", err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A Pod may have several gates: all that wait are opened.
func TestSeveralGates(t *testing.T) {
	cgroup := container(t, gateID)
	one, two := startGate(t, in(cgroup, 0)), startGate(t, in(cgroup, syscall.CLONE_NEWPID))
	one.waits(t)
	two.waits(t)
	if _, err := opener(t).Open(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	if one.exit(t) != 0 || two.exit(t) != 0 {
		t.Error("a gate is not opened")
	}
}

func TestIsGate(t *testing.T) {
	tests := map[string]struct {
		exe, name    string
		inGate, want bool
	}{
		"gate":                       {"/agent", "sonde-gate", true, true},
		"gate without a link yet":    {"/agent", "sonde-gate", false, true},
		"gate of an earlier version": {"/agent", "agent", true, true},
		"another role":               {"/agent", "agent", false, false},
		"no name":                    {"/agent", "", false, false},
		"a longer name":              {"/agent", "sonde-gateway", false, false},
		"another program":            {"/bin/sh", "sonde-gate", true, false},
		"agent of another place":     {"/opt/agent", "sonde-gate", true, false},
		"runtime before exec":        {"/usr/bin/runc", "runc:[2:INIT]", true, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (Opener{}).isGate(tc.exe, tc.name, func() bool { return tc.inGate }); got != tc.want {
				t.Errorf("isGate = %v", got)
			}
		})
	}
}

// A gate of an earlier version has not named its process. It is the gate's program in the container with the gate's name.
func TestGateWithoutAName(t *testing.T) {
	web, gate := container(t, webID), container(t, gateID)
	root := t.TempDir()
	links := filepath.Join(root, "var", "log", "containers")
	if err := os.MkdirAll(links, 0o755); err != nil {
		t.Fatal(err)
	}
	for id, name := range map[string]string{gateID: gateconfig.ContainerName, webID: "web"} {
		if err := os.WriteFile(filepath.Join(links, "web-0_shop_"+name+"-"+id+".log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	old, neighbour := startNeighbour(t, in(gate, 0)), startNeighbour(t, in(web, 0))
	old.says(t, "up")
	neighbour.says(t, "up")
	o := Opener{Finder: process.Finder{NodeRoot: root}, Executable: own, Timeout: 50 * time.Millisecond}
	// This one does not end, so that both are signalled or not.
	if _, err := o.Open(t.Context(), uid); !errors.Is(err, ErrStuck) {
		t.Errorf("%v, want %v", err, ErrStuck)
	}
	old.says(t, "got")
	_ = neighbour.cmd.Process.Signal(syscall.SIGTERM)
	if neighbour.exit(t); strings.Contains(neighbour.out.String(), "got") {
		t.Errorf("the other container's process says %q", neighbour.out.String())
	}
}

// Searching costs the node little, however long it lasts and however many processes there are.
func TestPause(t *testing.T) {
	tests := map[string]struct{ search, since, want time.Duration }{
		"a small node": {time.Millisecond, 0, minPause},
		"a large node": {20 * time.Millisecond, 0, 80 * time.Millisecond},
		"for long":     {time.Millisecond, lateAfter, latePause},
		"both":         {time.Second, time.Hour, 4 * time.Second},
	}
	for name, tc := range tests {
		if got := pause(tc.search, tc.since); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
