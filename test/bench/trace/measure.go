// Package trace measures tracers of system calls: it runs loops of calls under a tracer, and checks its counts.
package trace

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// eventBytes is the largest size of an event in the page cache.
const eventBytes = 300

// traceRoom returns how much memory a run needs: for its file in the page cache, and some for everything else.
func traceRoom(t *figures.Traced) int64 {
	const rest = 64 << 20
	if t.Bystander {
		return rest
	}
	return int64(t.Turns*figures.TracerByName(t.Tracer).Calls(figures.LoopByName(t.Loop)))*eventBytes + rest
}

// traceRun is one run of a tracer: a process that makes calls, and another process of the Pod that sleeps.
type traceRun struct {
	loop   *figures.Loop
	tracer *figures.Tracer
	pod    *work
	work   *work
	reader tracing
}

// runTracer measures a tracer once. Counts that do not add up are an error.
func runTracer(ctx context.Context, b *host.Env, l *figures.Loop, t *figures.Tracer, bystander bool, turns int) (figures.Traced, error) {
	out := figures.Traced{Loop: l.Name, Tracer: t.Name, Bystander: bystander, Turns: turns * l.Times}
	bare := max(out.Turns/2, 1)
	if !bystander {
		out.Turns = max(out.Turns/t.Slow, 1)
	}
	if err := traceIn(ctx, b, l, t, bare, &out); err != nil {
		return out, fmt.Errorf("%s, %s: %w", l.Label, t.Label, err)
	}
	return out, nil
}

func traceIn(ctx context.Context, b *host.Env, l *figures.Loop, t *figures.Tracer, bare int, out *figures.Traced) (err error) {
	dir, err := os.MkdirTemp(b.Disk, "run")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &traceRun{loop: l, tracer: t}
	defer func() { err = errors.Join(err, r.close(ctx, err != nil)) }()
	if r.pod, err = startLoop(ctx, b, l, -1, true); err != nil {
		return err
	}
	if r.work, err = startLoop(ctx, b, l, b.SendCPU, !out.Bystander); err != nil {
		return err
	}
	before, err := r.work.do(ctx, order{turns: bare})
	if err != nil {
		return err
	}
	if r.reader, err = starters[t.Name](ctx, b, &traceJob{dir: dir, loop: l, cpu: b.CaptureCPU}); err != nil {
		return err
	}
	if err := errors.Join(host.Settled(ctx, r.reader.PID()), host.Warm(traceRoom(out))); err != nil {
		return err
	}
	if err := r.measure(ctx, out); err != nil {
		return err
	}
	after, err := r.work.do(ctx, order{turns: bare})
	out.Bare = float64(before+after) / float64(2*bare)
	return err
}

// measure runs the turns under the tracer, and ends the tracer.
func (r *traceRun) measure(ctx context.Context, out *figures.Traced) error {
	pid, at := r.reader.PID(), r.work
	if own, ok := r.reader.(interface{ worker() *work }); ok {
		at = own.worker()
	}
	cpu := host.ProcessTime(pid)
	took, err := at.do(ctx, order{turns: out.Turns})
	if err != nil {
		return err
	}
	if err := host.Settled(ctx, pid); err != nil {
		return err
	}
	out.Reader, out.With = host.ProcessTime(pid)-cpu, float64(took)/float64(out.Turns)
	if out.Memory, err = host.ProcessMemory(pid); err != nil {
		return err
	}
	end, err := r.reader.stop(ctx)
	if err != nil {
		return err
	}
	r.reader = nil
	out.File = end.size
	return judgeTrace(out, r.loop, r.tracer, end)
}

// judgeTrace returns an error if the counts do not add up. The losses of a peer are the events that it has not written.
func judgeTrace(t *figures.Traced, l *figures.Loop, by *figures.Tracer, end recorded) error {
	if t.Bystander {
		if end.written+end.lost > 0 && by.Exact {
			return fmt.Errorf("%d events of a process that is not traced", end.written+end.lost)
		}
		return nil
	}
	t.Asked = t.Turns * by.Calls(l)
	t.Written, t.Lost = end.written, end.lost
	switch {
	case !by.Exact:
		t.Lost = max(0, t.Asked-t.Written)
	case t.Written+t.Lost != t.Asked+l.Own:
		return fmt.Errorf("%d written and %d reported as lost are not the %d that were made", t.Written, t.Lost, t.Asked+l.Own)
	}
	if t.Written < t.Asked/20 {
		return fmt.Errorf("%d events of %d are written: too few to measure", t.Written, t.Asked)
	}
	return nil
}

// close ends the processes that are still running.
func (r *traceRun) close(ctx context.Context, failed bool) error {
	var errs []error
	if r.reader != nil {
		errs = append(errs, host.KillPID(r.reader.PID()))
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

// Round measures every tracer once: forwards in even rounds and backwards in odd ones.
func Round(ctx context.Context, b *host.Env, l *figures.Loop, round, turns int) ([]figures.Traced, error) {
	var out []figures.Traced
	for i := range figures.Tracers {
		t := &figures.Tracers[i]
		if round%2 == 1 {
			t = &figures.Tracers[len(figures.Tracers)-1-i]
		}
		if t.Loop != "" && t.Loop != l.Name {
			continue
		}
		for _, bystander := range []bool{false, true} {
			if bystander && !t.Bystander {
				continue
			}
			one, err := runTracer(ctx, b, l, t, bystander, turns)
			if err != nil {
				return nil, err
			}
			one.Round = round
			out = append(out, one)
		}
	}
	return out, nil
}

// Roles are the roles of this package.
var Roles = map[string]func(args []string) error{
	"role-host":    runHost,
	"role-loop":    runLoop,
	"role-records": runRecords,
	"role-tracefs": runTracefs,
}
