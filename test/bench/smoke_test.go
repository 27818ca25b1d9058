package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sonde-operator/sonde/test/privileged"
)

// TestEveryEngineAddsUp runs each engine once in each kind of scenario with a few packets. It asserts no figure: that a run
// adds up is checked by the harness.
func TestEveryEngineAddsUp(t *testing.T) {
	b := smoke(t)
	for i, name := range []string{"64-disk", "1500-snap96-disk", scenarioMiss, scenarioStream} {
		s := scenarioByName(name)
		t.Run(name, func(t *testing.T) {
			samples, err := b.round(t.Context(), s, i, flood{size: s.size, count: 3000, beside: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range samples {
				// A sender's CPU time is its wall time without its waits, which may be more while others take the processor.
				if one.Packets == 0 || one.Wall <= 0 || (!s.stream() && (one.Beside.Frames != 3000 || one.Beside.Wall <= 0)) || (one.Engine != engineNone && (one.Process <= 0 || one.Memory.Ring == 0)) {
					t.Errorf("%+v", one)
				}
			}
		})
	}
}

func TestRateOfALossyEngineIsSearched(t *testing.T) {
	b := smoke(t)
	s := scenarioByName("64-disk")
	lossy := sample{Scenario: s.name, Engine: engineAFPacket, Packets: 1000, Captured: 900, Dropped: 100, Wall: 10_000_000}
	res := &results{Rounds: 1, Samples: []sample{lossy}}
	got, err := b.searchRate(t.Context(), res, s, engineByName(engineAFPacket), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if got.Bound || got.PPS <= 0 || got.PPS >= 100_000 {
		t.Errorf("%+v, want a rate below 100,000 that was searched for", got)
	}
}

func TestWhatDoesNotAddUpIsAnError(t *testing.T) {
	b := smoke(t)
	s, e := scenarioByName("512-tmpfs"), engineByName(engineAFPacket)
	liar := *e
	liar.start = func(ctx context.Context, b *bench, j *job) (running, error) {
		r, err := e.start(ctx, b, j)
		return lying{r}, err
	}
	if got, err := b.run(t.Context(), s, &liar, flood{size: s.size, count: 1000}); err == nil {
		t.Errorf("a run with a drop too many is a figure: %+v", got)
	}
}

// lying reports a drop that was none.
type lying struct{ running }

func (l lying) stop(ctx context.Context) (ended, error) {
	e, err := l.running.stop(ctx)
	e.dropped++
	return e, err
}

// agentDir is where the agent is built, for all tests; TestMain removes it.
var agentDir string

// builtAgent is the path of the agent of this tree.
var builtAgent = sync.OnceValues(func() (string, error) {
	var err error
	if agentDir, err = os.MkdirTemp("", "bench"); err != nil {
		return "", err
	}
	path := filepath.Join(agentDir, "agent")
	build := exec.Command("go", "build", "-o", path, "../../cmd/agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// smoke is a bench with the agent of this tree, and nothing of it left behind.
func smoke(t *testing.T) *bench {
	t.Helper()
	privileged.Need(t)
	agent, err := builtAgent()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b, err := newBench(t.Context(), &options{agent: agent, disk: dir, memory: "/dev/shm", stream: 8 << 20, ring: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cgroup, dirs := b.cgroup, []string{b.disk, b.memory}
		if err := b.close(context.Background()); err != nil {
			t.Error(err)
		}
		for _, left := range append(dirs, cgroup) {
			if _, err := os.Stat(left); err == nil {
				t.Errorf("%s is left behind", left)
			}
		}
	})
	return b
}
