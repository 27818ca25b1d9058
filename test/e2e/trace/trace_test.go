//go:build e2e

package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// allGroups are all groups of events.
var allGroups = []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceFile, sondev1.TraceIO, sondev1.TraceMemory, sondev1.TraceSignal}

// Two Pods each use their own files. Each Pod's trace holds exactly its own calls, and the counts in file, status and
// metrics agree. Afterwards nothing is left in the API or in the kernel.
func TestTraceExactness(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	pods := cluster.ReadyPods(t, cluster.Deployment(t, ns, "files", 2, "idle"), 2)
	reader := cluster.MetricsReader(t, ns)
	before, programs := cluster.ScrapeAll(t, reader), tracePrograms(t)
	tr := cluster.Trace(t, cluster.Admin, ns, sondev1.TraceSpec{TargetDeployment: "files", Duration: "5m", Events: allGroups})
	if n := len(newPrograms(t, programs)); n < 2*4 {
		t.Errorf("found %d BPF programs while two Pods are traced, want more", n)
	}
	for i := range pods {
		cluster.UseFiles(t, &pods[i])
	}
	cluster.Stop(t, tr)

	if tr.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("phase %s, want Completed: %+v", tr.Status.Phase, tr.Status)
	}
	token := cluster.GrantResults(t, cluster.Admin, tr)
	for i := range pods {
		wantExactly(t, tr, token, pods[i].Name, pods[1-i].Name)
	}
	totals := tr.Status.Totals
	cluster.Eventually(t, 30*time.Second, "metrics of the trace", func(context.Context) error {
		after := cluster.ScrapeAll(t, reader)
		for series, want := range map[string]int64{"sonde_events_total": totals.Events, "sonde_lost_events_total": totals.Lost} {
			if got := after[series] - before[series]; got != float64(want) {
				return fmt.Errorf("%s grew by %v, want %d", series, got, want)
			}
		}
		return nil
	})

	cluster.DeleteNow(t, tr)
	cluster.NothingLeft(t, string(tr.UID))
	cluster.NoAgents(t, 10*time.Second)
	cluster.Eventually(t, 30*time.Second, "no BPF program left", func(context.Context) error {
		if left := newPrograms(t, programs); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// wantExactly reads the file of a Pod's trace. It must hold each call of the Pod, and no call of another.
func wantExactly(t *testing.T, tr *sondev1.Trace, token, pod, another string) {
	t.Helper()
	e := cluster.Entry(t, tr, pod)
	if len(e.Files) != 1 || e.Files[0].Name != pod+"-"+tr.Status.JobID+".ndjson" || e.Engine != "tracepoints" || e.Reason != sondev1.ReasonStopped {
		t.Fatalf("entry %+v, want one file, engine tracepoints and reason Stopped", e)
	}
	body := cluster.ResultFile(t, tr, token, &e)
	if int64(len(body)) != e.Files[0].Bytes || e.Bytes != e.Files[0].Bytes {
		t.Errorf("%s: read %d bytes, want %d and %d as in the status", pod, len(body), e.Files[0].Bytes, e.Bytes)
	}
	header, records, end := cluster.ReadTrace(t, body)
	if header == nil || header.Pod != pod || header.PodUID != e.UID || header.Node != e.Node || len(header.Groups) != len(allGroups) {
		t.Errorf("%s: header %+v, want the Pod, its UID, its node and all groups", pod, header)
	}
	if end == nil || !end.Complete || end.Reason != sondev1.ReasonStopped {
		t.Fatalf("%s: the file ends with %+v, want an account", pod, end)
	}
	lost := map[string]int64{}
	for place, n := range end.Lost {
		lost[place] = int64(n) //nolint:gosec // small counts
	}
	if int64(len(records)) != e.Events || end.Written != uint64(e.Events) || !maps.Equal(lost, e.Lost) { //nolint:gosec // small counts
		t.Errorf("%s: got %d records and the account %+v, want %d and %v as in the status", pod, len(records), end, e.Events, e.Lost)
	}
	want := map[string]int{"exec": cluster.FilesUsed, "openat": cluster.FilesUsed, "write": cluster.FilesUsed, "pread64": cluster.FilesUsed, "close": cluster.FilesUsed, "unlinkat": cluster.FilesUsed}
	got := usesOf(records, cluster.FilesOf(pod))
	if e.LostEvents() > 0 {
		t.Errorf("%s: lost %v, want none with so few calls", pod, e.Lost)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: its own files (-want +got):\n%s", pod, diff)
	}
	if diff := cmp.Diff(map[string]int{}, usesOf(records, cluster.FilesOf(another))); diff != "" {
		t.Errorf("%s: files of %s (-want +got):\n%s", pod, another, diff)
	}
}

// usesOf counts, by call, the calls of container c on paths that begin with files, and the programs that were
// started for them.
func usesOf(records []*tracefmt.Record, files string) map[string]int {
	uses := map[string]int{}
	for _, r := range records {
		switch {
		case r.Container != "c":
		case r.Call == "exec":
			if len(r.Args) == 1 && bytes.Contains(r.Args[0].Text, []byte("\x00file\x00-path\x00"+files)) {
				uses["exec"]++
			}
		case strings.HasPrefix(string(r.Path), files) && r.Ret >= 0 && r.Took > 0:
			uses[r.Call]++
		}
	}
	return uses
}

// tracePrograms lists the BPF programs of traces in the kernel by ID. The nodes of the local cluster share this kernel.
func tracePrograms(t *testing.T) map[ebpf.ProgramID]string {
	t.Helper()
	found := map[ebpf.ProgramID]string{}
	for id := ebpf.ProgramID(0); ; {
		var err error
		if id, err = ebpf.ProgramGetNextID(id); errors.Is(err, os.ErrNotExist) {
			return found
		} else if err != nil {
			t.Fatalf("list BPF programs: %v", err)
		}
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // deleted meanwhile
		}
		info, err := p.Info()
		if err == nil && strings.HasPrefix(info.Name, "sonde_") {
			found[id] = info.Name
		}
		_ = p.Close()
	}
}

// newPrograms returns the programs that did not exist before.
func newPrograms(t *testing.T, before map[ebpf.ProgramID]string) map[ebpf.ProgramID]string {
	t.Helper()
	now := tracePrograms(t)
	for id := range before {
		delete(now, id)
	}
	return now
}
