package figures

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// madeTraces is a run in which each tracer adds so many nanoseconds to a turn, to a bystander's too, and its reader
// takes so many for each event.
func madeTraces(rounds int, adds, reads map[string]float64) *Results {
	const turns, bare = 1000, 1000
	r := &Results{Rounds: rounds, Turns: turns}
	for round := range rounds {
		for i := range Loops {
			for name := range adds {
				t, l := TracerByName(name), &Loops[i]
				if t.Loop != "" && t.Loop != l.Name {
					continue
				}
				written := turns * t.Calls(l)
				one := Traced{
					Loop: l.Name, Tracer: name, Round: round, Turns: turns, Bare: bare, With: bare + adds[name],
					Asked: written, Written: written, Reader: time.Duration(reads[name] * float64(written)), Memory: Memory{Peak: 60 << 20, Ring: 34 << 20},
				}
				r.Traces = append(r.Traces, one)
				one.Bystander, one.With = true, bare+adds[name]/10
				r.Traces = append(r.Traces, one)
			}
		}
	}
	r.TraceRates = []TraceRate{{Tracer: TracerBinary, Rate: 5e6, Bound: true}, {Tracer: TracerSonde, Rate: 2.5e6, Lossy: 2.6e6}}
	return r
}

func quick() (adds, reads map[string]float64) {
	adds = map[string]float64{TracerBinary: 100, TracerSonde: 100, TracerTimed: 200, TracerMain: 20_000, TracerOpens: 12_000, TracerStrace: 30_000}
	reads = map[string]float64{TracerBinary: 40, TracerSonde: 250, TracerTimed: 260, TracerMain: 3000, TracerOpens: 3000, TracerStrace: 9000}
	return adds, reads
}

func TestTraceGoals(t *testing.T) {
	cases := map[string]struct {
		costs      func(adds, reads map[string]float64)
		rate       float64 // of NDJSON without loss, events per second
		peak       int64
		wantMissed []string
	}{
		"all met": {},
		"slow for the traced process": {
			costs:      func(adds, _ map[string]float64) { adds[TracerSonde] = 390 },
			wantMissed: []string{"time added to openat, read and close", "time added to a traced read"},
		},
		"slow for others": {
			costs: func(adds, _ map[string]float64) {
				adds[TracerSonde], adds[TracerMain], adds[TracerOpens] = 1500, 1e6, 1e6
			},
			wantMissed: []string{
				"time added to a call of processes that are not traced (openat, read, close)",
				"time added to a call of processes that are not traced (read",
			},
		},
		"slow reader": {
			costs: func(_, reads map[string]float64) { reads[TracerBinary], reads[TracerSonde] = 61, 301 },
			wantMissed: []string{
				"reader's CPU time for an openat or close, binary", "reader's CPU time for a read, binary",
				"reader's CPU time for an openat or close, NDJSON", "reader's CPU time for a read, NDJSON",
			},
		},
		"lossy": {rate: 1.9e6, wantMissed: []string{"Sonde, NDJSON: no loss"}},
		"large": {peak: 96 << 20, wantMissed: []string{"memory"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			adds, reads := quick()
			if tc.costs != nil {
				tc.costs(adds, reads)
			}
			r := madeTraces(3, adds, reads)
			if tc.rate > 0 {
				r.TraceRates[1].Rate = tc.rate
			}
			if tc.peak > 0 {
				r.tracedAt(LoopRead, TracerTimed, true, 1).Memory.Peak = tc.peak
			}
			var missed []string
			for _, g := range traceGoals(r) {
				if !g.met {
					missed = append(missed, g.text)
				}
			}
			if len(missed) != len(tc.wantMissed) {
				t.Fatalf("missed %q, want %q", missed, tc.wantMissed)
			}
			for i, want := range tc.wantMissed {
				if !strings.HasPrefix(missed[i], want) {
					t.Errorf("missed %q, want %q", missed[i], want)
				}
			}
			page := TracePage(r)
			if strings.Contains(page, "not met") != (len(missed) > 0) {
				t.Errorf("the page does not say so:\n%s", page)
			}
			for i := range Tracers {
				if !strings.Contains(page, "| "+Tracers[i].Label+" |") {
					t.Errorf("the page leaves out %s:\n%s", Tracers[i].Label, page)
				}
			}
		})
	}
}

func TestCompareTraces(t *testing.T) {
	adds, reads := quick()
	a := madeTraces(3, adds, reads)
	reads[TracerSonde] *= 1.1
	near := madeTraces(2, adds, reads)
	adds[TracerSonde] *= 1.3
	far := madeTraces(2, adds, reads)
	cases := map[string]struct {
		b       *Results
		wantErr bool
	}{
		"agree":             {near, false},
		"differ":            {far, true},
		"nothing in common": {made("512-disk", 1, 1000, 400), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := Compare(&out, a, tc.b); (err != nil) != tc.wantErr {
				t.Errorf("error %v, want one: %v\n%s", err, tc.wantErr, out.String())
			}
		})
	}
}

func TestTracesReadBack(t *testing.T) {
	adds, reads := quick()
	want := madeTraces(2, adds, reads)
	path := filepath.Join(t.TempDir(), "results.json")
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
