package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

func traceHeader(pod, uid string) string {
	return fmt.Sprintf(`{"sonde":"trace","version":1,"namespace":"shop","pod":%q,"podUid":%q}`, pod, uid) + "\n"
}

// traceEvent returns the line of an event at a second. whose names the Pod in a merged file.
func traceEvent(whose string, second int) string {
	return fmt.Sprintf(`{%s"time":"1970-01-01T00:00:%02dZ","call":"read","pid":1}`, whose, second) + "\n"
}

func traceAccount(whose string, written int) string {
	return fmt.Sprintf(`{%s"sonde":"account","written":%d,"lost":{"ring":1},"complete":true}`, whose, written) + "\n"
}

// traceOf returns the trace of a Pod.
func traceOf(pod, uid string, seconds ...int) []byte {
	text := traceHeader(pod, uid)
	for _, at := range seconds {
		text += traceEvent("", at)
	}
	return []byte(text + traceAccount("", len(seconds)))
}

// saveTraces saves one trace for each Pod.
func saveTraces(t *testing.T, out Output, pods []v1alpha1.PodResult, traces ...[]byte) (Saved, error) {
	t.Helper()
	c := cluster{}
	for i, b := range traces {
		pods[i].Files = []v1alpha1.ResultFile{result(pods[i].Name+"-qwer.ndjson", b)}
		c[pods[i].UID+"/"+pods[i].Name+"-qwer.ndjson"] = b
	}
	s := saver(c)
	s.Summarize = true
	out.Form = NDJSON
	return s.Save(t.Context(), pods, out)
}

func TestSaveMergesTraces(t *testing.T) {
	const a, b = `"pod":"web-1",`, `"pod":"web-2",`
	const first, second = `"pod":"db-0","podUid":"u1",`, `"pod":"db-0","podUid":"u2",`
	for name, tc := range map[string]struct {
		pods   []v1alpha1.PodResult
		traces [][]byte
		want   []string
		// Pods, lost events and late events in the summary.
		wantPods, wantLost, wantLate uint64
	}{
		"one Pod, unchanged": {
			pods: []v1alpha1.PodResult{pod("u1", "web-1")}, traces: [][]byte{traceOf("web-1", "u1", 1, 2)},
			want:     []string{string(traceOf("web-1", "u1", 1, 2))},
			wantPods: 1, wantLost: 1,
		},
		"two Pods": {
			pods:   []v1alpha1.PodResult{pod("u1", "web-1"), pod("u2", "web-2")},
			traces: [][]byte{traceOf("web-1", "u1", 1, 4), traceOf("web-2", "u2", 2, 3)},
			want: []string{
				traceHeader("web-1", "u1"), traceHeader("web-2", "u2"), traceEvent(a, 1), traceEvent(b, 2), traceEvent(b, 3),
				traceAccount(b, 2), traceEvent(a, 4), traceAccount(a, 2),
			},
			wantPods: 2, wantLost: 2,
		},
		"two Pods of one name": {
			pods:   []v1alpha1.PodResult{pod("u1", "db-0"), pod("u2", "db-0")},
			traces: [][]byte{traceOf("db-0", "u1", 1), traceOf("db-0", "u2", 2)},
			want: []string{
				traceHeader("db-0", "u1"), traceHeader("db-0", "u2"), traceEvent(first, 1), traceAccount(first, 1),
				traceEvent(second, 2), traceAccount(second, 1),
			},
			wantPods: 2, wantLost: 2,
		},
		"out of order": {
			pods: []v1alpha1.PodResult{pod("u1", "web-1")}, traces: [][]byte{traceOf("web-1", "u1", 3, 1, 2, 4)},
			want:     []string{string(traceOf("web-1", "u1", 3, 1, 2, 4))},
			wantPods: 1, wantLost: 1, wantLate: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := Output{Path: filepath.Join(t.TempDir(), "web.ndjson")}
			saved, err := saveTraces(t, out, tc.pods, tc.traces...)
			if err != nil || len(saved.Problems()) > 0 {
				t.Fatalf("%v, problems %v", err, saved.Problems())
			}
			got, err := os.ReadFile(out.Path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Join(tc.want, ""), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if saved.Bytes != int64(len(got)) || saved.Late != tc.wantLate {
				t.Errorf("reported %d bytes, %d late; want %d, %d", saved.Bytes, saved.Late, len(got), tc.wantLate)
			}
			if s := saved.Trace; uint64(s.Pods()) != tc.wantPods || s.Lost()["ring"] != tc.wantLost || s.Problems() != nil {
				t.Errorf("summed up as %d Pods, %v, problems %q", s.Pods(), s.Lost(), s.Problems())
			}
		})
	}
}

