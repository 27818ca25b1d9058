//go:build e2e

package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// recordsOf reads the trace of one Pod so far, from the volume of its agent's Pod.
func recordsOf(t *testing.T, tr *sondev1.Trace, target *corev1.Pod) []*tracefmt.Record {
	t.Helper()
	var agents corev1.PodList
	if err := cluster.Admin.List(t.Context(), &agents, client.InNamespace(cluster.OperatorNamespace),
		client.MatchingLabels{sondev1.LabelUID: string(tr.UID), sondev1.LabelTargetPodUID: string(target.UID)}); err != nil || len(agents.Items) != 1 {
		t.Fatalf("got %d agents of Pod %s, want 1 (%v)", len(agents.Items), target.Name, err)
	}
	agent := agents.Items[0]
	text := cluster.OnNode(t, agent.Spec.NodeName, "sh", "-c", "cat /var/lib/kubelet/pods/"+string(agent.UID)+"/volumes/kubernetes.io~empty-dir/results/*.ndjson")
	var records []*tracefmt.Record
	r := tracefmt.NewReader(strings.NewReader(text))
	for {
		line, err := r.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, tracefmt.ErrTruncated): // the probe is still writing
			return records
		case err != nil:
			t.Fatal(err)
		}
		if line.Record != nil {
			record := *line.Record
			records = append(records, &record)
		}
	}
}

// The trace of a gated Pod holds its first calls: the execution of its program, and the first file that this opens.
func TestGateShowsWhatComesFirst(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	d := cluster.Deployment(t, ns, "web", 2, "idle")
	tr := cluster.GatedTrace(t, d, sondev1.TraceGate{})
	for _, p := range cluster.RestartPods(t, d) {
		if !cluster.IsGated(&p) {
			t.Fatalf("Pod %s has no gate", p.Name)
		}
		cluster.Eventually(t, time.Minute, "the gate's end in the status", func(ctx context.Context) error {
			if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(tr), tr); err != nil {
				return err
			}
			i := slices.IndexFunc(tr.Status.Pods, func(e sondev1.PodResult) bool { return e.UID == string(p.UID) })
			if i < 0 || tr.Status.Pods[i].Gate == nil {
				return fmt.Errorf("%+v", tr.Status.Pods)
			}
			if g := tr.Status.Pods[i].Gate; g.Outcome != sondev1.GateOpened {
				return fmt.Errorf("the gate of %s: %+v", p.Name, g)
			}
			t.Logf("Pod %s waited %d ms", p.Name, tr.Status.Pods[i].Gate.WaitedMilliseconds)
			return nil
		})
		cluster.Eventually(t, 10*time.Second, "first calls of "+p.Name, func(context.Context) error {
			var exec, open bool
			for _, r := range recordsOf(t, tr, &p) {
				// The Go runtime opens this file before the program's own code runs.
				exec = exec || r.Container == "c" && r.Call == "exec" && string(r.Path) == "/workload"
				open = open || r.Container == "c" && r.Call == "openat" && strings.HasPrefix(string(r.Path), "/sys/kernel/mm/transparent_hugepage/")
			}
			if !exec || !open {
				return fmt.Errorf("found exec: %t, open: %t", exec, open)
			}
			return nil
		})
	}
	cluster.DeleteNow(t, tr)
	cluster.NoGateConfiguration(t)
	if slices.ContainsFunc(cluster.RestartPods(t, d), func(p corev1.Pod) bool { return cluster.IsGated(&p) }) {
		t.Error("a Pod has a gate although no Trace exists")
	}
}

// A Pod whose gate's image does not exist starts without a gate.
func TestGateWithoutItsImage(t *testing.T) { cluster.GateWithoutItsImage(t) }
