//go:build e2e

package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Numbers of Pods to start, in all and at a time.
const (
	startsGated   = 100 // and as many again with a late tracer
	startsWithout = 50
	startsAtOnce  = 10
	// lateBy is the delay between the creation of the tracer's Job and its start, for the second set of gated Pods.
	lateBy = 5 * time.Second
	// patience is the timeout of each step on a busy machine.
	patience = 5 * time.Minute
)

// firstCalls are each Pod's first calls, which no other Pod makes. The Pod executes a program under its own name, opens
// a file of that name, and connects to an address derived from the name.
var firstCalls = []string{"exec", "openat", "connect"}

// firstGroups are the event groups of these calls.
var firstGroups = []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceFile, sondev1.TraceNetwork}

// firstActs is the Pod's own report of its first calls (test/workload).
type firstActs struct {
	Name, Path, Address string
	At                  time.Time
}

// startedPod is a Pod that the test started: what it did, and which of its first calls its trace has.
type startedPod struct {
	uid    string
	did    firstActs
	traced map[string]bool // by call
	// took is the time from the Pod's binding to a node until its program's first line; waited is the part of it at the
	// gate.
	took, waited time.Duration
}

// 200 Pods wait at their gates, half of them for a tracer whose Job starts 5 s late. The trace of each holds its first
// calls. Traces of Pods without a gate miss them. The test measures how much the gate adds to a start.
func TestGateStarts(t *testing.T) {
	gate := func() *sondev1.TraceGate { return &sondev1.TraceGate{Timeout: "60s"} }
	var gated, late, without []startedPod
	t.Run("gated", func(t *testing.T) { gated = startMany(t, startsGated, gate(), 0) })
	t.Run("late", func(t *testing.T) { late = startMany(t, startsGated, gate(), lateBy) })
	t.Run("without", func(t *testing.T) { without = startMany(t, startsWithout, nil, 0) })
	if t.Failed() {
		return
	}
	for _, p := range slices.Concat(gated, late) {
		for _, call := range firstCalls {
			if !p.traced[call] {
				t.Errorf("the trace of %s has no %s, want its first calls: %+v", p.did.Name, call, p.did)
			}
		}
	}
	for _, p := range late {
		if p.took < lateBy {
			t.Errorf("%s started after %v, want not before its tracer's Job", p.did.Name, p.took)
		}
	}
	if n := countTraced(without); n[firstCalls[0]] == len(without) {
		t.Errorf("traces without a gate hold %v first calls of %d Pods, want some missed; otherwise the test shows nothing", n, len(without))
	}
	text := startsTable(gated, late, without)
	t.Log("\n" + text)
	cluster.WriteFigures(t, "gate", text)
}

// startMany starts this many Pods of a traced Deployment, some at a time.
func startMany(t *testing.T, count int, gate *sondev1.TraceGate, late time.Duration) []startedPod {
	t.Helper()
	from := time.Now()
	ns := cluster.Namespace(t, nil)
	d := cluster.Deployment(t, ns, "first", 0, "first", "-name", "$(POD)")
	change(t, d, func(s *corev1.PodSpec) {
		s.Containers[0].Env = []corev1.EnvVar{{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
	})
	// Retained results keep the agents' resources on the nodes, which the next Pods' tracers need.
	spec := sondev1.TraceSpec{TargetDeployment: d.Name, Duration: "1h", RetainFor: "10s", Events: firstGroups, Gate: gate}
	tr := &sondev1.Trace{ObjectMeta: metav1.ObjectMeta{GenerateName: "trace-", Namespace: ns}, Spec: spec}
	if gate != nil {
		tr = cluster.GatedBy(t, d, spec)
	} else {
		cluster.CreateEventually(t, cluster.Admin, tr)
	}
	if late > 0 {
		cluster.SuspendJobs(t, sondev1.LabelUID, string(tr.UID))
		cluster.ResumeJobs(t, sondev1.LabelUID, string(tr.UID), late)
	}
	var all []startedPod
	for len(all) < count {
		all = append(all, startSome(t, d, tr)...)
	}
	bound := boundAt(t, ns, from)
	for i := range all {
		at, ok := bound[all[i].did.Name]
		if !ok {
			t.Fatalf("the audit log has no binding of %s", all[i].did.Name)
		}
		all[i].took = all[i].did.At.Sub(at)
	}
	return all
}

// startSome starts Pods, reads their first calls from their logs and their traces, and deletes them.
func startSome(t *testing.T, d *appsv1.Deployment, tr *sondev1.Trace) []startedPod {
	t.Helper()
	cluster.Eventually(t, patience, "room for tracers", func(ctx context.Context) error {
		var agents corev1.PodList
		err := cluster.Admin.List(ctx, &agents, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(tr.UID)})
		left := slices.DeleteFunc(agents.Items, func(p corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		})
		if len(left) > startsAtOnce {
			return fmt.Errorf("%d agents of earlier Pods are left", len(left))
		}
		return err
	})
	cluster.Scale(t, d, startsAtOnce)
	pods := cluster.ReadyPodsWithin(t, d, startsAtOnce, patience)
	cluster.AwaitAttached(t, tr, pods)
	all := make([]startedPod, len(pods))
	for i := range pods {
		all[i] = startedPod{uid: string(pods[i].UID), did: actsOf(t, &pods[i])}
		all[i].traced = tracedFirst(recordsUpTo(t, tr, &pods[i]), all[i].did)
	}
	if tr.Spec.Gate != nil {
		for i := range all {
			if got := gateOfPod(t, tr, all[i].uid); got != sondev1.GateOpened {
				t.Errorf("the gate of %s: %s", all[i].did.Name, got)
			}
			all[i].waited = time.Duration(cluster.Entry(t, tr, all[i].did.Name).Gate.WaitedMilliseconds) * time.Millisecond
		}
	}
	cluster.Scale(t, d, 0)
	cluster.ReadyPodsWithin(t, d, 0, patience)
	return all
}

// actsOf returns a Pod's own report of its first calls.
func actsOf(t *testing.T, p *corev1.Pod) firstActs {
	t.Helper()
	var did firstActs
	cluster.Eventually(t, 30*time.Second, p.Name+" started", func(ctx context.Context) error {
		text, err := cluster.Logs(ctx, p)
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(text), &did)
	})
	if did.Name != p.Name {
		t.Fatalf("%s reports %+v, want its own name", p.Name, did)
	}
	return did
}

