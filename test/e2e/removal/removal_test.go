//go:build e2e

package removal

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

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
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 2, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	cluster.DeleteNow(t, pc)
	cluster.NothingLeft(t, string(pc.UID))
	cluster.NoAgents(t, 10*time.Second)
}

func TestDeletingTheTargetEndsTheCapture(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 2, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	cluster.DeleteNow(t, target)
	cluster.AwaitFinal(t, pc, 30*time.Second)
	if pc.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("phase %s, want Completed: %+v", pc.Status.Phase, pc.Status)
	}
	cluster.Download(t, pc)
	cluster.DeleteNow(t, pc)
	cluster.NothingLeft(t, string(pc.UID))
	cluster.NoAgents(t, 10*time.Second)
}

func TestDeletingTheNamespaceLeavesNothing(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 2, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cluster.DeleteNow(t, n)
	cluster.Gone(t, n, 30*time.Second)
	cluster.NothingLeft(t, string(pc.UID))
	cluster.NoAgents(t, 10*time.Second)
}

func TestDeletingTheTargetNamespaceEndsACaptureFromTheHub(t *testing.T) {
	ns, hub := cluster.Namespace(t, nil), cluster.Namespace(t, map[string]string{sondev1.LabelHub: "true"})
	cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, hub, sondev1.PacketCaptureSpec{TargetNamespace: ns, TargetDeployment: "sink", Duration: "10m"})
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cluster.DeleteNow(t, n)
	cluster.Gone(t, n, 30*time.Second)
	cluster.AwaitFinal(t, pc, 30*time.Second)
	cluster.DeleteNow(t, pc)
	cluster.NothingLeft(t, string(pc.UID))
	cluster.NoAgents(t, 10*time.Second)
}

// The operator disappears for good during a capture. Objects that are then deleted go away, and Jobs end by themselves.
func TestOperatorGoneForGood(t *testing.T) {
	ns, hub := cluster.Namespace(t, nil), cluster.Namespace(t, map[string]string{sondev1.LabelHub: "true"})
	cluster.Deployment(t, ns, "sink", 2, "sink")
	pc := cluster.Capture(t, cluster.Admin, hub, sondev1.PacketCaptureSpec{TargetNamespace: ns, TargetDeployment: "sink", Duration: "30s", RetainFor: "10s"})
	cluster.StopManager(t)
	t.Cleanup(func() { cluster.Reinstall(t) })

	cluster.DeleteNow(t, pc)
	cluster.Gone(t, pc, 30*time.Second)
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cluster.DeleteNow(t, n)
	cluster.Gone(t, n, 30*time.Second)
	for _, kind := range []string{"packetcaptures", "traces", "resultaccesses"} {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		crd.SetName(kind + ".monitoring.openshift.tpg")
		cluster.DeleteNow(t, crd)
		cluster.Gone(t, crd, 30*time.Second)
	}
	cluster.Eventually(t, 2*time.Minute, "Jobs ended by themselves", func(ctx context.Context) error {
		var jobs batchv1.JobList
		if err := cluster.Admin.List(ctx, &jobs, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(pc.UID)}); err != nil {
			return err
		}
		for i := range jobs.Items {
			if jobs.Items[i].Status.CompletionTime == nil {
				return fmt.Errorf("job %s: %+v", jobs.Items[i].Name, jobs.Items[i].Status)
			}
			if ttl := jobs.Items[i].Spec.TTLSecondsAfterFinished; ttl == nil {
				return fmt.Errorf("job %s has no TTL, want one", jobs.Items[i].Name)
			}
		}
		return nil
	})
	cluster.NoAgents(t, 10*time.Second)
}

// The whole install is removed during a capture: nothing of it is left, and nothing hangs.
func TestUninstallInMidCapture(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 2, "sink")
	cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	before := time.Now()
	t.Cleanup(func() { cluster.Reinstall(t) })
	if out, err := osexec.CommandContext(t.Context(), cluster.InstallCommand, "--remove").CombinedOutput(); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	t.Logf("uninstalled in %s", time.Since(before))
	cluster.NoAgents(t, 30*time.Second)
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "clusterroles", "clusterrolebindings", "customresourcedefinitions", "priorityclasses", "flowschemas", "namespaces"} {
		cluster.Eventually(t, 30*time.Second, resource+" gone", func(ctx context.Context) error {
			out, err := osexec.CommandContext(ctx, cluster.Command, "kubectl", "get", resource, "-o", "name").CombinedOutput()
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
