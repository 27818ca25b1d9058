package capture

import (
	"context"
	"fmt"

	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// rateSeconds is how long the traffic of one step lasts.
const rateSeconds = 0.6

// SearchRates searches the highest rate without loss of each engine in the scenarios with a disk and a filter.
func SearchRates(ctx context.Context, b *host.Env, res *figures.Results, packets int) error {
	for _, name := range []string{"64-disk", "512-disk", "1500-disk"} {
		s := figures.ScenarioByName(name)
		for i := range figures.Engines {
			e := &figures.Engines[i]
			if e.Name == figures.EngineNone {
				continue
			}
			r, err := searchRate(ctx, b, res, s, e, packets)
			if err != nil {
				return err
			}
			res.Rates = append(res.Rates, r)
		}
	}
	return nil
}

// searchRate bisects between a rate without loss and one with loss. It is skipped if the engine loses nothing at the
// full rate, including a run that sends only to the target.
func searchRate(ctx context.Context, b *host.Env, res *figures.Results, s *figures.Scenario, e *figures.Engine, packets int) (figures.Rate, error) {
	full := figures.MedianOf(res.Each(s.Name, e.Name, (*figures.Sample).PPS))
	out := figures.Rate{Scenario: s.Name, Engine: e.Name, PPS: full, Bound: true}
	if _, most := figures.Bounds(res.Each(s.Name, e.Name, (*figures.Sample).Loss)); most == 0 {
		one, err := runEngine(ctx, b, s, e, Flood{Size: s.Size, Count: packets})
		if out.PPS = one.PPS(); err != nil || one.Dropped == 0 {
			return out, err
		}
	}
	low, high := 0.0, out.PPS
	out.PPS, out.Bound = 0, false
	for range figures.RateSteps {
		at := (low + high) / 2
		f := Flood{Size: s.Size, Count: min(packets, int(at*rateSeconds)), rate: at}
		one, err := runEngine(ctx, b, s, e, f)
		if err != nil {
			return out, fmt.Errorf("at %.0f packets per second: %w", at, err)
		}
		if one.Dropped == 0 {
			low = at
		} else {
			high = at
		}
	}
	out.PPS = low
	return out, nil
}
