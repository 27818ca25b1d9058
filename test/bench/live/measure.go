// Package live measures what a stream of a running capture costs, how long a packet takes to its reader, and what the names
// of processes add to a capture. Probe, keeper, plugin and tshark are processes of their own; a stand-in answers for API
// server and manager.
package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/test/bench/capture"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// Sizes of a round.
type Sizes struct {
	Plugin  string // path of kubectl-sonde
	Frames  int    // of one measurement of the names of processes
	Packets int    // whose latency is measured, by each way
	Ways    []figures.LiveWay
	Follow  time.Duration // of a stream of several Pods
}

// Pods that are followed at a time, and the bytes per second of each.
const (
	followedPods = 10
	followedRate = 5_000_000
)

// Longest is how long a stream of several Pods may be measured: each of its files, and the keeper, is bounded.
const Longest = time.Minute

// Round measures everything once, and adds the samples to a result. Odd rounds take everything backwards, so that nothing
// profits if the machine becomes slower or faster.
func Round(ctx context.Context, b *host.Env, round int, o *Sizes, to *figures.Live) error {
	if err := flows(ctx, b, round, o, to); err != nil {
		return err
	}
	f, err := follow(ctx, b, o)
	if err != nil {
		return fmt.Errorf("follow %d Pods: %w", followedPods, err)
	}
	f.Round = round
	to.Followed = append(to.Followed, f)
	ways := slices.Clone(o.Ways)
	if round%2 == 1 {
		slices.Reverse(ways)
	}
	for i := range ways {
		l, err := latency(ctx, b, &ways[i], o)
		if err != nil {
			return fmt.Errorf("latency, %s: %w", ways[i].Name, err)
		}
		l.Round = round
		to.Latencies = append(to.Latencies, l)
	}
	return nil
}

// flows measures captures without and with the names of processes, one after the other.
func flows(ctx context.Context, b *host.Env, round int, o *Sizes, to *figures.Live) error {
	for i := range figures.FlowPairs {
		pair := []*figures.Scenario{&figures.FlowPairs[i].Off, &figures.FlowPairs[i].On}
		if round%2 == 1 {
			slices.Reverse(pair)
		}
		for _, s := range pair {
			one, err := capture.Flows(ctx, b, s, o.Frames)
			if err != nil {
				return err
			}
			one.Round = round
			to.Flows = append(to.Flows, one)
		}
	}
	return nil
}
