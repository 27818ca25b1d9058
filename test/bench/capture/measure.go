// Package capture measures engines that capture packets: it sends traffic, runs an engine, and checks its file.
package capture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// Flows measures Sonde's BPF programs once with frames of several flows, which reach a socket in both namespaces.
func Flows(ctx context.Context, b *host.Env, s *figures.Scenario, packets int) (figures.Sample, error) {
	var beside net.PacketConn
	err := host.InNamespace(int(b.Net.Beside.Fd()), func() (err error) {
		beside, err = ListenFlood(ctx)
		return err
	})
	if err != nil {
		return figures.Sample{}, err
	}
	defer beside.Close()
	return runEngine(ctx, b, s, figures.EngineByName(figures.EngineBPF), Flood{Size: s.Size, Count: packets, Beside: true})
}

// runEngine measures one engine once. Counts that do not add up are an error.
func runEngine(ctx context.Context, b *host.Env, s *figures.Scenario, e *figures.Engine, f Flood) (figures.Sample, error) {
	out := figures.Sample{Scenario: s.Name, Engine: e.Name}
	err := runIn(ctx, b, s, e, f, &out)
	if err != nil {
		return out, fmt.Errorf("%s, %s: %w", s.Name, e.Name, err)
	}
	return out, nil
}

func runIn(ctx context.Context, b *host.Env, s *figures.Scenario, e *figures.Engine, f Flood, out *figures.Sample) error {
	if e.Name == figures.EngineNone {
		return passTraffic(ctx, b, s, f, out)
	}
	parent := b.Memory
	if s.Disk {
		parent = b.Disk
	}
	dir, err := os.MkdirTemp(parent, "run")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r, err := starters[e.Name](ctx, b, &job{dir: dir, filter: s.Filter, snap: s.Snap, processes: s.Processes})
	if err != nil {
		return err
	}
	if err := host.Warm(room(b, s, f)); err != nil {
		return errors.Join(err, host.KillPID(r.PID()))
	}
	before := host.ProcessTime(r.PID())
	if err := passTraffic(ctx, b, s, f, out); err != nil {
		return errors.Join(err, host.KillPID(r.PID()))
	}
	if err := drain(ctx, b, s, e, f, r.PID()); err != nil {
		return errors.Join(err, host.KillPID(r.PID()))
	}
	if out.Memory, err = host.ProcessMemory(r.PID()); err != nil {
		return err
	}
	end, err := r.stop(ctx)
	if err != nil {
		return err
	}
	out.Process, out.Dropped = end.cpu-before, end.dropped
	return judge(out, s, f, end.file)
}

// judge reads the file and returns an error if the counts do not add up.
func judge(out *figures.Sample, s *figures.Scenario, f Flood, file string) error {
	c, err := check(file, f.Count)
	if err != nil {
		return err
	}
	out.File = c.size
	want, strangers := out.Packets, c.others
	out.Captured = c.numbered
	switch {
	case s.Misses:
		want = 0
	case s.Stream():
		out.Captured, strangers = c.others, c.numbered
	}
	if strangers != 0 {
		return fmt.Errorf("the file holds %d packets that were not sent", strangers)
	}
	if out.Captured+out.Dropped != want {
		return fmt.Errorf("%d captured and %d reported as dropped are not the %d that passed", out.Captured, out.Dropped, want)
	}
	return nil
}

