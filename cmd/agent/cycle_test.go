package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/account"
)

const file = "web-1-ab12.pcapng"

// onNode are the tests that need a node, each with its own Pod.
var onNode = map[string]func(*pod){
	"FullCycle":            fullCycle,
	"OpensAPod":            opensAPod,
	"OpenerOnNodesNetwork": refusesNodesNetwork,
	"KilledProbe":          killedProbe,
	"Drained":              drained,
	"TargetLeaves":         targetLeaves,
	"SandboxIsReplaced":    sandboxIsReplaced,
	"TargetStarts":         targetStarts,
	"NodesNetworkRefused":  nodesNetworkRefused,
	"NodesNetworkAllowed":  nodesNetworkAllowed,
	"KeeperEndsOnSIGTERM":  keeperEndsOnSIGTERM,
	"KeeperComesBack":      keeperComesBack,
	"ResultNeverReplaced":  resultNeverReplaced,
	"LinksAreNeverServed":  linksAreNeverServed,
	"OneOfTwoPods":         oneOfTwoPods,
	"UnconfinedIsRefused":  unconfinedIsRefused,
	"TraceCycle":           traceCycle,
	"TraceKilled":          traceKilled,
	"TraceFlap":            traceFlap,
	"TraceCommand":         traceCommand,
	"TraceContainers":      traceContainers,
	"ByteLimitEndsCapture": byteLimitEndsCapture,
	"Sweeps":               sweeps,
	"SweepsNoNode":         sweepsNoNode,
}

// capture starts target, probe and keeper, and returns when all of them are running.
func (p *pod) capture() *pod {
	p.t.Helper()
	p.startTarget(syscall.CLONE_NEWNET)
	p.startProbe("--duration", "5m")
	p.startKeeper()
	p.ready()
	return p
}

func fullCycle(p *pod) {
	t := p.capture().t
	const packets = 1000
	p.sends(packets)
	var states []account.State
	err := p.client.Watch(t.Context(), p.port, func(a account.Account) error {
		states = append(states, a.State)
		if !a.AddsUp() {
			t.Errorf("does not add up: %+v", a.Counts)
		}
		if a.Packets >= packets && a.State == account.StateCapturing {
			p.readWhileCapturing(packets)
			return p.client.Stop(t.Context(), p.port, account.ReasonStopped)
		}
		return nil
	})
	if err != nil || states[len(states)-1] != account.StateDone {
		t.Errorf("Watch: %v, states %v", err, states)
	}
	if code := p.exit(p.probe); code != 0 {
		t.Errorf("the probe's exit code is %d", code)
	}
	words := p.terminationMessage()
	if words.Reason != account.ReasonStopped || !words.Complete || words.Seen != packets || words.Packets != packets || words.Dropped() != 0 {
		t.Errorf("termination message %+v", words)
	}
	progress, err := p.client.Progress(t.Context(), p.port)
	if diff := cmp.Diff(words, progress); diff != "" || err != nil {
		t.Errorf("progress, %v (-message +progress):\n%s", err, diff)
	}
	p.checkFile(words, packets)
	if err := p.client.Release(t.Context(), p.port); err != nil {
		t.Error(err)
	}
	if code := p.exit(p.keeper); code != 0 {
		t.Errorf("the keeper's exit code is %d", code)
	}
}

