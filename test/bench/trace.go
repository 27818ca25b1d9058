package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// traced is one run of one tracer at one loop.
type traced struct {
	Loop   string `json:"loop"`
	Tracer string `json:"tracer"`
	Round  int    `json:"round"`
	// Bystander says that the loop's process is none of the Pod's.
	Bystander bool `json:"bystander,omitempty"`
	Turns     int  `json:"turns"`
	// Bare is how long the turns of the same process took without the tracer, before and after, for each; With is what
	// each took with it: nanoseconds.
	Bare float64 `json:"bare"`
	With float64 `json:"with"`
	// Asked counts the calls of the loop that the tracer was asked for, Written and Lost what it has of them.
	Asked   int `json:"asked"`
	Written int `json:"written"`
	Lost    int `json:"lost"`
	// Reader is the CPU time of the tracer's process, from when it was ready until it had caught up.
	Reader time.Duration `json:"reader"`
	Memory memory        `json:"memory"`
	File   int64         `json:"file"` // bytes
}

// added is what the tracer adds to a turn, in nanoseconds.
func (t *traced) added() float64 { return t.With - t.Bare }

// addedEach is what it adds to each call: of those that are traced, or of a bystander's, all.
func (t *traced) addedEach() float64 {
	if t.Bystander {
		return t.added() / float64(loopByName(t.Loop).calls)
	}
	return t.added() / float64(tracerByName(t.Tracer).of(loopByName(t.Loop)))
}

// readerEach is the reader's CPU time for each event that it has written, in nanoseconds.
func (t *traced) readerEach() float64 { return float64(t.Reader) / float64(max(t.Written, 1)) }

func (t *traced) loss() float64 { return float64(t.Lost) / float64(max(t.Written+t.Lost, 1)) }

// events in a second of those that were made.
func (t *traced) events() float64 {
	return float64(tracerByName(t.Tracer).of(loopByName(t.Loop))) / t.With * float64(time.Second)
}

// eventBytes is what an event takes in the page cache, at most.
const eventBytes = 300

// traceRoom is how much memory a run's file takes in the page cache, and some for the rest.
func traceRoom(t *traced) int64 {
	const rest = 64 << 20
	if t.Bystander {
		return rest
	}
	return int64(t.Turns*tracerByName(t.Tracer).of(loopByName(t.Loop)))*eventBytes + rest
}

// traceRun is a tracer's run: the process that it is measured at, and a process of the Pod that sleeps.
type traceRun struct {
	loop   *loop
	tracer *tracer
	pod    *work
	work   *work
	reader tracing
}

// trace measures a tracer once. What does not add up is an error, not a figure.
func (b *bench) trace(ctx context.Context, l *loop, t *tracer, bystander bool, turns int) (traced, error) {
	out := traced{Loop: l.name, Tracer: t.name, Bystander: bystander, Turns: turns * l.times}
	bare := max(out.Turns/2, 1)
	if !bystander {
		out.Turns = max(out.Turns/t.slow, 1)
	}
	if err := b.traceIn(ctx, l, t, bare, &out); err != nil {
		return out, fmt.Errorf("%s, %s: %w", l.label, t.label, err)
	}
	return out, nil
}

func (b *bench) traceIn(ctx context.Context, l *loop, t *tracer, bare int, out *traced) (err error) {
	dir, err := os.MkdirTemp(b.disk, "run")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &traceRun{loop: l, tracer: t}
	defer func() { err = errors.Join(err, r.close(ctx, err != nil)) }()
	if r.pod, err = b.startLoop(ctx, l, -1, true); err != nil {
		return err
	}
	if r.work, err = b.startLoop(ctx, l, b.sendCPU, !out.Bystander); err != nil {
		return err
	}
	before, err := r.work.do(ctx, order{turns: bare})
	if err != nil {
		return err
	}
	if r.reader, err = t.start(ctx, b, &traceJob{dir: dir, loop: l, cpu: b.captureCPU}); err != nil {
		return err
	}
	if err := errors.Join(settled(ctx, r.reader.pid()), warm(traceRoom(out))); err != nil {
		return err
	}
	if err := r.measure(ctx, out); err != nil {
		return err
	}
	after, err := r.work.do(ctx, order{turns: bare})
	out.Bare = float64(before+after) / float64(2*bare)
	return err
}

