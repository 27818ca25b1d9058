//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
	"github.com/sonde-operator/sonde/test/cluster"
)

// filesUsed is how many files each Pod of these tests uses, each by a program that is started for it.
const filesUsed = 50

// allGroups of events that there are.
var allGroups = []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceFile, sondev1.TraceIO, sondev1.TraceMemory, sondev1.TraceSignal}

// Two Pods each use files of their own: each Pod's file holds exactly what it did, nothing of the other's, and the counts of
// file, status and metrics are the same. Afterwards nothing is left, in the API or in the kernel.
func TestTraceExactness(t *testing.T) {
	ns := namespace(t, nil)
	pods := readyPods(t, deployment(t, ns, "files", 2, "idle"), 2)
	reader := metricsReader(t, ns)
	before, programs := scrapeAll(t, reader), tracePrograms(t)
	tr := trace(t, admin, ns, sondev1.TraceSpec{TargetDeployment: "files", Duration: "5m", Events: allGroups})
	if n := len(newPrograms(t, programs)); n < 2*4 {
		t.Errorf("%d BPF programs while two Pods are traced: the test sees them not, or nobody traces", n)
	}
	for i := range pods {
		useFiles(t, &pods[i])
	}
	stop(t, tr)

	if tr.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("phase %s, want Completed: %+v", tr.Status.Phase, tr.Status)
	}
	token := grant(t, admin, tr)
	for i := range pods {
		wantExactly(t, tr, token, pods[i].Name, pods[1-i].Name)
	}
	totals := tr.Status.Totals
	eventually(t, 30*time.Second, "metrics of the trace", func(context.Context) error {
		after := scrapeAll(t, reader)
		for series, want := range map[string]int64{"sonde_events_total": totals.Events, "sonde_lost_events_total": totals.Lost} {
			if got := after[series] - before[series]; got != float64(want) {
				return fmt.Errorf("%s grew by %v, want %d", series, got, want)
			}
		}
		return nil
	})

	deleteNow(t, tr)
	nothingLeft(t, string(tr.UID))
	noAgents(t, 10*time.Second)
	eventually(t, 30*time.Second, "no BPF program left", func(context.Context) error {
		if left := newPrograms(t, programs); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// wantExactly reads the file of a Pod of a trace: what it did is in it, to the call, and nothing that another did.
func wantExactly(t *testing.T, tr *sondev1.Trace, token, pod, another string) {
	t.Helper()
	e := entry(t, tr, pod)
	if len(e.Files) != 1 || e.Files[0].Name != pod+"-"+tr.Status.JobID+".ndjson" || e.Engine != "tracepoints" || e.Reason != sondev1.ReasonStopped {
		t.Fatalf("entry %+v", e)
	}
	body := resultFile(t, tr, token, &e)
	if int64(len(body)) != e.Files[0].Bytes || e.Bytes != e.Files[0].Bytes {
		t.Errorf("%s: %d bytes read, the status says %d and %d", pod, len(body), e.Files[0].Bytes, e.Bytes)
	}
	header, records, end := readTrace(t, body)
	if header == nil || header.Pod != pod || header.PodUID != e.UID || header.Node != e.Node || len(header.Groups) != len(allGroups) {
		t.Errorf("%s: header %+v", pod, header)
	}
	if end == nil || !end.Complete || end.Reason != sondev1.ReasonStopped {
		t.Fatalf("%s: the file ends with %+v", pod, end)
	}
	lost := map[string]int64{}
	for place, n := range end.Lost {
		lost[place] = int64(n) //nolint:gosec // counts of a test
	}
	if int64(len(records)) != e.Events || end.Written != uint64(e.Events) || !maps.Equal(lost, e.Lost) { //nolint:gosec // counts of a test
		t.Errorf("%s: %d records; the file's account %+v, the status' %d and %v", pod, len(records), end, e.Events, e.Lost)
	}
	want := map[string]int{"exec": filesUsed, "openat": filesUsed, "write": filesUsed, "pread64": filesUsed, "close": filesUsed, "unlinkat": filesUsed}
	got := usesOf(records, filesOf(pod))
	if e.LostEvents() > 0 {
		t.Errorf("%s: lost %v with so little to do", pod, e.Lost)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: its own files (-want +got):\n%s", pod, diff)
	}
	if diff := cmp.Diff(map[string]int{}, usesOf(records, filesOf(another))); diff != "" {
		t.Errorf("%s: files of %s (-want +got):\n%s", pod, another, diff)
	}
}

// usesOf counts, by call, what container c did with files whose paths begin so, and the programs that were started for them.
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

// filesOf a Pod of these tests: where all may write, under a name of its own.
func filesOf(pod string) string { return "/dev/shm/of-" + pod + "-" }

// useFiles has a Pod use its files.
func useFiles(t *testing.T, p *corev1.Pod) {
	t.Helper()
	useFilesAt(t, p, filesOf(p.Name))
}

func useFilesAt(t *testing.T, p *corev1.Pod, path string) {
	t.Helper()
	out, err := cluster.Exec(t.Context(), p, "/workload", "files", "-path", path, "-count", fmt.Sprint(filesUsed))
	var used struct{ Count int }
	if err != nil || json.Unmarshal([]byte(out), &used) != nil || used.Count != filesUsed {
		t.Fatalf("%s: %q, %v", p.Name, out, err)
	}
}

// resultFile fetches the only file of an entry.
func resultFile(t *testing.T, capture sondev1.Capture, token string, e *sondev1.PodResult) []byte {
	t.Helper()
	status, body := result(t, "mallory", resultPath(capture)+"/files/"+e.UID+"/"+e.Files[0].Name, token)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %.300s", e.Name, status, body)
	}
	return []byte(body)
}

func readTrace(t *testing.T, b []byte) (header *tracefmt.Header, records []*tracefmt.Record, end *tracefmt.Account) {
	t.Helper()
	r := tracefmt.NewReader(bytes.NewReader(b))
	for {
		line, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return header, records, end
		case err != nil:
			t.Fatal(err)
		case line.Header != nil:
			header = line.Header
		case line.Record != nil:
			records = append(records, line.Record)
		case line.Account != nil:
			end = line.Account
		}
	}
}

// tracePrograms are the BPF programs of traces in the kernel, which the nodes of the local cluster share, by their ids.
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
			continue // gone meanwhile
		}
		info, err := p.Info()
		if err == nil && strings.HasPrefix(info.Name, "sonde_") {
			found[id] = info.Name
		}
		_ = p.Close()
	}
}

// newPrograms are those that were not there before.
func newPrograms(t *testing.T, before map[ebpf.ProgramID]string) map[ebpf.ProgramID]string {
	t.Helper()
	now := tracePrograms(t)
	for id := range before {
		delete(now, id)
	}
	return now
}
