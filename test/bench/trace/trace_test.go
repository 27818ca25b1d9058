package trace

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/sonde-operator/sonde/test/bench/benchtest"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

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
				t.Fatalf("wrote %d events (%v), want 7", n, err)
			}
			if err := r.Close(); err != nil || r.Size() != int64(len(tc.records)) {
				t.Fatalf("wrote %d bytes (%v), want %d", r.Size(), err, len(tc.records))
			}
			got, err := countRecords(bufio.NewReader(bytes.NewReader(tc.records)))
			if got != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("%d records, %v; want %d, an error: %v", got, err, tc.want, tc.wantErr)
			}
			right, missing := checkRecords(path, tc.want), checkRecords(path, tc.want+1)
			if right == nil == tc.wantErr || missing == nil {
				t.Errorf("got error %v for the right count, want one: %v; got %v for one record more, want an error", right, tc.wantErr, missing)
			}
		})
	}
}

// TestEveryTracerAddsUp runs each tracer once with each loop, for a few turns. It asserts no figure: the harness checks
// that a run adds up.
func TestEveryTracerAddsUp(t *testing.T) {
	b := benchtest.Open(t)
	for i := range figures.Loops {
		l := &figures.Loops[i]
		t.Run(l.Name, func(t *testing.T) {
			all, err := Round(t.Context(), b, l, i, 4000)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range all {
				if one.With <= 0 || one.Bare <= 0 || one.Memory.Peak <= one.Memory.Ring {
					t.Errorf("%+v, want times above zero and more memory than the rings", one)
				}
				if !one.Bystander && (one.Written == 0 || one.Reader <= 0) {
					t.Errorf("%+v, want events and a reader that took CPU time", one)
				}
				if figures.Ours(one.Tracer) && one.Memory.Ring < 8<<20 {
					t.Errorf("%s: got rings of %d bytes, want at least 8 MiB", one.Tracer, one.Memory.Ring)
				}
			}
		})
	}
}

func TestTraceRateIsSearched(t *testing.T) {
	b := benchtest.Open(t)
	got, err := searchRate(t.Context(), b, figures.TracerByName(figures.TracerSonde), 10_000)
	if err != nil {
		t.Fatal(err)
	}
	if got.Rate <= 0 {
		t.Errorf("%+v, want a rate above zero", got)
	}
	// This tracer loses half of the events at any rate.
	lossy, records := figures.TracerByName(figures.TracerMain), starters[figures.TracerBinary]
	replace(t, figures.TracerMain, func(ctx context.Context, b *host.Env, j *traceJob) (tracing, error) {
		r, err := records(ctx, b, j)
		return halving{r}, err
	})
	got, err = searchRate(t.Context(), b, lossy, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	if got.Bound || got.Rate != 0 || got.Lossy <= 0 {
		t.Errorf("%+v, want no rate", got)
	}
}

// halving reports half of the written events.
type halving struct{ tracing }

func (h halving) stop(ctx context.Context) (recorded, error) {
	r, err := h.tracing.stop(ctx)
	r.written /= 2
	return r, err
}

func TestTraceThatDoesNotAddUpIsAnError(t *testing.T) {
	b := benchtest.Open(t)
	e := figures.TracerByName(figures.TracerSonde)
	start := starters[e.Name]
	replace(t, e.Name, func(ctx context.Context, b *host.Env, j *traceJob) (tracing, error) {
		r, err := start(ctx, b, j)
		return halving{r}, err
	})
	if got, err := runTracer(t.Context(), b, figures.LoopByName(figures.LoopRead), e, false, 1000); err == nil {
		t.Errorf("a run with half of the events gives a figure, want an error: %+v", got)
	}
}

// replace replaces how a tracer is started, until the test has ended.
func replace(t *testing.T, name string, start func(context.Context, *host.Env, *traceJob) (tracing, error)) {
	t.Helper()
	before := starters[name]
	t.Cleanup(func() { starters[name] = before })
	starters[name] = start
}

// TestMain lets the test's own binary be a child of bench.
func TestMain(m *testing.M) { benchtest.Main(m, host.MergeRoles(host.Roles, Roles)) }
