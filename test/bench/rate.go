package main

import (
	"context"
	"fmt"
)

// rate is the highest rate at which an engine lost nothing.
type rate struct {
	Scenario string  `json:"scenario"`
	Engine   string  `json:"engine"`
	PPS      float64 `json:"pps"`
	// Bound says that this is the sender's limit and not the engine's.
	Bound bool `json:"bound"`
}

const (
	rateSteps   = 5
	rateSeconds = 0.6 // of traffic in one step
)

// searchRates looks for the highest rate without loss of each engine, where the file is on a disk and there is a filter.
func (b *bench) searchRates(ctx context.Context, res *results, packets int) error {
	for _, name := range []string{"64-disk", "512-disk", "1500-disk"} {
		s := scenarioByName(name)
		for i := range engines {
			e := &engines[i]
			if e.start == nil {
				continue
			}
			r, err := b.searchRate(ctx, res, s, e, packets)
			if err != nil {
				return err
			}
			res.Rates = append(res.Rates, r)
		}
	}
	return nil
}

// searchRate halves the interval between a rate that is lossless and one that is not. An engine that never lost at
// full rate needs no search, if it loses nothing either where nothing is sent beside it.
func (b *bench) searchRate(ctx context.Context, res *results, s *scenario, e *engine, packets int) (rate, error) {
	full := medianOf(res.each(s.name, e.name, (*sample).pps))
	out := rate{Scenario: s.name, Engine: e.name, PPS: full, Bound: true}
	if _, most := bounds(res.each(s.name, e.name, (*sample).loss)); most == 0 {
		one, err := b.run(ctx, s, e, flood{size: s.size, count: packets})
		if out.PPS = one.pps(); err != nil || one.Dropped == 0 {
			return out, err
		}
	}
	low, high := 0.0, out.PPS
	out.PPS, out.Bound = 0, false
	for range rateSteps {
		at := (low + high) / 2
		f := flood{size: s.size, count: min(packets, int(at*rateSeconds)), rate: at}
		one, err := b.run(ctx, s, e, f)
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