// The file of a Completed trace must be complete. Otherwise the existing part is saved.
func TestSaveTracesThatAreNotWhole(t *testing.T) {
	first, second := traceOf("web-1", "u1", 1, 2), traceOf("web-2", "u2", 1, 2)
	killed := pod("u2", "web-2")
	killed.Phase = v1alpha1.PhaseIncomplete
	out := Output{Path: filepath.Join(t.TempDir(), "web.ndjson")}
	saved, err := saveTraces(t, out, []v1alpha1.PodResult{pod("u1", "web-1"), killed}, first[:len(first)-10], second[:len(second)-10])
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range saved.Problems() {
		got = append(got, f.Err.Error())
	}
	want := []string{"web-1-qwer.ndjson: line 4: the line is truncated: its writer was killed or is still running: download it again"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if b, err := os.ReadFile(out.Path); err != nil || bytes.Count(b, []byte(`"call":"read"`)) != 4 {
		t.Errorf("saved %v:\n%s", err, b)
	}
	if p := saved.Trace.Problems(); len(p) != 4 { // a truncated line and a missing account of each Pod
		t.Errorf("summed up with problems %q", p)
	}
}

func TestSaveTracesApart(t *testing.T) {
	a, b := traceOf("web-1", "u1", 1), traceOf("web-2", "u2", 2)
	dir := filepath.Join(t.TempDir(), "web")
	saved, err := saveTraces(t, Output{Path: dir, Separate: true}, []v1alpha1.PodResult{pod("u1", "web-1"), pod("u2", "web-2")}, a, b)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"web-1-qwer.ndjson", "web-2-qwer.ndjson"}) {
		t.Errorf("files %q", got)
	}
	if got, err := os.ReadFile(saved.Files[1].Path); err != nil || !bytes.Equal(got, b) {
		t.Errorf("the second Pod's (%v):\n%s", err, got)
	}
	if saved.Trace.Pods() != 2 || saved.Late != 0 {
		t.Errorf("summed up as %d Pods, %d late", saved.Trace.Pods(), saved.Late)
	}
}

// FLAP's files are never merged, because their lines do not name their Pod.
func TestSaveFlap(t *testing.T) {
	file := []byte("1 {pid=7 tid=7 proc=web}{EN close}{fd=3}\n")
	dir := filepath.Join(t.TempDir(), "web")
	saved, err := saver(cluster{"u1/web-1-qwer-trace_io_0.log": file}).Save(t.Context(),
		[]v1alpha1.PodResult{pod("u1", "web-1", result("web-1-qwer-trace_io_0.log", file))}, Output{Path: dir, Form: Flap})
	if err != nil || saved.Path != dir || saved.Trace != nil {
		t.Fatalf("saved %+v, %v", saved, err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"web-1-qwer-trace_io_0.log"}) {
		t.Errorf("files %q", got)
	}
}

func TestSaveKeepsTracesThatCannotBeMerged(t *testing.T) {
	out := Output{Path: filepath.Join(t.TempDir(), "web.ndjson")}
	_, err := saveTraces(t, out, []v1alpha1.PodResult{pod("u1", "web-1"), pod("u2", "web-2")}, traceOf("web-1", "u1", 1), []byte("no trace\n"))
	if err == nil || !strings.Contains(err.Error(), "web-2-qwer.ndjson: this is not a trace") || !strings.Contains(err.Error(), out.Path+".parts") {
		t.Fatalf("error %v", err)
	}
	if got := names(t, out.Path+".parts"); len(got) != 2 {
		t.Errorf("kept %q", got)
	}
}

// An interrupt while traces are merged leaves no files, because they can be downloaded again.
func TestSaveInterruptedWhileMerging(t *testing.T) {
	interrupted := errors.New("interrupted")
	ctx, leave := context.WithCancelCause(t.Context())
	a := traceOf("web-1", "u1", 1)
	s := saver(cluster{"u1/web-1.ndjson": a})
	s.OnMerge = func() { leave(interrupted) }
	dir := t.TempDir()
	_, err := s.Save(ctx, []v1alpha1.PodResult{pod("u1", "web-1", result("web-1.ndjson", a))}, Output{Path: filepath.Join(dir, "web.ndjson"), Form: NDJSON})
	if !errors.Is(err, interrupted) {
		t.Errorf("error %v, want %v", err, interrupted)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}