// download returns a file or a range of it.
func (p *pod) download(byteRange string) []byte {
	p.t.Helper()
	resp, err := p.client.File(p.t.Context(), p.port, file, byteRange)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// readWhileCapturing checks that the file can be read while it grows. Only its statistics are missing.
func (p *pod) readWhileCapturing(packets int) {
	p.t.Helper()
	c := read(p.t, bytes.NewReader(p.download("")))
	c.eachOnce(p.t, packets)
	if len(c.statistics) != 0 {
		p.t.Error("statistics before the end")
	}
}

// checkFile downloads the result in two parts and compares it with its account.
func (p *pod) checkFile(a account.Account, packets int) {
	p.t.Helper()
	whole := slices.Concat(p.download("bytes=0-4999"), p.download("bytes=5000-"))
	if want := []account.File{{Name: file, Bytes: int64(len(whole))}}; !cmp.Equal(a.Files, want) {
		p.t.Errorf("files %v, want %v", a.Files, want)
	}
	c := read(p.t, bytes.NewReader(whole))
	c.eachOnce(p.t, packets)
	if c.packets != a.Packets || len(c.statistics) != 1 || *c.statistics[0].Delivered != uint64(a.Packets) || *c.statistics[0].IfDrop != 0 {
		p.t.Errorf("%d packets, statistics %+v; the account says %+v", c.packets, c.statistics, a.Counts)
	}
	if len(c.interfaces) != 1 || c.interfaces[0].Name != "lo" || c.interfaces[0].Description != "shop/web-1, node n1" {
		p.t.Errorf("interfaces %+v", c.interfaces)
	}
	for _, want := range []string{"requester: alice", "hub/web", "pod web-1", p.uid, "filter: none"} {
		if !strings.Contains(strings.Join(c.section.Comments, "\n"), want) {
			p.t.Errorf("comments %q do not say %q", c.section.Comments, want)
		}
	}
}

// A killed probe leaves a valid file up to its last flush and an incomplete account, and the keeper notices its death.
func killedProbe(p *pod) {
	t := p.capture().t
	p.sends(100)
	p.eventually("the packets are in the progress", func() bool {
		a, err := p.client.Progress(t.Context(), p.port)
		return err == nil && a.Packets == 100
	})
	p.eventually("the packets are in the message", func() bool {
		// A reader beside the probe may get a part of each of two messages. The kubelet reads after the probe's end.
		b, err := os.ReadFile(p.message)
		a, invalid := account.Parse(b)
		return err == nil && invalid == nil && a.Packets == 100
	})
	if err := p.probe.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.exit(p.probe)
	if a := p.terminationMessage(); a.Complete || a.State != account.StateCapturing || a.Reason != "" {
		t.Errorf("termination message %+v", a)
	}
	var last account.Account
	err := p.client.Watch(t.Context(), p.port, func(a account.Account) error { last = a; return nil })
	if err != nil || last.Reason != account.ReasonKilled || last.Complete || last.Packets != 100 {
		t.Errorf("Watch: %v, account %+v", err, last)
	}
	c := read(t, bytes.NewReader(p.download("")))
	c.eachOnce(t, 100)
}

func drained(p *pod) {
	t := p.capture().t
	p.sends(100)
	if err := p.probe.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(p.probe); code != 3 {
		t.Errorf("exit code %d", code)
	}
	if a := p.terminationMessage(); a.Reason != account.ReasonDrained || a.Complete || a.Packets != 100 {
		t.Errorf("termination message %+v", a)
	}
	c := read(t, bytes.NewReader(p.download("")))
	if c.eachOnce(t, 100); len(c.statistics) != 1 {
		t.Errorf("%d statistics: the file is not flushed", len(c.statistics))
	}
}

func targetLeaves(p *pod) {
	t := p.capture().t
	p.sends(100)
	if err := p.target.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.target.Wait()
	if code := p.exit(p.probe); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if a := p.terminationMessage(); a.Reason != account.ReasonTargetGone || !a.Complete || a.Packets != 100 {
		t.Errorf("termination message %+v", a)
	}
}

// A Pod that gets a new sandbox lives on, in another network. Its result is not complete.
func sandboxIsReplaced(p *pod) {
	t := p.capture().t
	p.sends(100)
	old := p.target
	p.startTarget(syscall.CLONE_NEWNET)
	if err := old.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = old.Wait()
	if code := p.exit(p.probe); code != 3 {
		t.Errorf("exit code %d", code)
	}
	if a := p.terminationMessage(); a.Reason != account.ReasonTargetNotGone || a.Complete || a.Packets != 100 || !strings.Contains(a.Message, "new sandbox") {
		t.Errorf("termination message %+v", a)
	}
}

// The Job may start before the Pod's first process.
func targetStarts(p *pod) {
	t := p.t
	p.startProbe("--duration", "3s")
	p.startKeeper()
	p.eventually("the probe waits", func() bool {
		a, err := p.client.Progress(t.Context(), p.port)
		return err == nil && a.State == account.StateStarting && strings.Contains(a.Message, "waiting")
	})
	p.startTarget(syscall.CLONE_NEWNET)
	p.ready()
	p.sends(100)
	if code := p.exit(p.probe); code != 0 {
		t.Errorf("exit code %d", code)
	}
	a := p.terminationMessage()
	if a.Reason != account.ReasonDuration || !a.Complete || a.Packets != 100 || a.Ended.Sub(a.Started) < 3*time.Second {
		t.Errorf("termination message %+v", a)
	}
}

// The node's traffic is not captured in the name of a Pod: the probe waits until the target leaves the node's
// namespace.
func nodesNetworkRefused(p *pod) {
	t := p.t
	p.startTarget(0)
	p.startProbe("--duration", "5m")
	p.startKeeper()
	p.eventually("the probe waits", func() bool {
		a, err := p.client.Progress(t.Context(), p.port)
		return err == nil && a.State == account.StateStarting && strings.Contains(a.Message, "leave the node's network namespace")
	})
	if err := p.probe.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(p.probe); code != 4 {
		t.Errorf("exit code %d", code)
	}
	if a := p.terminationMessage(); a.Reason != account.ReasonDrained || !a.Started.IsZero() {
		t.Errorf("termination message %+v", a)
	}
	if entries, err := filepath.Glob(filepath.Join(p.results, "*.pcapng")); err != nil || len(entries) != 0 {
		t.Errorf("files %v, %v", entries, err)
	}
}

func nodesNetworkAllowed(p *pod) {
	t := p.t
	p.startTarget(0)
	p.startProbe("--duration", "3s", "--host-network")
	p.ready()
	p.sends(100)
	if code := p.exit(p.probe); code != 0 {
		t.Errorf("exit code %d", code)
	}
	f, err := os.Open(filepath.Join(p.results, file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := read(t, f)
	c.eachOnce(t, 100)
}

func keeperEndsOnSIGTERM(p *pod) {
	t := p.capture().t
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := p.keeper.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(p.keeper); code != 0 || ctx.Err() != nil {
		t.Errorf("exit code %d, %v", code, ctx.Err())
	}
}

// A keeper that is started again (docs/adr/0007) has the same user. It reads the files, and can overwrite the stop file that
// it prepared before. Each keeper says which restrictions are in force.
func keeperComesBack(p *pod) {
	t := p.capture().t
	p.sends(100)
	p.eventually("the packets are in the progress", func() bool {
		a, err := p.client.Progress(t.Context(), p.port)
		return err == nil && a.Packets == 100
	})
	if err := p.keeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.exit(p.keeper)
	p.startKeeper()
	if err := p.client.Stop(t.Context(), p.port, account.ReasonStopped); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(p.probe); code != 0 {
		t.Errorf("the probe's exit code is %d", code)
	}
	c := read(t, bytes.NewReader(p.download("")))
	c.eachOnce(t, 100)
	if err := p.keeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.exit(p.keeper) // its log is whole then
	if log := fmt.Sprint(p.keeper.Stderr); !strings.Contains(log, `"user":2001000000,"restrictions":{"landlock":`) {
		t.Errorf("the keeper does not say how it is confined: %s", log)
	}
}

func resultNeverReplaced(p *pod) {
	t := p.t
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	put(t, elsewhere, "precious")
	if err := os.Symlink(elsewhere, filepath.Join(p.results, file)); err != nil {
		t.Fatal(err)
	}
	p.startTarget(syscall.CLONE_NEWNET)
	p.startProbe("--duration", "5m")
	if code := p.exit(p.probe); code != 4 {
		t.Errorf("exit code %d", code)
	}
	if b, err := os.ReadFile(elsewhere); err != nil || string(b) != "precious" {
		t.Errorf("the link was followed: %q, %v", b, err)
	}
}

func linksAreNeverServed(p *pod) {
	t := p.capture().t
	for name, to := range map[string]string{"passwd.pcapng": "/etc/passwd", "key.pcapng": p.config, "again.pcapng": file} {
		if err := os.Symlink(to, filepath.Join(p.results, name)); err != nil {
			t.Fatal(err)
		}
		if resp, err := p.client.File(t.Context(), p.port, name, ""); err == nil {
			resp.Body.Close()
			t.Errorf("%s was served", name)
		} else if !strings.Contains(err.Error(), "404") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Two Pods on one node: each file has its own Pod's packets, and a client of the other capture gets neither.
func oneOfTwoPods(p *pod) {
	t := p.t
	one, two := p.capture(), newPod(t).capture()
	one.sends(100)
	two.sends(50)
	for _, p := range []*pod{one, two} {
		if err := p.client.Stop(t.Context(), p.port, account.ReasonStopped); err != nil {
			t.Fatal(err)
		}
		if code := p.exit(p.probe); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	c := read(t, bytes.NewReader(one.download("")))
	c.eachOnce(t, 100)
	c = read(t, bytes.NewReader(two.download("")))
	c.eachOnce(t, 50)
	if _, err := one.client.Progress(t.Context(), two.port); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("another capture's keeper: %v", err)
	}
}

func unconfinedIsRefused(p *pod) {
	t := p.t
	argv := p.keeperCommand()
	if code := p.exit(p.start(exec.Command(argv[0], argv[1:]...))); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

func byteLimitEndsCapture(p *pod) {
	t := p.t
	b, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	put(t, p.config, strings.Replace(string(b), `"maxBytes": 268435456`, `"maxBytes": 10000`, 1))
	p.startTarget(syscall.CLONE_NEWNET)
	p.startProbe("--duration", "5m")
	p.ready()
	p.sends(1000)
	if code := p.exit(p.probe); code != 0 {
		t.Errorf("exit code %d", code)
	}
	a := p.terminationMessage()
	if a.Reason != account.ReasonByteLimit || !a.Complete || len(a.Files) != 1 || a.Files[0].Bytes > 10000 || a.Files[0].Bytes < 9000 {
		t.Errorf("termination message %+v", a)
	}
}
