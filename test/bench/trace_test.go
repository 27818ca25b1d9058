package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// madeTraces is a run in which each tracer adds so many nanoseconds to a turn, to a bystander's too, and its reader
// takes so many for each event.
func madeTraces(rounds int, adds, reads map[string]float64) *results {
	const turns, bare = 1000, 1000
	r := &results{Rounds: rounds, Turns: turns}
	for round := range rounds {
		for i := range loops {
			for name := range adds {
				t, l := tracerByName(name), &loops[i]
				if t.loop != "" && t.loop != l.name {
					continue
				}
				written := turns * t.of(l)
				one := traced{
					Loop: l.name, Tracer: name, Round: round, Turns: turns, Bare: bare, With: bare + adds[name],
					Asked: written, Written: written, Reader: time.Duration(reads[name] * float64(written)), Memory: memory{Peak: 60 << 20, Ring: 34 << 20},
				}
				r.Traces = append(r.Traces, one)
				one.Bystander, one.With = true, bare+adds[name]/10
				r.Traces = append(r.Traces, one)
			}
		}
	}
	r.TraceRates = []traceRate{{Tracer: tracerBinary, Rate: 5e6, Bound: true}, {Tracer: tracerSonde, Rate: 2.5e6, Lossy: 2.6e6}}
	return r
}

func quick() (adds, reads map[string]float64) {
	adds = map[string]float64{tracerBinary: 100, tracerSonde: 100, tracerTimed: 200, tracerMain: 20_000, tracerOpens: 12_000, tracerStrace: 30_000}
	reads = map[string]float64{tracerBinary: 40, tracerSonde: 250, tracerTimed: 260, tracerMain: 3000, tracerOpens: 3000, tracerStrace: 9000}
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
		"slow for who is traced": {
			costs:      func(adds, _ map[string]float64) { adds[tracerSonde] = 390 },
			wantMissed: []string{"time added to openat, read and close", "time added to a traced read"},
		},
		"slow for others": {
			costs: func(adds, _ map[string]float64) {
				adds[tracerSonde], adds[tracerMain], adds[tracerOpens] = 1500, 1e6, 1e6
			},
			wantMissed: []string{
				"time added to a call of processes that are not traced (openat, read, close)",
				"time added to a call of processes that are not traced (read",
			},
		},
		"slow reader": {
			costs: func(_, reads map[string]float64) { reads[tracerBinary], reads[tracerSonde] = 61, 301 },
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
				r.tracedAt(loopRead, tracerTimed, true, 1).Memory.Peak = tc.peak
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
			page := tracePage(r)
			if strings.Contains(page, "not met") != (len(missed) > 0) {
				t.Errorf("the page does not say so:\n%s", page)
			}
			for i := range tracers {
				if !strings.Contains(page, "| "+tracers[i].label+" |") {
					t.Errorf("the page leaves out %s:\n%s", tracers[i].label, page)
				}
			}
		})
	}
}

func TestCompareTraces(t *testing.T) {
	adds, reads := quick()
	a := madeTraces(3, adds, reads)
	reads[tracerSonde] *= 1.1
	near := madeTraces(2, adds, reads)
	adds[tracerSonde] *= 1.3
	far := madeTraces(2, adds, reads)
	cases := map[string]struct {
		b       *results
		wantErr bool
	}{
		"agree":             {near, false},
		"differ":            {far, true},
		"nothing in common": {made("512-disk", 1, 1000, 400), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := compare(&out, a, tc.b); (err != nil) != tc.wantErr {
				t.Errorf("error %v, want one: %v\n%s", err, tc.wantErr, out.String())
			}
		})
	}
}

func TestTracesReadBack(t *testing.T) {
	adds, reads := quick()
	want := madeTraces(2, adds, reads)
	path := filepath.Join(t.TempDir(), "results.json")
	if err := want.write(path); err != nil {
		t.Fatal(err)
	}
	got, err := readResults(path)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestRecordsAreCounted(t *testing.T) {
	record := func(size int) []byte {
		return append(binary.NativeEndian.AppendUint32(nil, uint32(size)), make([]byte, size-4)...)
	}
	cases := map[string]struct {
		records []byte
		want    uint64
		wantErr bool
	}{
		"none":      {nil, 0, false},
		"two":       {append(record(8), record(112)...), 2, false},
		"cut off":   {append(record(8), record(112)[:60]...), 1, true},
		"no length": {make([]byte, 16), 0, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "records")
			r, err := newRecordsFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := r.Write(tc.records, 7); n != 7 || err != nil {
				t.Fatalf("%d events, %v", n, err)
			}
			if err := r.Close(); err != nil || r.Size() != int64(len(tc.records)) {
				t.Fatalf("%d bytes, %v", r.Size(), err)
			}
			got, err := countRecords(bufio.NewReader(bytes.NewReader(tc.records)))
			if got != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("%d records, %v; want %d, an error: %v", got, err, tc.want, tc.wantErr)
			}
			so, missing := checkRecords(path, tc.want), checkRecords(path, tc.want+1)
			if so == nil == tc.wantErr || missing == nil {
				t.Errorf("%v where they are so many, and %v where one is missing", so, missing)
			}
		})
	}
}

// Each tracer runs once at each loop, with a few turns. No figure is asserted: that a run adds up is checked by the
// harness.
func TestEveryTracerAddsUp(t *testing.T) {
	b := smoke(t)
	for i := range loops {
		l := &loops[i]
		t.Run(l.name, func(t *testing.T) {
			all, err := b.traceRound(t.Context(), l, i, 4000)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range all {
				if one.With <= 0 || one.Bare <= 0 || one.Memory.Peak <= one.Memory.Ring {
					t.Errorf("%+v", one)
				}
				if !one.Bystander && (one.Written == 0 || one.Reader <= 0) {
					t.Errorf("%+v", one)
				}
				if ours(one.Tracer) && one.Memory.Ring < 8<<20 {
					t.Errorf("%s has rings of 8 MiB, and %d bytes are found", one.Tracer, one.Memory.Ring)
				}
			}
		})
	}
}

func TestTraceRateIsSearched(t *testing.T) {
	b := smoke(t)
	got, err := b.searchTraceRate(t.Context(), tracerByName(tracerSonde), 10_000)
	if err != nil {
		t.Fatal(err)
	}
	if got.Rate <= 0 {
		t.Errorf("%+v, want a rate above zero", got)
	}
	// A tracer that loses half of what there is, whatever the rate.
	lossy := *tracerByName(tracerMain)
	lossy.start = func(ctx context.Context, b *bench, j *traceJob) (tracing, error) {
		r, err := tracerByName(tracerBinary).start(ctx, b, j)
		return halving{r}, err
	}
	got, err = b.searchTraceRate(t.Context(), &lossy, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	if got.Bound || got.Rate != 0 || got.Lossy <= 0 {
		t.Errorf("%+v, want no rate", got)
	}
}

// halving says that half of what was written was not.
type halving struct{ tracing }

func (h halving) stop(ctx context.Context) (recorded, error) {
	r, err := h.tracing.stop(ctx)
	r.written /= 2
	return r, err
}

func TestTraceThatDoesNotAddUpIsAnError(t *testing.T) {
	b := smoke(t)
	e := tracerByName(tracerSonde)
	liar := *e
	liar.start = func(ctx context.Context, b *bench, j *traceJob) (tracing, error) {
		r, err := e.start(ctx, b, j)
		return halving{r}, err
	}
	if got, err := b.trace(t.Context(), loopByName(loopRead), &liar, false, 1000); err == nil {
		t.Errorf("a run with half of the events is a figure: %+v", got)
	}
}
