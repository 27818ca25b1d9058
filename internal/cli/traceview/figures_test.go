package traceview

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// summarySink only sums up.
type summarySink struct{ *Summary }

func (s summarySink) Line(from *Source, line *tracefmt.Line) error {
	s.Summary.Line(from, line)
	return nil
}

func (s summarySink) Damaged(from *Source, err error) error {
	s.Summary.Damaged(from, err)
	return nil
}

func (s summarySink) Idle() error { return nil }

func TestFigures(t *testing.T) {
	f, err := os.Open("testdata/shell.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := NewSummary()
	if err := Read(t.Context(), []*Source{NewSource("shell", f)}, summarySink{s}); err != nil {
		t.Fatal(err)
	}
	got := s.Figures()
	if got.Events != s.Events() || got.Pods != 1 || len(got.Slowest) != slowRows || got.Slowest[0].Call != "openat" {
		t.Errorf("%d events of %d Pods, %d slow calls", got.Events, got.Pods, len(got.Slowest))
	}
	if want := (Call{Name: "openat", Count: 27, Failed: 1, Measured: 27, Total: got.Calls[0].Total, Longest: got.Slowest[0].Took}); got.Calls[0] != want {
		t.Errorf("%+v, want %+v", got.Calls[0], want)
	}
	var measured, bars uint64
	for _, c := range got.Calls {
		measured += c.Measured
	}
	for _, b := range got.Latencies {
		bars += b.Count
	}
	if measured != bars {
		t.Errorf("%d calls were measured, and the bars have %d", measured, bars)
	}
	// Text has the same.
	for _, want := range []string{got.Files[0].Path[:5], got.Failures[0].MostOften, got.Processes[1].Command} {
		if !strings.Contains(s.Text(), want) {
			t.Errorf("no %q in the text", want)
		}
	}
}

// TestLongChainOfProcesses has each process start the next.
func TestLongChainOfProcesses(t *testing.T) {
	s, from := NewSummary(), NewSource("a", strings.NewReader(""))
	const count = maxProcesses + 10
	for pid := range uint32(count) {
		s.Line(from, &tracefmt.Line{Record: &tracefmt.Record{
			Time: time.Unix(int64(pid)+1, 0), Call: callFork, HostPID: pid + 2, HostTID: pid + 2, Took: -1,
			Args: []tracefmt.Arg{{Name: argParent, Kind: tracefmt.Unsigned, Number: int64(pid + 1)}},
		}})
	}
	f := s.Figures()
	var depths []int
	for _, p := range f.Processes[:3] {
		depths = append(depths, p.Depth)
	}
	if diff := cmp.Diff([]int{0, 1, 2}, depths); diff != "" || len(f.Processes) != maxProcesses || f.OtherEvents != 10 {
		t.Errorf("%d processes, %d other events, depths (-want +got):\n%s", len(f.Processes), f.OtherEvents, diff)
	}
}

func TestNoFigures(t *testing.T) {
	f := NewSummary().Figures()
	if f.Events != 0 || len(f.Calls)+len(f.Files)+len(f.Latencies)+len(f.Processes) != 0 {
		t.Errorf("%+v", f)
	}
}
