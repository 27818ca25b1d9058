package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// sample is one run of one engine in one scenario.
type sample struct {
	Scenario string        `json:"scenario"`
	Engine   string        `json:"engine"`
	Round    int           `json:"round"`
	Packets  int           `json:"packets"` // that passed the link
	Bytes    int64         `json:"bytes"`   // of them
	Captured int           `json:"captured"`
	Dropped  int           `json:"dropped"`
	Wall     time.Duration `json:"wall"`
	Sender   time.Duration `json:"sender"`  // CPU time of the sender's side: the traffic and what the capture adds to it
	Beside   sent          `json:"beside"`  // what went by turns to where nobody captures; not of a stream
	Process  time.Duration `json:"process"` // CPU time of the process that captures, from when it was ready
	Memory   memory        `json:"memory"`
	File     int64         `json:"file"` // bytes
}

// run measures one engine once. What does not add up is an error, not a figure.
func (b *bench) run(ctx context.Context, s *scenario, e *engine, f flood) (sample, error) {
	out := sample{Scenario: s.name, Engine: e.name}
	err := b.runIn(ctx, s, e, f, &out)
	if err != nil {
		return out, fmt.Errorf("%s, %s: %w", s.name, e.name, err)
	}
	return out, nil
}

func (b *bench) runIn(ctx context.Context, s *scenario, e *engine, f flood, out *sample) error {
	if e.start == nil {
		return b.traffic(ctx, s, f, out)
	}
	parent := b.memory
	if s.disk {
		parent = b.disk
	}
	dir, err := os.MkdirTemp(parent, "run")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r, err := e.start(ctx, b, &job{dir: dir, filter: s.filter, snap: s.snap})
	if err != nil {
		return err
	}
	if err := warm(b.room(s, f)); err != nil {
		return errors.Join(err, syscallKill(r.pid()))
	}
	before := processTime(r.pid())
	if err := b.traffic(ctx, s, f, out); err != nil {
		return errors.Join(err, syscallKill(r.pid()))
	}
	if err := b.drain(ctx, s, e, f, r.pid()); err != nil {
		return errors.Join(err, syscallKill(r.pid()))
	}
	if out.Memory, err = processMemory(r.pid()); err != nil {
		return err
	}
	end, err := r.stop(ctx)
	if err != nil {
		return err
	}
	out.Process, out.Dropped = end.cpu-before, end.dropped
	return out.judge(s, f, end.file)
}

