//go:build e2e

package security

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A user who may edit Pods replaces the gate's image in a Pod that was just admitted. The program of the new image ends at
// once, and claims that the tracer was attached. The manager believes the probe alone. The control is the gate's own image.
func TestAttackForgedGate(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Bind(t, ns, "mallory", "admin")
	mallory := cluster.As(t, "mallory")
	d := cluster.Deployment(t, ns, "web", 1, "idle")
	tr := cluster.GatedTrace(t, d, sondev1.TraceGate{})
	// A tracer that comes before the forged gate has even started traces the Pod from its start, and then the claim is true.
	cluster.SuspendJobs(t, sondev1.LabelUID, string(tr.UID))
	cluster.ResumeJobs(t, sondev1.LabelUID, string(tr.UID), 10*time.Second)
	for name, tc := range map[string]struct {
		image string // none leaves the gate as it is
		want  sondev1.GateOutcome
	}{
		"protected":               {d.Spec.Template.Spec.Containers[0].Image, sondev1.GateUntraced},
		"control: the gate's own": {"", sondev1.GateOpened},
	} {
		t.Run(name, func(t *testing.T) {
			p := unscheduledPod(t, mallory, d)
			patch := client.MergeFrom(p.DeepCopy())
			p.Spec.SchedulingGates = nil
			if tc.image != "" {
				p.Spec.InitContainers[0].Image = tc.image
			}
			if err := mallory.Patch(t.Context(), p, patch); err != nil {
				t.Fatal(err)
			}
			cluster.Eventually(t, time.Minute, "the gate's end in the status", func(ctx context.Context) error {
				if err := errors.Join(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(tr), tr), cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), p)); err != nil {
					return err
				}
				for _, e := range tr.Status.Pods {
					if e.UID == string(p.UID) && e.Gate != nil && e.Gate.Outcome == tc.want {
						return nil
					}
				}
				return fmt.Errorf("%+v", tr.Status.Pods)
			})
			ended := p.Status.InitContainerStatuses[0].State.Terminated
			if ended == nil || !strings.HasPrefix(ended.Message, "Opened after ") {
				t.Errorf("the gate ended as %+v, want the claim that it opened", ended)
			}
		})
	}
}

// unscheduledPod starts to replace the Pod of a Deployment, and returns the new one, which has a gate and no node yet.
func unscheduledPod(t *testing.T, c client.Client, d *appsv1.Deployment) *corev1.Pod {
	t.Helper()
	var before corev1.PodList
	if err := c.List(t.Context(), &before, client.InNamespace(d.Namespace)); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for i := range before.Items {
		known[before.Items[i].Name] = true
	}
	patch := `{"spec":{"template":{"metadata":{"annotations":{"restarted":"` + time.Now().Format(time.RFC3339Nano) + `"}},"spec":{"schedulingGates":[{"name":"e2e/hold"}]}}}}`
	if err := c.Patch(t.Context(), d, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
	var p *corev1.Pod
	cluster.Eventually(t, time.Minute, "a new Pod with a gate", func(ctx context.Context) error {
		var now corev1.PodList
		if err := c.List(ctx, &now, client.InNamespace(d.Namespace)); err != nil {
			return err
		}
		for i := range now.Items {
			if p = &now.Items[i]; !known[p.Name] && cluster.IsGated(p) {
				return nil
			}
		}
		return fmt.Errorf("%d Pods", len(now.Items))
	})
	return p
}
