//go:build e2e

package trace

import (
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"

	"github.com/google/go-cmp/cmp"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// A trace in FLAP's format has an enter and an exit line for each call and each page fault, one after the other.
func TestTraceFlap(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	p := cluster.ReadyPods(t, cluster.Deployment(t, ns, "files", 1, "idle"), 1)[0]
	tr := cluster.Trace(t, cluster.Admin, ns, sondev1.TraceSpec{TargetDeployment: "files", Duration: "5m", Events: allGroups, Format: sondev1.TraceFlap})
	cluster.UseFiles(t, &p)
	cluster.Stop(t, tr)
	e := cluster.Entry(t, tr, p.Name)
	if tr.Status.Phase != sondev1.PhaseCompleted || e.LostEvents() > 0 {
		t.Fatalf("phase %s, entry %+v; want Completed without losses", tr.Status.Phase, e)
	}
	token := cluster.GrantResults(t, cluster.Admin, tr)
	events, enters, sources := int64(0), map[string]int{}, map[string]map[string]int{}
	for _, f := range e.Files {
		one := e
		one.Files = []sondev1.ResultFile{f}
		source := strings.TrimPrefix(f.Name, p.Name+"-"+tr.Status.JobID+"-")
		sources[source] = map[string]int{}
		for _, enter := range readFlap(t, string(cluster.ResultFile(t, tr, token, &one))) {
			events++
			sources[source][enter.Call]++
			if strings.HasPrefix(enter.Args["fname"], cluster.FilesOf(p.Name)) {
				enters[enter.Call]++
			}
		}
	}
	if events != e.Events {
		t.Errorf("got %d events in the files, want %d as in the status", events, e.Events)
	}
	if diff := cmp.Diff(map[string]int{"openat": cluster.FilesUsed, "unlinkat": cluster.FilesUsed}, enters); diff != "" {
		t.Errorf("calls on the Pod's files (-want +got):\n%s", diff)
	}
	io, memory := sources["trace_io_0.log"], sources["trace_memory_0.log"]
	if len(sources) != 2 || io["write"] < cluster.FilesUsed || memory["mmap"] == 0 || memory["page_fault_user"] == 0 {
		t.Errorf("got files and calls %v, want all sources", sources)
	}
}

// readFlap reads a FLAP file and returns its enter lines. The test fails if one has no exit.
func readFlap(t *testing.T, text string) []tracefmt.FlapLine {
	t.Helper()
	var enters []tracefmt.FlapLine
	open := false
	for line := range strings.Lines(text) {
		l, err := tracefmt.ParseFlap(strings.TrimSuffix(line, "\n"))
		if err != nil {
			t.Fatalf("FLAP's readers cannot parse %q: %v", line, err)
		}
		if !open {
			enters, open = append(enters, l), true
			continue
		}
		open = false
		enter := &enters[len(enters)-1]
		_, result := l.Args["ret"]
		_, latency := l.Args["latency"]
		switch {
		case !l.Ends(enter):
			t.Fatalf("got %q, want the exit of %+v", line, enter)
		case enter.Call == "page_fault_user":
		// Calls that began before the trace, or before the thread joined the Pod, have no measured latency.
		case !result || l.Proc == "exe" && !latency:
			t.Errorf("got an exit without result or latency: %q", line)
		}
	}
	if open {
		t.Errorf("%+v has no exit", enters[len(enters)-1])
	}
	return enters
}
