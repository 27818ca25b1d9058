package trace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

const (
	rateSteps   = 6
	rateSeconds = 2
)

// SearchRates searches the highest rate without loss of each tracer that does not block the loop.
func SearchRates(ctx context.Context, b *host.Env, res *figures.Results, turns int) error {
	for i := range figures.Tracers {
		t := &figures.Tracers[i]
		if t.Loop != "" || t.Name == figures.TracerStrace {
			continue
		}
		r, err := searchRate(ctx, b, t, max(turns/t.Slow, 1))
		if err != nil {
			return fmt.Errorf("search for the highest rate of %s: %w", t.Label, err)
		}
		res.TraceRates = append(res.TraceRates, r)
	}
	return nil
}

// searchRate bisects between a rate without loss and one with loss. It reports the rate that the loops reached, not the
// one that was ordered.
func searchRate(ctx context.Context, b *host.Env, t *figures.Tracer, turns int) (figures.TraceRate, error) {
	out := figures.TraceRate{Tracer: t.Name}
	full, lost, err := rateStep(ctx, b, t, order{turns: turns})
	if err != nil {
		return out, err
	}
	if lost == 0 {
		out.Rate, out.Bound = full, true
		return out, nil
	}
	out.Lossy = full
	low, high := 0.0, full
	for range rateSteps {
		at := (low + high) / 2
		each := order{turns: max(1, min(turns, int(at/2*rateSeconds))), rate: at / 2}
		did, lost, err := rateStep(ctx, b, t, each)
		switch {
		case err != nil:
			return out, fmt.Errorf("at %.0f events per second: %w", at, err)
		case lost > 0:
			high, out.Lossy = at, min(out.Lossy, did)
		default:
			low, out.Rate = at, max(out.Rate, did)
		}
	}
	return out, nil
}

// rateStep runs two loops of the Pod with an order each. It returns the events per second that they made, and how many
// were lost.
func rateStep(ctx context.Context, b *host.Env, t *figures.Tracer, each order) (rate float64, lost int, err error) {
	l := figures.LoopByName(figures.LoopRead)
	dir, err := os.MkdirTemp(b.Disk, "run")
	if err != nil {
		return 0, 0, fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var both []*work
	defer func() {
		for _, w := range both {
			w.kill()
		}
	}()
	for _, cpu := range []int{b.SendCPU, b.CaptureCPU} {
		w, err := startLoop(ctx, b, l, cpu, true)
		if err != nil {
			return 0, 0, err
		}
		both = append(both, w)
	}
	reader, err := starters[t.Name](ctx, b, &traceJob{dir: dir, loop: l, cpu: -1})
	if err != nil {
		return 0, 0, err
	}
	wall, err := bothWork(ctx, both, reader, each)
	if err != nil {
		return 0, 0, errors.Join(err, host.KillPID(reader.PID()))
	}
	end, err := reader.stop(ctx)
	if err != nil {
		return 0, 0, err
	}
	made := 2 * each.turns
	switch {
	case !t.Exact:
		end.lost = max(0, made-end.written)
	case end.written+end.lost != made+2*l.Own:
		return 0, 0, fmt.Errorf("%d written and %d reported as lost are not the %d that were made", end.written, end.lost, made+2*l.Own)
	}
	return float64(made) / wall.Seconds(), end.lost, nil
}

// bothWork returns when both workers have finished their turns and the tracer has written all events.
func bothWork(ctx context.Context, both []*work, reader tracing, each order) (longer time.Duration, err error) {
	room := figures.Traced{Loop: figures.LoopRead, Tracer: figures.TracerSonde, Turns: 2 * each.turns}
	if err := errors.Join(host.Settled(ctx, reader.PID()), host.Warm(traceRoom(&room))); err != nil {
		return 0, err
	}
	for _, w := range both {
		if err := w.send(each); err != nil {
			return 0, err
		}
	}
	for _, w := range both {
		wall, err := w.answer(ctx)
		if err != nil {
			return 0, err
		}
		longer = max(longer, wall)
	}
	return longer, host.Settled(ctx, reader.PID())
}
