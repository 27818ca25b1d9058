package capture

import (
	"context"
	"testing"

	"github.com/sonde-operator/sonde/test/bench/benchtest"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// TestEveryEngineAddsUp runs each engine once in each kind of scenario with a few packets. It asserts no figure: the
// harness checks that a run adds up.
func TestEveryEngineAddsUp(t *testing.T) {
	b := benchtest.Open(t)
	for i, name := range []string{"64-disk", "1500-snap96-disk", figures.ScenarioMiss, figures.ScenarioStream} {
		s := figures.ScenarioByName(name)
		t.Run(name, func(t *testing.T) {
			samples, err := Round(t.Context(), b, s, i, Flood{Size: s.Size, Count: 3000, Beside: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range samples {
				// The sender's CPU time is not checked: it is computed from the wall time minus the waits for a CPU, and
				// may be negative on a busy machine.
				if one.Packets == 0 || one.Wall <= 0 || (!s.Stream() && (one.Beside.Frames != 3000 || one.Beside.Wall <= 0)) || (one.Engine != figures.EngineNone && (one.Process <= 0 || one.Memory.Ring == 0)) {
					t.Errorf("%+v, want packets, times and memory above zero", one)
				}
			}
		})
	}
}

func TestRateOfALossyEngineIsSearched(t *testing.T) {
	b := benchtest.Open(t)
	s := figures.ScenarioByName("64-disk")
	lossy := figures.Sample{Scenario: s.Name, Engine: figures.EngineAFPacket, Packets: 1000, Captured: 900, Dropped: 100, Wall: 10_000_000}
	res := &figures.Results{Rounds: 1, Samples: []figures.Sample{lossy}}
	got, err := searchRate(t.Context(), b, res, s, figures.EngineByName(figures.EngineAFPacket), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if got.Bound || got.PPS <= 0 || got.PPS >= 100_000 {
		t.Errorf("%+v, want a rate that was searched for, below 100,000", got)
	}
}

func TestWhatDoesNotAddUpIsAnError(t *testing.T) {
	b := benchtest.Open(t)
	s, e := figures.ScenarioByName("512-tmpfs"), figures.EngineByName(figures.EngineAFPacket)
	start := starters[e.Name]
	t.Cleanup(func() { starters[e.Name] = start })
	starters[e.Name] = func(ctx context.Context, b *host.Env, j *job) (running, error) {
		r, err := start(ctx, b, j)
		return lying{r}, err
	}
	if got, err := runEngine(t.Context(), b, s, e, Flood{Size: s.Size, Count: 1000}); err == nil {
		t.Errorf("a run that reports one drop too many gives a figure, want an error: %+v", got)
	}
}

// lying reports one drop that did not happen.
type lying struct{ running }

func (l lying) stop(ctx context.Context) (ended, error) {
	e, err := l.running.stop(ctx)
	e.dropped++
	return e, err
}

// TestMain lets the test's own binary be a child of bench.
func TestMain(m *testing.M) { benchtest.Main(m, host.MergeRoles(host.Roles, Roles)) }
