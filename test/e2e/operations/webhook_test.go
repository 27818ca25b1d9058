//go:build e2e

package operations

import (
	"context"
	"errors"
	"maps"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/certs"
)

// The webhook's Service has no endpoints. No capture can be created, and the error says so clearly. Everything else in
// the cluster works, and so do existing captures.
func TestOpsWebhookServiceDown(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "40s"})
	other := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	webhookWithoutEndpoints(t)
	refused := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "cap-", Namespace: ns}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink"}}
	cluster.Eventually(t, time.Minute, "captures refused", func(ctx context.Context) error {
		refused.ResourceVersion, refused.Name = "", ""
		err := cluster.Admin.Create(ctx, refused, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "sonde-webhook") {
			return errors.Join(errors.New("want an error that names the Service"), err)
		}
		return nil
	})
	if err := cluster.Admin.Patch(t.Context(), pc, stopPatch(), client.DryRunAll); err == nil {
		t.Error("a spec was changed without the webhook, want a refusal")
	}
	out, err := osexec.CommandContext(t.Context(), cluster.Plugin, "capture", "deploy/sink", "-n", ns, "-o", filepath.Join(t.TempDir(), "x")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Deployment sonde-manager") || strings.Contains(string(out), "/mutate-") {
		t.Errorf("the plugin printed (%v)\n%s\nwant who can help, without the webhook's path", err, out)
	}

	meta := metav1.ObjectMeta{GenerateName: "other-", Namespace: ns}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "other"}}, Spec: cluster.PodSpec("idle")}
	jobTemplate := *template.DeepCopy()
	jobTemplate.Spec.RestartPolicy = corev1.RestartPolicyNever
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}},
		&corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}, &corev1.ServiceAccount{ObjectMeta: meta},
		&corev1.Pod{ObjectMeta: meta, Spec: cluster.PodSpec("idle")},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}},
		&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: jobTemplate}},
	} {
		if err := cluster.Admin.Create(t.Context(), o); err != nil {
			t.Errorf("create %T: %v", o, err)
			continue
		}
		cluster.DeleteNow(t, o)
	}
	label := []byte(`{"metadata":{"labels":{"seen":"yes"},"annotations":{"seen":"yes"}}}`)
	if err := cluster.Admin.Patch(t.Context(), pc, client.RawPatch("application/merge-patch+json", label)); err != nil {
		t.Errorf("label a capture: %v", err)
	}
	cluster.AwaitFinal(t, pc, 2*time.Minute) // the status can still be written
	if pc.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("phase %s, want Completed: %+v", pc.Status.Phase, pc.Status)
	}
	cluster.DeleteNow(t, other)
	cluster.Gone(t, other, 30*time.Second)
	cluster.NothingLeft(t, string(other.UID))
}

// webhookWithoutEndpoints makes the webhook's Service select no Pods until the test ends.
func webhookWithoutEndpoints(t *testing.T) {
	t.Helper()
	set := func(ctx context.Context, selector map[string]string) map[string]string {
		var s corev1.Service
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: certs.ServiceWebhook}, &s); err != nil {
			t.Fatal(err)
		}
		before := maps.Clone(s.Spec.Selector)
		s.Spec.Selector = selector
		if err := cluster.Admin.Update(ctx, &s); err != nil {
			t.Fatal(err)
		}
		return before
	}
	before := set(t.Context(), map[string]string{"app": "nothing"})
	t.Cleanup(func() {
		set(context.WithoutCancel(t.Context()), before)
		awaitWebhook(t)
	})
	// The API server keeps its open connections, which end with the Pods.
	pods := cluster.ManagerPods(t)
	for i := range pods {
		cluster.DeleteNow(t, &pods[i])
		cluster.Gone(t, &pods[i], time.Minute)
	}
	cluster.AwaitManager(t.Context(), t)
}

// awaitWebhook waits until the webhook decides on captures: a dry run with a missing target is refused.
func awaitWebhook(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	for {
		pc := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "asked-", Namespace: "default"}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "no-such"}}
		err := cluster.Admin.Create(ctx, pc, client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "no-such") {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the webhook does not answer: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
