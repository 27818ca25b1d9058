package figures

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// missed are the goals that were not met.
func missed(r *Results) []string {
	var out []string
	for _, g := range goals(r) {
		if !g.met {
			out = append(out, g.text)
		}
	}
	return out
}

func TestGoals(t *testing.T) {
	const (
		slowBPF    = "Sonde, bpf: CPU per packet at 512 B, disk: at most 1/2.2 of tcpdump -B 65536"
		lossyBPF   = "Sonde, bpf: no loss at full rate where tcpdump loses"
		largeBPF   = "Sonde, bpf: memory beside its rings and maps: below 64 MiB"
		slow       = "Sonde, afpacket: CPU per packet at 512 B, disk: not above tcpdump -B 65536"
		lossy      = "Sonde, afpacket: no loss at full rate where tcpdump loses"
		large      = "Sonde, afpacket: memory beside its rings and maps: below 64 MiB"
		small, big = 40 << 20, 96 << 20
	)
	cases := map[string]struct {
		bpf, sockets time.Duration
		dropped      int // Sonde's, where the peer drops too
		peak         int64
		want         []string
	}{
		"all met":      {bpf: 363, sockets: 800, peak: small},
		"too slow":     {bpf: 364, sockets: 900, peak: small, want: []string{slowBPF, slow}},
		"too lossy":    {bpf: 100, sockets: 100, dropped: 1, peak: small, want: []string{lossyBPF, lossy}},
		"too large":    {bpf: 100, sockets: 100, peak: big, want: []string{largeBPF, large}},
		"all too much": {bpf: 900, sockets: 900, dropped: 1, peak: big, want: []string{slowBPF, lossyBPF, largeBPF, slow, lossy, large}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := madeOfBoth("512-disk", 3, 1000, tc.bpf, tc.sockets)
			r.find("512-disk", EngineMain, 0).Dropped = 1
			for _, engine := range own {
				r.find("512-disk", engine, 1).Dropped = tc.dropped
				r.find("512-disk", engine, 2).Memory.Peak = tc.peak
			}
			if diff := cmp.Diff(tc.want, missed(r)); diff != "" {
				t.Errorf("missed (-want +got):\n%s", diff)
			}
			if page := CapturePage(r); strings.Contains(page, "not met") != (len(tc.want) > 0) {
				t.Errorf("the page does not say so:\n%s", page)
			}
		})
	}
}

// An engine that was not measured has no goals, met or missed.
func TestGoalsOfWhatWasMeasured(t *testing.T) {
	r := made("512-disk", 1, 1000, 400)
	for i := range r.Samples {
		if r.Samples[i].Engine == EngineBPF {
			r.Samples[i].Engine = "another"
		}
	}
	if len(goals(r)) == 0 {
		t.Error("no goals of the engine that was measured")
	}
	for _, g := range goals(r) {
		if strings.Contains(g.text, "bpf") {
			t.Errorf("a goal of an engine that was not measured: %+v", g)
		}
	}
}

func TestMissGoal(t *testing.T) {
	for name, tc := range map[string]struct {
		cost    time.Duration
		wantMet bool
	}{"below": {59, true}, "as much": {60, false}} {
		t.Run(name, func(t *testing.T) {
			got := missGoals(madeOfBoth(ScenarioMiss, 3, 500, tc.cost, 200), EngineByName(EngineBPF))
			if len(got) != 1 || got[0].met != tc.wantMet {
				t.Errorf("%+v, want met %v", got, tc.wantMet)
			}
		})
	}
}

func TestThroughputGoal(t *testing.T) {
	const bare, theirs = 10 * time.Second, 12 * time.Second // of a stream
	for name, tc := range map[string]struct {
		ours    time.Duration
		wantMet bool
	}{"falls less": {11 * time.Second, true}, "as much": {theirs, false}, "more": {13 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			r := made(ScenarioStream, 2, 1000, 400)
			for i := range r.Samples {
				s := &r.Samples[i]
				s.Wall = map[string]time.Duration{EngineNone: bare, EngineMain: theirs}[s.Engine]
				if s.Wall == 0 {
					s.Wall = tc.ours
				}
			}
			got := throughputGoals(r, EngineByName(EngineBPF))
			if len(got) != 1 || got[0].met != tc.wantMet || !strings.Contains(got[0].figure, "under tcpdump 83.3 (83.3–83.3) %") {
				t.Errorf("%+v, want met %v", got, tc.wantMet)
			}
		})
	}
}

func TestRateGoal(t *testing.T) {
	const tenGigabits = 10e9 / 8 / 1500
	for name, tc := range map[string]struct {
		dropped    int
		rates      []Rate
		wantMet    bool
		wantFigure string
	}{
		"no loss at the sender's limit": {wantMet: true, wantFigure: "none at the sender's 0.0 Gbit/s"},
		"at its limit without pauses":   {rates: []Rate{{Scenario: scenarioLarge, Engine: EngineBPF, PPS: tenGigabits / 2, Bound: true}}, wantMet: true, wantFigure: "none at the sender's 5.0 Gbit/s"},
		"loss only without pauses":      {rates: []Rate{{Scenario: scenarioLarge, Engine: EngineBPF, PPS: tenGigabits / 2}}, wantFigure: "none up to 5.0 Gbit/s"},
		"loss above the goal's rate":    {dropped: 1, rates: []Rate{{Scenario: scenarioLarge, Engine: EngineBPF, PPS: tenGigabits}}, wantMet: true, wantFigure: "none up to 10.0 Gbit/s"},
		"loss below it":                 {dropped: 1, rates: []Rate{{Scenario: scenarioLarge, Engine: EngineBPF, PPS: tenGigabits / 2}}, wantFigure: "none up to 5.0 Gbit/s"},
		"loss, and nothing else tried":  {dropped: 1, wantFigure: "lost at the sender's limit; no other rate was tried"},
		"another's rate":                {dropped: 1, rates: []Rate{{Scenario: scenarioLarge, Engine: EngineMain, PPS: tenGigabits}}, wantFigure: "lost at the sender's limit; no other rate was tried"},
	} {
		t.Run(name, func(t *testing.T) {
			r := made(scenarioLarge, 2, 1000, 400)
			r.Rates = tc.rates
			r.find(scenarioLarge, EngineBPF, 1).Dropped = tc.dropped
			got := rateGoals(r, EngineByName(EngineBPF))
			if len(got) != 1 || got[0].met != tc.wantMet || got[0].figure != tc.wantFigure {
				t.Errorf("%+v, want %q, met %v", got, tc.wantFigure, tc.wantMet)
			}
		})
	}
}
