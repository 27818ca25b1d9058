package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// OnePod returns a Pod owned by the Deployment, which the caller creates. If required is set, the Pod must not start
// untraced.
func OnePod(t *testing.T, d *appsv1.Deployment, required bool) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, GenerateName: "one-", OwnerReferences: OwnersOf(t.Context(), t, d)}, Spec: PodSpec("idle")}
	if required {
		p.Labels = map[string]string{sondev1.LabelTraceRequired: "true"}
	}
	return p
}

// GatedTrace creates a Trace of a Deployment with a gate and returns it once new Pods get the gate.
func GatedTrace(t *testing.T, d *appsv1.Deployment, gate sondev1.TraceGate) *sondev1.Trace {
	t.Helper()
	return GatedBy(t, d, sondev1.TraceSpec{Duration: "1h", Gate: &gate, Events: []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceFile}})
}

// GatedBy is GatedTrace with a spec of the caller's choice.
func GatedBy(t *testing.T, d *appsv1.Deployment, spec sondev1.TraceSpec) *sondev1.Trace {
	t.Helper()
	spec.TargetDeployment, spec.Gate.Enabled = d.Name, true
	tr := &sondev1.Trace{ObjectMeta: metav1.ObjectMeta{GenerateName: "gate-", Namespace: d.Namespace}, Spec: spec}
	CreateEventually(t, Admin, tr)
	Eventually(t, time.Minute, "gate on new Pods", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(tr), tr); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(tr.Status.Conditions, sondev1.ConditionGating) {
			return fmt.Errorf("conditions %+v", tr.Status.Conditions)
		}
		// A dry run shows whether the API server calls the webhook yet.
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

// IsGated reports whether a Pod has a gate.
func IsGated(p *corev1.Pod) bool {
	return len(p.Spec.InitContainers) > 0 && p.Spec.InitContainers[0].Name == gateconfig.ContainerName
}

// NoGateConfiguration waits until no webhook for gates is configured.
func NoGateConfiguration(t *testing.T) {
	t.Helper()
	noPodWebhook(t, gate.WebhookName, gate.WebhookNameRequired)
}

// noPodWebhook waits until the configuration for Pods has none of these webhooks.
func noPodWebhook(t *testing.T, names ...string) {
	t.Helper()
	Eventually(t, 30*time.Second, "webhook removed", func(ctx context.Context) error {
		var c admissionregistrationv1.MutatingWebhookConfiguration
		if err := Admin.Get(ctx, client.ObjectKey{Name: platformcontroller.PodConfigurationName}, &c); err != nil {
			return client.IgnoreNotFound(err)
		}
		for i := range c.Webhooks {
			if slices.Contains(names, c.Webhooks[i].Name) {
				return fmt.Errorf("webhook %s is configured", c.Webhooks[i].Name)
			}
		}
		return nil
	})
}

// GateWithoutItsImage gates Pods with an image that does not exist, and asserts that the operator evicts them and they
// start without a gate.
func GateWithoutItsImage(t *testing.T) {
	t.Helper()
	ns := Namespace(t, nil)
	d := Deployment(t, ns, "web", 1, "idle")
	tr := GatedTrace(t, d, sondev1.TraceGate{Timeout: "5s"})
	ManagerFlag(t, "--image=sonde.local/none:1")
	for _, p := range RestartPods(t, d) {
		if IsGated(&p) {
			t.Errorf("Pod %s has started with a gate whose image does not exist, want it without a gate", p.Name)
		}
	}
	if err := Admin.Get(t.Context(), client.ObjectKeyFromObject(tr), tr); err != nil {
		t.Fatal(err)
	}
	if c := apimeta.FindStatusCondition(tr.Status.Conditions, sondev1.ConditionGating); c == nil || c.Reason != sondev1.ReasonGateNotStarted {
		t.Errorf("condition Gating = %+v, want reason %s", c, sondev1.ReasonGateNotStarted)
	}
}