// passTraffic sends the scenario's traffic and measures the sender's side.
func passTraffic(ctx context.Context, b *host.Env, s *figures.Scenario, f Flood, out *figures.Sample) error {
	before, err := b.Net.Traffic()
	if err != nil {
		return err
	}
	irq, soft := b.Interrupts(), host.ProcessTime(b.Softirq)
	var said any
	var done flooded
	var stream streamed
	f.softirq = b.Softirq
	f.flows, f.targetMAC, f.besideMAC = s.Flows, b.Net.TargetMAC.String(), b.Net.BesideMAC.String()
	cmd := host.RoleCommand(ctx, "role-flood", b.SendCPU, []*os.File{b.Net.Sender}, f.args()...)
	said = &done
	if s.Stream() {
		cmd = host.RoleCommand(ctx, "role-stream", b.SendCPU, []*os.File{b.Net.Target, b.Net.Sender}, "-bytes", fmt.Sprint(b.Stream))
		said = &stream
	}
	if err := host.Talk(ctx, cmd, said); err != nil {
		return err
	}
	soft = host.ProcessTime(b.Softirq) - soft
	after, err := b.Net.Traffic()
	if err != nil {
		return err
	}
	if lost := after.Lost - before.Lost; lost > 0 {
		return fmt.Errorf("the link itself lost %d packets", lost)
	}
	out.Packets, out.Bytes = int(after.Packets-before.Packets), b.Stream
	if s.Stream() {
		out.Wall, out.Sender = stream.Wall, stream.CPU+soft+b.Interrupts()-irq
		return checkAggregated(out)
	}
	out.Bytes = int64(f.Size) * int64(f.Count)
	out.Wall, out.Sender, out.Beside = done.Target.Wall, done.Target.CPU, done.Beside
	if out.Packets != f.Count {
		return fmt.Errorf("%d packets passed the link, of %d", out.Packets, f.Count)
	}
	return nil
}

// checkAggregated returns an error if the sender has already segmented the stream to the MTU.
func checkAggregated(out *figures.Sample) error {
	const mtu = 1500
	if each := out.Bytes / int64(max(out.Packets, 1)); each < 4*mtu {
		return fmt.Errorf("the stream's packets have %d bytes on average: segmentation was not left to the link", each)
	}
	return nil
}

// drain waits until the engine has written its packets. If the engine would leave some in its ring at its end, drain
// sends more frames to push them out.
func drain(ctx context.Context, b *host.Env, s *figures.Scenario, e *figures.Engine, f Flood, pid int) error {
	if err := host.Settled(ctx, pid); err != nil || e.Exact || s.Misses {
		return err
	}
	const large, rate = 1500, 50_000
	// A block of libpcap's ring has 256 KiB; these frames fill more than one.
	push := Flood{Size: large, first: f.Count, Count: 400, rate: rate}
	if s.Snap > 0 {
		push.Count = 4000
	}
	var done flooded
	if err := host.Talk(ctx, host.RoleCommand(ctx, "role-flood", b.SendCPU, []*os.File{b.Net.Sender}, push.args()...), &done); err != nil {
		return err
	}
	return host.Settled(ctx, pid)
}

// Round measures every engine once: forwards in even rounds and backwards in odd ones, so that no engine profits if the
// machine becomes slower or faster. Streams without a capture, to which the others are compared, are measured first, in
// the middle and last.
func Round(ctx context.Context, b *host.Env, s *figures.Scenario, round int, f Flood) ([]figures.Sample, error) {
	var out []figures.Sample
	for _, e := range s.Order(round) {
		one, err := runEngine(ctx, b, s, e, f)
		if err != nil {
			return nil, err
		}
		one.Round = round
		out = append(out, one)
	}
	return out, nil
}

// Calibrate finds out whether the sender's CPU time includes the interrupts that its packets cause.
func Calibrate(ctx context.Context, b *host.Env) error {
	cmd := host.RoleCommand(ctx, "role-flood", b.SendCPU, []*os.File{b.Net.Sender}, Flood{Size: 64, Count: 300_000}.args()...)
	var done flooded
	if err := host.Talk(ctx, cmd, &done); err != nil {
		return err
	}
	const most = 0.85 // largest fraction if the kernel counts interrupts apart
	b.Apart = float64(host.Used(cmd)) < most*float64(done.Target.CPU)
	return nil
}

// room returns how much memory a run needs: for its file in the page cache, and some for everything else.
func room(b *host.Env, s *figures.Scenario, f Flood) int64 {
	const each, rest = 48, 128 << 20 // bytes of a record header; bytes for everything but the file
	switch {
	case s.Stream():
		return b.Stream + rest
	case s.Snap > 0:
		return int64(f.Count)*int64(s.Snap+each) + rest
	}
	return int64(f.Count)*int64(f.Size+each) + rest
}

// Roles are the roles of this package.
var Roles = map[string]func(args []string) error{
	"role-flood":  runFlood,
	"role-stream": runStream,
	"role-node":   runNode,
	"role-hold":   runHold,
}
