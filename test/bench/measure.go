package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/test/bench/capture"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
	"github.com/sonde-operator/sonde/test/bench/intercept"
	"github.com/sonde-operator/sonde/test/bench/live"
	"github.com/sonde-operator/sonde/test/bench/trace"
)

// measure runs the benchmark.
func measure(ctx context.Context, o *options, log io.Writer) (*figures.Results, error) {
	b, err := host.New(ctx, &o.Settings)
	if err != nil {
		return nil, err
	}
	res, err := measureAll(ctx, b, o, log)
	return res, errors.Join(err, b.Close(ctx))
}

func measureAll(ctx context.Context, b *host.Env, o *options, log io.Writer) (*figures.Results, error) {
	res := &figures.Results{Machine: host.Describe(ctx, b), Rounds: o.rounds, PacketsEach: o.packets}
	if b.Held && !o.cold { // otherwise the host would take it back
		if err := host.WarmAll(); err != nil {
			return nil, err
		}
	}
	if o.has(partCapture) {
		if err := measureCaptures(ctx, b, o, res, log); err != nil {
			return nil, err
		}
	}
	if o.has(partTrace) {
		if err := measureTraces(ctx, b, o, res, log); err != nil {
			return nil, err
		}
	}
	if o.has(partIntercept) && o.only == "" {
		if err := measureIntercepts(ctx, b, o, res, log); err != nil {
			return nil, err
		}
	}
	if o.has(partLive) && o.only == "" {
		if err := measureLive(ctx, b, o, res, log); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// measureCaptures measures every engine in every scenario, and its highest rate without loss.
func measureCaptures(ctx context.Context, b *host.Env, o *options, res *figures.Results, log io.Writer) error {
	if err := capture.Calibrate(ctx, b); err != nil {
		return err
	}
	for round := range o.rounds {
		began := time.Now()
		for i := range figures.Scenarios {
			s := &figures.Scenarios[i]
			for turn := 0; turn < max(s.Turns, 1) && o.wants(s); turn++ {
				samples, err := capture.Round(ctx, b, s, round+turn*o.rounds, capture.Flood{Size: s.Size, Count: o.packets, Beside: true})
				if err != nil {
					return err
				}
				res.Samples = append(res.Samples, samples...)
			}
		}
		fmt.Fprintf(log, "round %d of %d: %s\n", round+1, o.rounds, time.Since(began).Round(time.Second))
	}
	res.Machine.LoadAfter = host.Load()
	if o.only != "" {
		return nil
	}
	began := time.Now()
	err := capture.SearchRates(ctx, b, res, o.packets)
	fmt.Fprintf(log, "search of rates: %s\n", time.Since(began).Round(time.Second))
	return err
}

// measureTraces measures every tracer with every loop, and its highest rate without loss.
func measureTraces(ctx context.Context, b *host.Env, o *options, res *figures.Results, log io.Writer) error {
	res.Turns, res.TraceLoad = o.turns, host.Load()
	for round := range o.rounds {
		began := time.Now()
		for i := range figures.Loops {
			if l := &figures.Loops[i]; strings.Contains(l.Name, o.only) {
				some, err := trace.Round(ctx, b, l, round, o.turns)
				if err != nil {
					return err
				}
				res.Traces = append(res.Traces, some...)
			}
		}
		fmt.Fprintf(log, "traces, round %d of %d: %s\n", round+1, o.rounds, time.Since(began).Round(time.Second))
	}
	res.TraceLoadAfter = host.Load()
	if read := figures.LoopRead; !strings.Contains(read, o.only) {
		return nil
	}
	began := time.Now()
	err := trace.SearchRates(ctx, b, res, o.turns*figures.LoopByName(figures.LoopRead).Times)
	fmt.Fprintf(log, "traces, search of rates: %s\n", time.Since(began).Round(time.Second))
	return err
}

// measureIntercepts measures the data path of an intercept.
func measureIntercepts(ctx context.Context, b *host.Env, o *options, res *figures.Results, log io.Writer) error {
	version, err := intercept.WireGuardVersion(o.tunnel.WireGuard)
	if err != nil {
		return err
	}
	res.Machine.Versions["wireguard"], res.Intercept.Load = version, host.Load()
	for round := range o.rounds {
		began := time.Now()
		if err := intercept.Round(ctx, b, round, &o.tunnel, &res.Intercept); err != nil {
			return err
		}
		fmt.Fprintf(log, "intercepts, round %d of %d: %s\n", round+1, o.rounds, time.Since(began).Round(time.Second))
	}
	res.Intercept.LoadAfter = host.Load()
	return nil
}

// measureLive measures what reads a running capture, and captures that name processes.
func measureLive(ctx context.Context, b *host.Env, o *options, res *figures.Results, log io.Writer) error {
	if err := capture.Calibrate(ctx, b); err != nil {
		return err
	}
	res.Live.Load = host.Load()
	for round := range o.rounds {
		began := time.Now()
		if err := live.Round(ctx, b, round, &o.live, &res.Live); err != nil {
			return err
		}
		fmt.Fprintf(log, "live captures, round %d of %d: %s\n", round+1, o.rounds, time.Since(began).Round(time.Second))
	}
	res.Live.LoadAfter = host.Load()
	return nil
}

// wants reports whether a scenario is to be measured.
func (o *options) wants(s *figures.Scenario) bool { return strings.Contains(s.Name, o.only) }
