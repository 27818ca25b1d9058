//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	osexec "os/exec"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

func TestDeletingTheCaptureLeavesNothing(t *testing.T) {
	ns := namespace(t, nil)
	deployment(t, ns, "sink", 2, "sink")
	pc := capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	deleteNow(t, pc)
	nothingLeft(t, string(pc.UID))
	noAgents(t, 10*time.Second)
}

func TestDeletingTheTargetEndsTheCapture(t *testing.T) {
	ns := namespace(t, nil)
	target := deployment(t, ns, "sink", 2, "sink")
	pc := capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	deleteNow(t, target)
	awaitFinal(t, pc, 30*time.Second)
	if pc.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("phase %s, want Completed: %+v", pc.Status.Phase, pc.Status)
	}
	download(t, pc)
	deleteNow(t, pc)
	nothingLeft(t, string(pc.UID))
	noAgents(t, 10*time.Second)
}

func TestDeletingTheNamespaceLeavesNothing(t *testing.T) {
	ns := namespace(t, nil)
	deployment(t, ns, "sink", 2, "sink")
	pc := capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	deleteNow(t, n)
	gone(t, n, 30*time.Second)
	nothingLeft(t, string(pc.UID))
	noAgents(t, 10*time.Second)
}

func TestDeletingTheTargetNamespaceEndsACaptureFromTheHub(t *testing.T) {
	ns, hub := namespace(t, nil), namespace(t, map[string]string{sondev1.LabelHub: "true"})
	deployment(t, ns, "sink", 1, "sink")
	pc := capture(t, admin, hub, sondev1.PacketCaptureSpec{TargetNamespace: ns, TargetDeployment: "sink", Duration: "10m"})
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	deleteNow(t, n)
	gone(t, n, 30*time.Second)
	awaitFinal(t, pc, 30*time.Second)
	deleteNow(t, pc)
	nothingLeft(t, string(pc.UID))
	noAgents(t, 10*time.Second)
}

// The operator is gone for good in mid-capture: whatever is deleted then goes, and Jobs end by themselves.
func TestOperatorGoneForGood(t *testing.T) {
	ns, hub := namespace(t, nil), namespace(t, map[string]string{sondev1.LabelHub: "true"})
	deployment(t, ns, "sink", 2, "sink")
	pc := capture(t, admin, hub, sondev1.PacketCaptureSpec{TargetNamespace: ns, TargetDeployment: "sink", Duration: "30s", RetainFor: "10s"})
	stopManager(t)
	t.Cleanup(func() { reinstall(t) })

	deleteNow(t, pc)
	gone(t, pc, 30*time.Second)
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	deleteNow(t, n)
	gone(t, n, 30*time.Second)
	for _, kind := range []string{"packetcaptures", "traces", "resultaccesses"} {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		crd.SetName(kind + ".monitoring.openshift.tpg")
		deleteNow(t, crd)
		gone(t, crd, 30*time.Second)
	}
	eventually(t, 2*time.Minute, "Jobs ended by themselves", func(ctx context.Context) error {
		var jobs batchv1.JobList
		if err := admin.List(ctx, &jobs, client.InNamespace(operatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(pc.UID)}); err != nil {
			return err
		}
		for i := range jobs.Items {
			if jobs.Items[i].Status.CompletionTime == nil {
				return fmt.Errorf("job %s: %+v", jobs.Items[i].Name, jobs.Items[i].Status)
			}
			if ttl := jobs.Items[i].Spec.TTLSecondsAfterFinished; ttl == nil {
				return fmt.Errorf("job %s has no TTL", jobs.Items[i].Name)
			}
		}
		return nil
	})
	noAgents(t, 10*time.Second)
}

// The whole install is removed in mid-capture: nothing of it is left, and nothing hangs.
func TestUninstallInMidCapture(t *testing.T) {
	ns := namespace(t, nil)
	deployment(t, ns, "sink", 2, "sink")
	capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	before := time.Now()
	t.Cleanup(func() { reinstall(t) })
	if out, err := osexec.CommandContext(t.Context(), installCmd, "--remove").CombinedOutput(); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	t.Logf("uninstalled in %s", time.Since(before))
	noAgents(t, 30*time.Second)
	for _, resource := range []string{"mutatingwebhookconfigurations", "clusterroles", "clusterrolebindings", "customresourcedefinitions", "priorityclasses", "namespaces"} {
		eventually(t, 30*time.Second, resource+" gone", func(ctx context.Context) error {
			out, err := osexec.CommandContext(ctx, clusterCmd, "kubectl", "get", resource, "-o", "name").CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				name := line[strings.Index(line, "/")+1:]
				if strings.HasPrefix(name, "sonde") && !strings.HasPrefix(name, "sonde-demo") && !strings.HasPrefix(name, "sonde-cluster") || strings.Contains(name, "monitoring.openshift.tpg") {
					return fmt.Errorf("left: %s", line)
				}
			}
			return nil
		})
	}
}

func reinstall(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if out, err := osexec.CommandContext(ctx, installCmd).CombinedOutput(); err != nil {
		t.Fatalf("install again: %v\n%s", err, out)
	}
	awaitManager(ctx, t)
}
