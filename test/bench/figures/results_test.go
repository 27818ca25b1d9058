package figures

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// made is a run of n rounds in which everything took as long as given, in nanoseconds per packet, and the peer 800.
func made(scenario string, n int, bare, sockets time.Duration) *Results {
	return madeOfBoth(scenario, n, bare, sockets/2, sockets)
}

// madeOfBoth is made, with another figure for BPF programs.
func madeOfBoth(scenario string, n int, bare, bpf, sockets time.Duration) *Results {
	const packets, theirs = 1000, 800
	r := &Results{Rounds: n, PacketsEach: packets}
	for round := range n {
		for engine, each := range map[string]time.Duration{EngineNone: 0, EngineBPF: bpf, EngineAFPacket: sockets, EngineMain: theirs} {
			r.Samples = append(r.Samples, Sample{
				Scenario: scenario, Engine: engine, Round: round, Packets: packets, Bytes: packets * 100, Captured: packets,
				Wall: time.Second, Sender: packets * (bare + each/2), Process: packets * each / 2,
				Beside: Sent{Frames: packets / 4, CPU: packets / 4 * bare},
				Memory: Memory{Peak: 40 << 20, Ring: 32 << 20},
			})
		}
	}
	return r
}

func TestCosts(t *testing.T) {
	r := made("512-disk", 3, 1000, 400)
	s := ScenarioByName("512-disk")
	if diff := cmp.Diff([]float64{400, 400, 400}, totals(r.costs(s, EngineAFPacket))); diff != "" {
		t.Errorf("costs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{0.5, 0.5, 0.5}, r.ratios(s, EngineAFPacket, EngineMain)); diff != "" {
		t.Errorf("ratios (-want +got):\n%s", diff)
	}
	r.find("512-disk", EngineAFPacket, 0).Captured /= 2
	if diff := cmp.Diff([]float64{1, 0.5, 0.5}, r.ratios(s, EngineAFPacket, EngineMain)); diff != "" {
		t.Errorf("ratios with loss (-want +got):\n%s", diff)
	}
}

// The cost of an engine is compared with the same traffic without a capture: a stream with the median of the round's
// other streams, frames with the frames that were sent beside them.
func TestBare(t *testing.T) {
	for name, tc := range map[string]struct {
		scenario string
		change   func(*Results)
	}{
		"stream": {ScenarioStream, func(r *Results) {
			for _, off := range []time.Duration{500 * time.Microsecond, -100 * time.Microsecond} {
				other := *r.find(ScenarioStream, EngineNone, 1)
				other.Sender += off
				r.Samples = append(r.Samples, other)
			}
		}},
		"frames": {"512-disk", func(r *Results) {
			one := r.find("512-disk", EngineAFPacket, 1)
			one.Sender += 1000 * 300 // a slower machine, in this run
			one.Beside.CPU += 250 * 300
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := made(tc.scenario, 2, 1000, 400)
			tc.change(r)
			if diff := cmp.Diff([]float64{400, 400}, totals(r.costs(ScenarioByName(tc.scenario), EngineAFPacket))); diff != "" {
				t.Errorf("costs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOrderOfARound(t *testing.T) {
	for name, tc := range map[string]struct {
		scenario string
		round    int
		want     []string
	}{
		"forwards":  {"512-tmpfs", 0, []string{EngineBPF, EngineAFPacket, EngineMain, EngineNone}},
		"backwards": {"512-tmpfs", 1, []string{EngineMain, EngineAFPacket, EngineBPF, EngineNone}},
		"streams": {ScenarioStream, 1, []string{
			EngineNone, "dumpcap", "tcpdump", EngineNone, EngineMain, EngineAFPacket, EngineBPF, EngineNone,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range ScenarioByName(tc.scenario).Order(tc.round) {
				got = append(got, e.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMedianAndSpread(t *testing.T) {
	cases := map[string]struct {
		in   []float64
		want string
	}{
		"none": {nil, "–"},
		"one":  {[]float64{2}, "2.0 (2.0–2.0)"},
		"odd":  {[]float64{3, 1, 2}, "2.0 (1.0–3.0)"},
		"even": {[]float64{4, 1, 2, 3}, "2.5 (1.0–4.0)"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := spread(tc.in, "%.1f"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	cases := map[string]struct {
		a, b    *Results
		wantErr bool
	}{
		"agree":             {made("512-disk", 3, 1000, 400), made("512-disk", 1, 900, 440), false},
		"differ":            {made("512-disk", 3, 1000, 400), made("512-disk", 3, 1000, 480), true},
		"nothing in common": {made("512-disk", 3, 1000, 400), made("64-disk", 3, 1000, 400), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := Compare(&out, tc.a, tc.b); (err != nil) != tc.wantErr {
				t.Errorf("error %v, want one: %v\n%s", err, tc.wantErr, out.String())
			}
		})
	}
}

func TestResultsReadBack(t *testing.T) {
	want := made("512-disk", 2, 1000, 400)
	path := filepath.Join(t.TempDir(), "results.json")
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("a missing file is read, want an error")
	}
}

func TestTakesPart(t *testing.T) {
	for name, tc := range map[string]struct {
		scenario, engine string
		want             bool
	}{
		"everybody":           {"64-disk", "dumpcap", true},
		"few":                 {"512-tmpfs", "dumpcap", false},
		"one of the few":      {"512-tmpfs", EngineBPF, true},
		"whole packets":       {"64-disk", "netsniff-ng", true},
		"parts of packets":    {"1500-snap96-disk", "netsniff-ng", false},
		"segments":            {ScenarioStream, "netsniff-ng", false},
		"segments, by others": {ScenarioStream, "dumpcap", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ScenarioByName(tc.scenario).takesPart(EngineByName(tc.engine)); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
