package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// traceRate is the highest rate at which a tracer lost nothing, with a loop on each of two CPUs, and the tracer on
// either.
type traceRate struct {
	Tracer string  `json:"tracer"`
	Rate   float64 `json:"rate"` // events per second
	// Bound says that the loops, without a pause, could do no more beside the tracer.
	Bound bool `json:"bound"`
	// Lossy is the lowest rate at which it lost something; zero where there was none.
	Lossy float64 `json:"lossy"`
}

const (
	traceRateSteps   = 6
	traceRateSeconds = 2
)

// searchTraceRates looks for the highest rate without loss of each tracer that does not hold up the loop.
func (b *bench) searchTraceRates(ctx context.Context, res *results, turns int) error {
	for i := range tracers {
		t := &tracers[i]
		if t.loop != "" || t.name == tracerStrace {
			continue
		}
		r, err := b.searchTraceRate(ctx, t, max(turns/t.slow, 1))
		if err != nil {
			return fmt.Errorf("search for the highest rate of %s: %w", t.label, err)
		}
		res.TraceRates = append(res.TraceRates, r)
	}
	return nil
}

// searchTraceRate halves the interval between a rate that is lossless and one that is not. A rate that was asked for
// counts as what the loops really did.
func (b *bench) searchTraceRate(ctx context.Context, t *tracer, turns int) (traceRate, error) {
	out := traceRate{Tracer: t.name}
	full, lost, err := b.rateStep(ctx, t, order{turns: turns})
	if err != nil {
		return out, err
	}
	if lost == 0 {
		out.Rate, out.Bound = full, true
		return out, nil
	}
	out.Lossy = full
	low, high := 0.0, full
	for range traceRateSteps {
		at := (low + high) / 2
		each := order{turns: max(1, min(turns, int(at/2*traceRateSeconds))), rate: at / 2}
		did, lost, err := b.rateStep(ctx, t, each)
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

// rateStep has two loops of the Pod make events, each as ordered, and returns how many in a second they made, and how
// many were lost.
func (b *bench) rateStep(ctx context.Context, t *tracer, each order) (rate float64, lost int, err error) {
	l := loopByName(loopRead)
	dir, err := os.MkdirTemp(b.disk, "run")
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
	for _, cpu := range []int{b.sendCPU, b.captureCPU} {
		w, err := b.startLoop(ctx, l, cpu, true)
		if err != nil {
			return 0, 0, err
		}
		both = append(both, w)
	}
	reader, err := t.start(ctx, b, &traceJob{dir: dir, loop: l, cpu: -1})
	if err != nil {
		return 0, 0, err
	}
	wall, err := bothWork(ctx, both, reader, each)
	if err != nil {
		return 0, 0, errors.Join(err, syscallKill(reader.pid()))
	}
	end, err := reader.stop(ctx)
	if err != nil {
		return 0, 0, err
	}
	made := 2 * each.turns
	switch {
	case !t.exact:
		end.lost = max(0, made-end.written)
	case end.written+end.lost != made+2*l.own:
		return 0, 0, fmt.Errorf("%d written and %d reported as lost are not the %d that were made", end.written, end.lost, made+2*l.own)
	}
	return float64(made) / wall.Seconds(), end.lost, nil
}

// bothWork returns when both have done their turns, and the tracer has caught up.
func bothWork(ctx context.Context, both []*work, reader tracing, each order) (longer time.Duration, err error) {
	room := traced{Loop: loopRead, Tracer: tracerSonde, Turns: 2 * each.turns}
	if err := errors.Join(settled(ctx, reader.pid()), warm(traceRoom(&room))); err != nil {
		return 0, err
	}
	for _, w := range both {
		if err := w.tell(each); err != nil {
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
	return longer, settled(ctx, reader.pid())
}
