//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// gatedTrace makes a Trace of a Deployment that gates, and returns it once new Pods wait.
func gatedTrace(t *testing.T, d *appsv1.Deployment, gate sondev1.TraceGate) *sondev1.Trace {
	t.Helper()
	return gatedBy(t, d, sondev1.TraceSpec{Duration: "1h", Gate: &gate, Events: []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceFile}})
}

// gatedBy is gatedTrace for a Trace of which more is asked.
func gatedBy(t *testing.T, d *appsv1.Deployment, spec sondev1.TraceSpec) *sondev1.Trace {
	t.Helper()
	spec.TargetDeployment, spec.Gate.Enabled = d.Name, true
	tr := &sondev1.Trace{ObjectMeta: metav1.ObjectMeta{GenerateName: "gate-", Namespace: d.Namespace}, Spec: spec}
	createSoon(t, admin, tr)
	eventually(t, time.Minute, "new Pods gated", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(tr), tr); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(tr.Status.Conditions, sondev1.ConditionGating) {
			return fmt.Errorf("conditions %+v", tr.Status.Conditions)
		}
		// A Pod that is not made shows whether the API server asks already.
		p := onePod(t, d, false)
		if err := admin.Create(ctx, p, client.DryRunAll); err != nil {
			return err
		}
		if !isGated(p) {
			return errors.New("a dry run has no gate")
		}
		return nil
	})
	return tr
}

// ownersOf a Pod of the Deployment.
func ownersOf(ctx context.Context, t *testing.T, d *appsv1.Deployment) []metav1.OwnerReference {
	t.Helper()
	var sets appsv1.ReplicaSetList
	if err := admin.List(ctx, &sets, client.InNamespace(d.Namespace)); err != nil || len(sets.Items) == 0 {
		t.Fatalf("ReplicaSets: %d, %v", len(sets.Items), err)
	}
	set := &sets.Items[0]
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: new(true)}}
}

func isGated(p *corev1.Pod) bool {
	return len(p.Spec.InitContainers) > 0 && p.Spec.InitContainers[0].Name == gateconfig.ContainerName
}

// restart begins to replace all Pods of a Deployment.
func restart(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"restarted":%q}}}}}`, time.Now().Format(time.RFC3339Nano))
	if err := admin.Patch(t.Context(), d, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// restartPods replaces all Pods of a Deployment and returns the new ones.
func restartPods(t *testing.T, d *appsv1.Deployment) []corev1.Pod {
	t.Helper()
	restart(t, d)
	eventually(t, 3*time.Minute, d.Name+" restarted", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if s := d.Status; s.ObservedGeneration < d.Generation || s.UpdatedReplicas < *d.Spec.Replicas || s.AvailableReplicas < *d.Spec.Replicas {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	return readyPods(t, d, int(*d.Spec.Replicas))
}

// recordsOf reads what the trace of one Pod has so far, from the volume of its agent's Pod.
func recordsOf(t *testing.T, tr *sondev1.Trace, target *corev1.Pod) []*tracefmt.Record {
	t.Helper()
	var agents corev1.PodList
	if err := admin.List(t.Context(), &agents, client.InNamespace(operatorNamespace),
		client.MatchingLabels{sondev1.LabelUID: string(tr.UID), sondev1.LabelTargetPodUID: string(target.UID)}); err != nil || len(agents.Items) != 1 {
		t.Fatalf("%d agents of Pod %s, %v", len(agents.Items), target.Name, err)
	}
	agent := agents.Items[0]
	text := onNode(t, agent.Spec.NodeName, "sh", "-c", "cat /var/lib/kubelet/pods/"+string(agent.UID)+"/volumes/kubernetes.io~empty-dir/results/*.ndjson")
	var records []*tracefmt.Record
	r := tracefmt.NewReader(strings.NewReader(text))
	for {
		line, err := r.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, tracefmt.ErrCut): // the probe is at work
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

// What a gated Pod does first is in its trace: the execution of its program, and the first file that this opens.
func TestGateShowsWhatComesFirst(t *testing.T) {
	ns := namespace(t, nil)
	d := deployment(t, ns, "web", 2, "idle")
	tr := gatedTrace(t, d, sondev1.TraceGate{})
	for _, p := range restartPods(t, d) {
		if !isGated(&p) {
			t.Fatalf("Pod %s has no gate", p.Name)
		}
		eventually(t, time.Minute, "the gate's end told", func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(tr), tr); err != nil {
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
		eventually(t, 10*time.Second, "first calls of "+p.Name, func(context.Context) error {
			var exec, open bool
			for _, r := range recordsOf(t, tr, &p) {
				// The Go runtime opens this file before anything of the program runs.
				exec = exec || r.Container == "c" && r.Call == "exec" && string(r.Path) == "/workload"
				open = open || r.Container == "c" && r.Call == "openat" && strings.HasPrefix(string(r.Path), "/sys/kernel/mm/transparent_hugepage/")
			}
			if !exec || !open {
				return fmt.Errorf("exec %t, open %t", exec, open)
			}
			return nil
		})
	}
	deleteNow(t, tr)
	noGateConfiguration(t)
	if slices.ContainsFunc(restartPods(t, d), func(p corev1.Pod) bool { return isGated(&p) }) {
		t.Error("a Pod has a gate without a Trace")
	}
}

// noGateConfiguration waits until no Pod is asked about any more.
func noGateConfiguration(t *testing.T) {
	t.Helper()
	gone(t, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: platformcontroller.GateConfigurationName}}, 30*time.Second)
}

// A Pod whose gate has no image starts without one.
func TestGateWithoutItsImage(t *testing.T) { gateWithoutItsImage(t) }

func gateWithoutItsImage(t *testing.T) {
	t.Helper()
	ns := namespace(t, nil)
	d := deployment(t, ns, "web", 1, "idle")
	tr := gatedTrace(t, d, sondev1.TraceGate{Timeout: "5s"})
	managerFlag(t, "--image=sonde.local/none:1")
	for _, p := range restartPods(t, d) {
		if isGated(&p) {
			t.Errorf("Pod %s has started, and has a gate that cannot", p.Name)
		}
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(tr), tr); err != nil {
		t.Fatal(err)
	}
	if c := apimeta.FindStatusCondition(tr.Status.Conditions, sondev1.ConditionGating); c == nil || c.Reason != sondev1.ReasonGateNotStarted {
		t.Errorf("condition %+v", c)
	}
}
