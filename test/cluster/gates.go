package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// QuotaOfNone has the API server refuse the Pods of agents.
func QuotaOfNone(t *testing.T) {
	t.Helper()
	QuotaOfNoPods(t, OperatorNamespace)
}

// QuotaOfNoPods has the API server refuse the Pods of a namespace, after it has asked all who may change them.
func QuotaOfNoPods(t *testing.T, ns string) {
	t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "e2e-"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	CreateEventually(t, Admin, quota)
	Eventually(t, 30*time.Second, "quota in force", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if len(quota.Status.Hard) == 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

// OnePod is a Pod of a Deployment's, which nobody has made yet; it must not start untraced if required.
func OnePod(t *testing.T, d *appsv1.Deployment, required bool) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, GenerateName: "one-", OwnerReferences: OwnersOf(t.Context(), t, d)}, Spec: PodSpec("idle")}
	if required {
		p.Labels = map[string]string{sondev1.LabelTraceRequired: "true"}
	}
	return p
}

// GatedTrace makes a Trace of a Deployment that gates, and returns it once new Pods wait.
func GatedTrace(t *testing.T, d *appsv1.Deployment, gate sondev1.TraceGate) *sondev1.Trace {
	t.Helper()
	return GatedBy(t, d, sondev1.TraceSpec{Duration: "1h", Gate: &gate, Events: []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceFile}})
}

// GatedBy is gatedTrace for a Trace of which more is asked.
func GatedBy(t *testing.T, d *appsv1.Deployment, spec sondev1.TraceSpec) *sondev1.Trace {
	t.Helper()
	spec.TargetDeployment, spec.Gate.Enabled = d.Name, true
	tr := &sondev1.Trace{ObjectMeta: metav1.ObjectMeta{GenerateName: "gate-", Namespace: d.Namespace}, Spec: spec}
	CreateEventually(t, Admin, tr)
	Eventually(t, time.Minute, "new Pods gated", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(tr), tr); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(tr.Status.Conditions, sondev1.ConditionGating) {
			return fmt.Errorf("conditions %+v", tr.Status.Conditions)
		}
		// A Pod that is not made shows whether the API server asks already.
		p := OnePod(t, d, false)
		if err := Admin.Create(ctx, p, client.DryRunAll); err != nil {
			return err
		}
		if !IsGated(p) {
			return errors.New("a dry run has no gate")
		}
		return nil
	})
	return tr
}

// OwnersOf a Pod of the Deployment.
func OwnersOf(ctx context.Context, t *testing.T, d *appsv1.Deployment) []metav1.OwnerReference {
	t.Helper()
	var sets appsv1.ReplicaSetList
	if err := Admin.List(ctx, &sets, client.InNamespace(d.Namespace)); err != nil || len(sets.Items) == 0 {
		t.Fatalf("ReplicaSets: %d, %v", len(sets.Items), err)
	}
	set := &sets.Items[0]
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: new(true)}}
}

// IsGated reports whether a Pod has a gate.
func IsGated(p *corev1.Pod) bool {
	return len(p.Spec.InitContainers) > 0 && p.Spec.InitContainers[0].Name == gateconfig.ContainerName
}

// Restart begins to replace all Pods of a Deployment.
func Restart(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"restarted":%q}}}}}`, time.Now().Format(time.RFC3339Nano))
	if err := Admin.Patch(t.Context(), d, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// RestartPods replaces all Pods of a Deployment and returns the new ones.
func RestartPods(t *testing.T, d *appsv1.Deployment) []corev1.Pod {
	t.Helper()
	Restart(t, d)
	Eventually(t, 3*time.Minute, d.Name+" restarted", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if s := d.Status; s.ObservedGeneration < d.Generation || s.UpdatedReplicas < *d.Spec.Replicas || s.AvailableReplicas < *d.Spec.Replicas {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	return ReadyPods(t, d, int(*d.Spec.Replicas))
}

// NoGateConfiguration waits until no Pod is asked about any more.
func NoGateConfiguration(t *testing.T) {
	t.Helper()
	Gone(t, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: platformcontroller.GateConfigurationName}}, 30*time.Second)
}

// GateWithoutItsImage gates Pods with an image that does not exist: the operator evicts them, and they start without a gate.
func GateWithoutItsImage(t *testing.T) {
	t.Helper()
	ns := Namespace(t, nil)
	d := Deployment(t, ns, "web", 1, "idle")
	tr := GatedTrace(t, d, sondev1.TraceGate{Timeout: "5s"})
	ManagerFlag(t, "--image=sonde.local/none:1")
	for _, p := range RestartPods(t, d) {
		if IsGated(&p) {
			t.Errorf("Pod %s has started, and has a gate that cannot", p.Name)
		}
	}
	if err := Admin.Get(t.Context(), client.ObjectKeyFromObject(tr), tr); err != nil {
		t.Fatal(err)
	}
	if c := apimeta.FindStatusCondition(tr.Status.Conditions, sondev1.ConditionGating); c == nil || c.Reason != sondev1.ReasonGateNotStarted {
		t.Errorf("condition %+v", c)
	}
}