// measure has the turns done under the tracer, and ends that.
func (r *traceRun) measure(ctx context.Context, out *traced) error {
	pid, at := r.reader.pid(), r.work
	if own, ok := r.reader.(interface{ worker() *work }); ok {
		at = own.worker()
	}
	cpu := processTime(pid)
	took, err := at.do(ctx, order{turns: out.Turns})
	if err != nil {
		return err
	}
	if err := settled(ctx, pid); err != nil {
		return err
	}
	out.Reader, out.With = processTime(pid)-cpu, float64(took)/float64(out.Turns)
	if out.Memory, err = processMemory(pid); err != nil {
		return err
	}
	end, err := r.reader.stop(ctx)
	if err != nil {
		return err
	}
	r.reader = nil
	out.File = end.size
	return out.judge(r.loop, r.tracer, end)
}

// judge refuses a run that does not add up. A peer's losses are what it has not written, whatever it says.
func (t *traced) judge(l *loop, by *tracer, end recorded) error {
	if t.Bystander {
		if end.written+end.lost > 0 && by.exact {
			return fmt.Errorf("%d events of a process that is not traced", end.written+end.lost)
		}
		return nil
	}
	t.Asked = t.Turns * by.of(l)
	t.Written, t.Lost = end.written, end.lost
	switch {
	case !by.exact:
		t.Lost = max(0, t.Asked-t.Written)
	case t.Written+t.Lost != t.Asked+l.own:
		return fmt.Errorf("%d written and %d reported as lost are not the %d that were made", t.Written, t.Lost, t.Asked+l.own)
	}
	if t.Written < t.Asked/20 {
		return fmt.Errorf("%d events of %d are written: that is no figure", t.Written, t.Asked)
	}
	return nil
}

// close ends what still runs.
func (r *traceRun) close(ctx context.Context, failed bool) error {
	var errs []error
	if r.reader != nil {
		errs = append(errs, syscallKill(r.reader.pid()))
	}
	for _, w := range []*work{r.work, r.pod} {
		switch {
		case w == nil:
		case failed:
			w.kill()
		default:
			errs = append(errs, w.end(ctx))
		}
	}
	return errors.Join(errs...)
}

// measureTraces measures every tracer at every loop, and how fast they are.
func (b *bench) measureTraces(ctx context.Context, o *options, res *results, log io.Writer) error {
	res.Turns, res.TraceLoad = o.turns, load()
	for round := range o.rounds {
		began := time.Now()
		for i := range loops {
			if l := &loops[i]; strings.Contains(l.name, o.only) {
				some, err := b.traceRound(ctx, l, round, o.turns)
				if err != nil {
					return err
				}
				res.Traces = append(res.Traces, some...)
			}
		}
		fmt.Fprintf(log, "traces, round %d of %d: %s\n", round+1, o.rounds, time.Since(began).Round(time.Second))
	}
	res.TraceLoadAfter = load()
	if !strings.Contains(loopRead, o.only) {
		return nil
	}
	began := time.Now()
	err := b.searchTraceRates(ctx, res, o.turns*loopByName(loopRead).times)
	fmt.Fprintf(log, "traces, search of rates: %s\n", time.Since(began).Round(time.Second))
	return err
}

// traceRound measures every tracer once, forwards in even rounds and backwards in odd ones.
func (b *bench) traceRound(ctx context.Context, l *loop, round, turns int) ([]traced, error) {
	var out []traced
	for i := range tracers {
		t := &tracers[i]
		if round%2 == 1 {
			t = &tracers[len(tracers)-1-i]
		}
		if t.loop != "" && t.loop != l.name {
			continue
		}
		for _, bystander := range []bool{false, true} {
			if bystander && !t.bystander {
				continue
			}
			one, err := b.trace(ctx, l, t, bystander, turns)
			if err != nil {
				return nil, err
			}
			one.Round = round
			out = append(out, one)
		}
	}
	return out, nil
}
