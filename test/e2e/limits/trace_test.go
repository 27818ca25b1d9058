//go:build e2e

package limits

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Number of calls that each Pod makes in a burst, as fast as it can.
const (
	callsEach   = 50_000
	callThreads = 2
)

// Overload of a trace: a probe with the smallest ring gets no CPU for a while, and Pods make calls faster than they can
// be written. Each Pod's program counts its own calls. Each of these is either written or counted as lost, and file,
// status and metrics agree.
func TestLimitsTraceOverload(t *testing.T) {
	cluster.ManagerFlag(t, leastRing)
	cluster.NoAgents(t, agentsGone) // so that the test counts only its own events
	ns := cluster.Namespace(t, nil)
	reader := cluster.MetricsReader(t, ns)
	pods := cluster.ReadyPods(t, cluster.Deployment(t, ns, "caller", 2, "calls", "-count", fmt.Sprint(callsEach), "-threads", fmt.Sprint(callThreads)), 2)
	first := map[string]int64{}
	for i := range pods {
		first[pods[i].Name] = awaitCalls(t, &pods[i], 1)
	}
	before := cluster.ScrapeAll(t, reader)
	tr := cluster.Trace(t, cluster.Admin, ns, sondev1.TraceSpec{
		TargetDeployment: "caller", Duration: "10m", Events: []sondev1.TraceGroup{sondev1.TraceIO}, MaxBytes: 512 << 20,
		FollowPods: new(false),
	})
	made := map[string]int64{}
	call := func(round int) {
		t.Helper()
		for i := range pods {
			cluster.KillProcess(t, &pods[i], "USR1", "/workload calls")
		}
		for i := range pods {
			made[pods[i].Name] = awaitCalls(t, &pods[i], round+1) - first[pods[i].Name]
		}
	}
	call(1)
	signalProbes(t, pods, "STOP")
	call(2)
	signalProbes(t, pods, "CONT")
	call(3) // the trace goes on as before
	cluster.Stop(t, tr)
	if tr.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("phase %s, want Completed, because all losses are counted: %+v", tr.Status.Phase, tr.Status)
	}
	token := cluster.GrantResults(t, cluster.Admin, tr)
	for name, n := range made {
		wantAllCounted(t, tr, token, name, n)
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
}

// awaitCalls waits until a Pod's program has printed its count this many times, and returns the last count.
func awaitCalls(t *testing.T, p *corev1.Pod, times int) int64 {
	t.Helper()
	var made struct{ Calls int64 }
	cluster.Eventually(t, 2*time.Minute, fmt.Sprintf("%s has called %d times", p.Name, times-1), func(ctx context.Context) error {
		text, err := cluster.Logs(ctx, p)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if len(lines) != times {
			return fmt.Errorf("it printed %q", text)
		}
		return json.Unmarshal([]byte(lines[times-1]), &made)
	})
	return made.Calls
}

// wantAllCounted compares the calls that a Pod's program made with the figures in status and file.
func wantAllCounted(t *testing.T, tr *sondev1.Trace, token, pod string, made int64) {
	t.Helper()
	e := cluster.Entry(t, tr, pod)
	t.Logf("%s on %s: %d calls, %d written, lost %v", pod, e.Node, made, e.Events, e.Lost)
	if e.Events+e.LostEvents() != made {
		t.Errorf("%s: the status has %d written and %v lost, want a sum of %d calls made", pod, e.Events, e.Lost, made)
	}
	if e.LostEvents()*10 < made || e.Events == 0 {
		t.Errorf("%s: of %d calls %d were lost, want some lost and some written", pod, made, e.LostEvents())
	}
	_, records, end := cluster.ReadTrace(t, cluster.ResultFile(t, tr, token, &e))
	if end == nil || !end.Complete {
		t.Fatalf("%s: the file ends with %+v, want an account", pod, end)
	}
	var lost int64
	for _, n := range end.Lost {
		lost += int64(n)
	}
	if int64(len(records)) != e.Events || int64(end.Written) != e.Events || lost != e.LostEvents() {
		t.Errorf("%s: got %d records and the account %+v, want %d and %v as in the status", pod, len(records), end, e.Events, e.Lost)
	}
	if others := otherCalls(records); len(others) > 0 {
		t.Errorf("%s: got calls that the program does not count: %v", pod, others)
	}
}

// otherCalls counts the calls that test/workload does not make.
func otherCalls(records []*tracefmt.Record) map[string]int {
	n := map[string]int{}
	for _, r := range records {
		if r.Call != "pread64" && r.Call != "write" || r.Container != "c" {
			n[r.Container+": "+r.Call]++
		}
	}
	return n
}