// judge reads the file and refuses a run that does not add up.
func (out *sample) judge(s *scenario, f flood, file string) error {
	c, err := check(file, f.count)
	if err != nil {
		return err
	}
	out.File = c.size
	want, strangers := out.Packets, c.others
	out.Captured = c.numbered
	switch {
	case s.misses:
		want = 0
	case s.stream():
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

// traffic lets the scenario's packets pass and takes the sender's side of the account.
func (b *bench) traffic(ctx context.Context, s *scenario, f flood, out *sample) error {
	before, err := b.net.traffic()
	if err != nil {
		return err
	}
	irq, soft := b.interrupts(), processTime(b.softirq)
	var said any
	var done flooded
	var stream streamed
	f.softirq = b.softirq
	cmd := roleCommand(ctx, "role-flood", b.sendCPU, []*os.File{b.net.sender}, f.args()...)
	said = &done
	if s.stream() {
		cmd = roleCommand(ctx, "role-stream", b.sendCPU, []*os.File{b.net.target, b.net.sender}, "-bytes", fmt.Sprint(b.stream))
		said = &stream
	}
	if err := talk(ctx, cmd, said); err != nil {
		return err
	}
	soft = processTime(b.softirq) - soft
	after, err := b.net.traffic()
	if err != nil {
		return err
	}
	if lost := after.lost - before.lost; lost > 0 {
		return fmt.Errorf("the link itself lost %d packets", lost)
	}
	out.Packets, out.Bytes = int(after.packets-before.packets), b.stream
	if s.stream() {
		out.Wall, out.Sender = stream.Wall, stream.CPU+soft+b.interrupts()-irq
		return out.aggregated()
	}
	out.Bytes = int64(f.size) * int64(f.count)
	out.Wall, out.Sender, out.Beside = done.Target.Wall, done.Target.CPU, done.Beside
	if out.Packets != f.count {
		return fmt.Errorf("%d packets passed the link, of %d", out.Packets, f.count)
	}
	return nil
}

// aggregated refuses a stream whose packets were cut to the MTU already by the sender.
func (out *sample) aggregated() error {
	const mtu = 1500
	if each := out.Bytes / int64(max(out.Packets, 1)); each < 4*mtu {
		return fmt.Errorf("the stream's packets have %d bytes on average: segmentation was not left to the link", each)
	}
	return nil
}

// talk runs a child of bench to its end and reads what it says.
func talk(ctx context.Context, cmd *exec.Cmd, said any) error {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start sender: %w", err)
	}
	if err := wait(ctx, cmd); err != nil {
		return fmt.Errorf("send: %w: %s", err, errs.String())
	}
	if err := json.Unmarshal(out.Bytes(), said); err != nil {
		return fmt.Errorf("read the sender's report %q: %w", out.String(), err)
	}
	return nil
}

// drain waits until the engine has written what it has, and pushes the rest out of the ring of one that would leave
// it there at its end.
func (b *bench) drain(ctx context.Context, s *scenario, e *engine, f flood, pid int) error {
	if err := settled(ctx, pid); err != nil || e.exact || s.misses {
		return err
	}
	const large, rate = 1500, 50_000
	// libpcap's ring blocks hold 256 KiB: more than one is filled.
	push := flood{size: large, first: f.count, count: 400, rate: rate}
	if s.snap > 0 {
		push.count = 4000
	}
	var done flooded
	if err := talk(ctx, roleCommand(ctx, "role-flood", b.sendCPU, []*os.File{b.net.sender}, push.args()...), &done); err != nil {
		return err
	}
	return settled(ctx, pid)
}

// settled waits until a process has slept for a while.
func settled(ctx context.Context, pid int) error {
	const (
		looks = 8
		idle  = 500 * time.Microsecond // what waiting in vain may cost
	)
	last, since := processTime(pid), 0
	return await(ctx, "the capture has caught up", func() (bool, error) {
		now := processTime(pid)
		since++
		if now-last > idle || !quiet(pid) {
			since = 0
		}
		last = now
		return since >= looks, stillRuns(pid)
	})
}

// measure runs everything.
func measure(ctx context.Context, o *options, log io.Writer) (*results, error) {
	b, err := newBench(ctx, o)
	if err != nil {
		return nil, err
	}
	res, err := b.measure(ctx, o, log)
	return res, errors.Join(err, b.close(ctx))
}

func (b *bench) measure(ctx context.Context, o *options, log io.Writer) (*results, error) {
	res := &results{Machine: describe(ctx, b), Rounds: o.rounds, PacketsEach: o.packets}
	if b.held && !o.cold { // elsewhere it would not stay
		if err := warmAll(); err != nil {
			return nil, err
		}
	}
	if o.part != partTrace {
		if err := b.measureCaptures(ctx, o, res, log); err != nil {
			return nil, err
		}
	}
	if o.part != partCapture {
		if err := b.measureTraces(ctx, o, res, log); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// measureCaptures measures every engine in every scenario, and how fast they are.
func (b *bench) measureCaptures(ctx context.Context, o *options, res *results, log io.Writer) error {
	if err := b.calibrate(ctx); err != nil {
		return err
	}
	for round := range o.rounds {
		began := time.Now()
		for i := range scenarios {
			s := &scenarios[i]
			for turn := 0; turn < max(s.turns, 1) && o.wants(s); turn++ {
				samples, err := b.round(ctx, s, round+turn*o.rounds, flood{size: s.size, count: o.packets, beside: true})
				if err != nil {
					return err
				}
				res.Samples = append(res.Samples, samples...)
			}
		}
		fmt.Fprintf(log, "round %d of %d: %s\n", round+1, o.rounds, time.Since(began).Round(time.Second))
	}
	res.Machine.LoadAfter = load()
	if o.only != "" {
		return nil
	}
	began := time.Now()
	err := b.searchRates(ctx, res, o.packets)
	fmt.Fprintf(log, "search of rates: %s\n", time.Since(began).Round(time.Second))
	return err
}

// round measures every engine once: forwards in even rounds and backwards in odd ones, so that a drift of the machine
// favours none. Streams without a capture, which the others are compared to, are measured first, in the middle and last.
func (b *bench) round(ctx context.Context, s *scenario, round int, f flood) ([]sample, error) {
	var out []sample
	for _, e := range s.order(round) {
		one, err := b.run(ctx, s, e, f)
		if err != nil {
			return nil, err
		}
		one.Round = round
		out = append(out, one)
	}
	return out, nil
}

// leftBehind finds what an interrupted run left in a directory.
func leftBehind(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, workPrefix+"*"))
	return found
}
