//go:build e2e

package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// flapLine is what FLAP's readers take lines apart by.
var flapLine = regexp.MustCompile(`^(\d+)\s+\{pid=(\d+)\s+tid=(\d+)\s+proc=([^\}]+)\}\{(EN|EX)\s+([^\}]+)\}(?:\{([^\}]*)\})?$`)

// The lines of FLAP, in its file: an enter and an exit for each call, which pair in each thread.
func TestTraceFlap(t *testing.T) {
	ns := namespace(t, nil)
	p := readyPods(t, deployment(t, ns, "files", 1, "idle"), 1)[0]
	tr := trace(t, admin, ns, sondev1.TraceSpec{TargetDeployment: "files", Duration: "5m", Events: allGroups, Format: sondev1.TraceFlap})
	useFiles(t, &p)
	stop(t, tr)
	e := entry(t, tr, p.Name)
	if tr.Status.Phase != sondev1.PhaseCompleted || len(e.Files) != 1 || e.Files[0].Name != p.Name+"-"+tr.Status.JobID+"-trace_io_0.log" {
		t.Fatalf("phase %s, entry %+v", tr.Status.Phase, e)
	}
	open, enters, lines := map[string]string{}, map[string]int{}, int64(0)
	for line := range strings.Lines(string(resultFile(t, tr, grant(t, admin, tr), &e))) {
		lines++
		m := flapLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			t.Fatalf("FLAP's readers do not know %q", line)
		}
		tid, proc, way, call, args := m[3], m[4], m[5], m[6], m[7]
		switch {
		case way == "EN":
			open[tid] = call
			if strings.Contains(args, "fname="+filesOf(p.Name)) {
				enters[call]++
			}
		case open[tid] != call:
			t.Errorf("%s ends in thread %s, where %q began", call, tid, open[tid])
		// What began before the trace, or before its thread was the Pod's as of the runtime's, was not measured.
		case !strings.Contains(args, "ret=") || proc == "exe" && !strings.Contains(args, "latency="):
			t.Errorf("an exit without result or latency: %q", line)
		}
	}
	if lines != 2*e.Events || e.LostEvents() > 0 {
		t.Errorf("%d lines of %d events, lost %v", lines, e.Events, e.Lost)
	}
	if diff := cmp.Diff(map[string]int{"openat": filesUsed, "unlinkat": filesUsed}, enters); diff != "" {
		t.Errorf("calls that name the Pod's files (-want +got):\n%s", diff)
	}
}