// recordsUpTo returns the records of a Pod's trace up to now. Records are ordered by time: once the trace holds a call
// made now, it holds every earlier call that was not missed.
func recordsUpTo(t *testing.T, tr *sondev1.Trace, p *corev1.Pod) (records []*tracefmt.Record) {
	t.Helper()
	now := cluster.FilesOf(p.Name) + "now"
	if _, err := cluster.Exec(t.Context(), p, "/workload", "file", "-path", now); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, 30*time.Second, "trace of "+p.Name+" up to now", func(context.Context) error {
		records = recordsOf(t, tr, p)
		if !slices.ContainsFunc(records, func(r *tracefmt.Record) bool { return r.Call == "unlinkat" && string(r.Path) == now }) {
			return fmt.Errorf("%d records", len(records))
		}
		return nil
	})
	return records
}

// tracedFirst returns which of a Pod's first calls its trace has.
func tracedFirst(records []*tracefmt.Record, did firstActs) map[string]bool {
	traced := map[string]bool{}
	for _, r := range records {
		switch r.Call {
		case "exec":
			if r.Container == "c" && len(r.Args) == 1 && bytes.HasSuffix(r.Args[0].Text, []byte("\x00-name\x00"+did.Name+"\x00")) {
				traced[r.Call] = true
			}
		case "openat":
			if r.Container == "c" && string(r.Path) == did.Path && r.Errno == "ENOENT" {
				traced[r.Call] = true
			}
		case "connect":
			if r.Container == "c" && r.Ret == 0 && slices.ContainsFunc(r.Args, func(a tracefmt.Arg) bool { return string(a.Text) == did.Address }) {
				traced[r.Call] = true
			}
		}
	}
	return traced
}

// countTraced counts, by call, the Pods whose traces have it.
func countTraced(pods []startedPod) map[string]int {
	n := map[string]int{}
	for _, p := range pods {
		for call := range p.traced {
			n[call]++
		}
	}
	return n
}

// boundAt returns when each Pod of a namespace was bound to a node, according to the API server's audit log.
func boundAt(t *testing.T, ns string, since time.Time) map[string]time.Time {
	t.Helper()
	at := map[string]time.Time{}
	for _, e := range cluster.AuditEvents(t, since) {
		if o := e.ObjectRef; e.Verb == "create" && o.Resource == "pods" && o.Subresource == "binding" && o.Namespace == ns {
			at[o.Name] = e.RequestReceivedTimestamp
		}
	}
	return at
}

// startsTable returns the table of docs/benchmarks.md about the gate.
func startsTable(gated, late, without []startedPod) string {
	sets := [][]startedPod{gated, late, without}
	var text strings.Builder
	row := func(what string, cell func([]startedPod) string) {
		fmt.Fprintf(&text, "| %s |", what)
		for _, set := range sets {
			fmt.Fprintf(&text, " %s |", cell(set))
		}
		text.WriteByte('\n')
	}
	fmt.Fprintf(&text, "| | gate | gate, Jobs begin %v late | no gate |\n|---|---|---|---|\n", lateBy)
	row("Pods started", func(set []startedPod) string { return fmt.Sprint(len(set)) })
	for _, call := range firstCalls {
		row("of these the first `"+call+"` is in the trace", func(set []startedPod) string { return fmt.Sprint(countTraced(set)[call]) })
	}
	took := func(p startedPod) time.Duration { return p.took }
	waited := func(p startedPod) time.Duration { return p.waited }
	gate := func(set []startedPod) bool { // a late Pod may find its gate open
		return slices.ContainsFunc(set, func(p startedPod) bool { return p.waited > 0 })
	}
	row("from a node to the program's first line, s", func(set []startedPod) string { return medianP99(set, took, 0, 0) })
	row("of that at the gate (`waitedMilliseconds`), s", func(set []startedPod) string {
		if !gate(set) {
			return ""
		}
		return medianP99(set, waited, 0, 0)
	})
	row("added to a start, s", func(set []startedPod) string {
		if !gate(set) {
			return ""
		}
		return medianP99(set, took, quantile(without, took, 0.5), quantile(without, took, 0.99))
	})
	return text.String()
}

// medianP99 formats the median and the 99th percentile, each minus the same quantile of another set.
func medianP99(set []startedPod, of func(startedPod) time.Duration, median, p99 time.Duration) string {
	return fmt.Sprintf("median %.2f, p99 %.2f", (quantile(set, of, 0.5) - median).Seconds(), (quantile(set, of, 0.99) - p99).Seconds())
}

// quantile is the smallest value that is at least as large as the fraction q of the set.
func quantile(set []startedPod, of func(startedPod) time.Duration, q float64) time.Duration {
	all := make([]time.Duration, len(set))
	for i := range set {
		all[i] = of(set[i])
	}
	slices.Sort(all)
	return all[int(math.Ceil(q*float64(len(all))))-1]
}
