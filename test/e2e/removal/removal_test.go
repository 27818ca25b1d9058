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
	rbacv1 "k8s.io/api/rbac/v1"
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
	volume := liveVolume(t)
	cluster.StopManager(t)
	t.Cleanup(func() { cluster.Reinstall(t) })

	cluster.DeleteNow(t, pc)
	cluster.Gone(t, pc, 30*time.Second)
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cluster.DeleteNow(t, n)
	cluster.Gone(t, n, 30*time.Second)
	for _, kind := range []string{"packetcaptures", "traces", "resultaccesses", "fluentpvcs", "fluentpvcbindings", "interceptrequests"} {
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
	volume.kept(t)
}

// The whole install is removed during a capture and an intercept: nothing of it is left, and nothing hangs.
func TestUninstallInMidCapture(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 2, "sink")
	web := cluster.ReadyPods(t, cluster.Deployment(t, ns, "web", 1, "serve"), 1)
	asker := cluster.Pod(t, ns, "asker", cluster.PodSpec("idle"))
	cluster.Intercept(t, ns, "web", 1, "--to", cluster.Laptop(t, "laptop"))
	cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	volume := liveVolume(t)
	before := time.Now()
	t.Cleanup(func() { cluster.Reinstall(t) })
	if out, err := osexec.CommandContext(t.Context(), cluster.InstallCommand, "--remove").CombinedOutput(); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	t.Logf("uninstalled in %s", time.Since(before))
	cluster.NoAgents(t, 30*time.Second)
	if got, err := cluster.Ask(t.Context(), asker, &web[0], ""); err != nil || got != web[0].Name {
		t.Errorf("the Pod is answered by %q (%v), want that it answers itself", got, err)
	}
	volume.kept(t)
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

// A namespace with a live volume, one whose finalizer fails, and one whose claim waits for its Pod goes away.
func TestDeletingTheNamespaceOfVolumes(t *testing.T) {
	for _, right := range []string{"allowed", "not allowed any more"} {
		t.Run(right, func(t *testing.T) {
			v := liveVolume(t)
			failing := cluster.FluentPVC(t, v.pod.Namespace+"-failing", func(s *sondev1.FluentPVCSpec) {
				s.PVCFinalizerJobSpecTemplate.Template.Spec = cluster.FinalizerSpec("none")
				s.Finalizer.MaxAttempts = 1
			})
			ended := cluster.WriterPod(v.pod.Namespace, "ended", failing, "-stay")
			cluster.Create(t, ended)
			runs(t, ended) // otherwise it has no volume, and its claim is discarded
			cluster.DeleteNow(t, ended)
			cluster.AwaitBinding(t, ended.Namespace, cluster.ClaimOf(t, ended), sondev1.BindingFinalizerJobFailed, 2*time.Minute)
			unbound := cluster.WriterPod(v.pod.Namespace, "unbound", failing)
			unbound.Spec.NodeSelector = map[string]string{"no": "node"}
			cluster.Create(t, unbound)
			cluster.AwaitBinding(t, unbound.Namespace, cluster.ClaimOf(t, unbound), sondev1.BindingReady, 30*time.Second)
			if right != "allowed" {
				cluster.DeleteNow(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ended.Namespace, Name: "sonde-fluentpvc"}})
			}
			n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ended.Namespace}}
			cluster.DeleteNow(t, n)
			cluster.Gone(t, n, time.Minute)
		})
	}
}

// volume is the volume of a Pod that runs.
type volume struct {
	pod   *corev1.Pod
	claim string
}

// liveVolume returns a Pod with a FluentPVC in a namespace of its own, when the Pod runs.
func liveVolume(t *testing.T) volume {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	p := cluster.WriterPod(ns, "writer", cluster.FluentPVC(t, ns, nil), "-stay")
	cluster.Create(t, p)
	v := volume{p, cluster.ClaimOf(t, p)}
	cluster.AwaitBinding(t, ns, v.claim, sondev1.BindingReady, time.Minute)
	runs(t, p)
	return v
}

// runs waits until a Pod runs.
func runs(t *testing.T, p *corev1.Pod) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "the Pod runs", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil || p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("phase %s: %w", p.Status.Phase, err)
		}
		return nil
	})
}

// kept asserts that the Pod still runs with its claim after the operator is gone.
func (v volume) kept(t *testing.T) {
	t.Helper()
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(v.pod), v.pod); err != nil || v.pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the Pod is %s, want that it runs: %v", v.pod.Status.Phase, err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: v.pod.Namespace, Name: v.claim}}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil || !claim.DeletionTimestamp.IsZero() {
		t.Errorf("the claim of a Pod that runs is deleted at %v, want that it stays: %v", claim.DeletionTimestamp, err)
	}
}
