package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	securityv1 "github.com/openshift/api/security/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// VolumePath is where the Pods of a FluentPVC of these tests have their volume.
const VolumePath = "/mnt/fluent-pvc"

// StorageClass of the local cluster: a volume is made when a Pod that uses it is scheduled, and belongs to the Pod's fsGroup.
const StorageClass = "shared"

// AllowFluentPVC lets the operator create claims and Jobs in a namespace, as its admin does.
func AllowFluentPVC(t *testing.T, ns string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), Plugin, "fluentpvc", "allow", "-n", ns).CombinedOutput(); err != nil {
		t.Fatalf("fluentpvc allow: %v\n%s", err, out)
	}
}

// FluentPVC creates a FluentPVC named after the namespace and returns it when it is Ready. A test with several FluentPVCs in a namespace
// adds to ns what tells them apart. It is deleted when the test ends. Its sidecar waits for SIGTERM, and its finalizer prints the SHA-256
// of each file. change may be nil.
func FluentPVC(t *testing.T, ns string, change func(*sondev1.FluentPVCSpec)) *sondev1.FluentPVC {
	t.Helper()
	f := &sondev1.FluentPVC{
		ObjectMeta: metav1.ObjectMeta{Name: "logs-" + ns},
		Spec: sondev1.FluentPVCSpec{
			PVCSpecTemplate: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(StorageClass),
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("200Mi")}},
			},
			PVCFinalizerJobSpecTemplate: batchv1.JobSpec{
				BackoffLimit: new(int32(0)),
				Template:     corev1.PodTemplateSpec{Spec: FinalizerSpec("sum", "-dir", VolumePath)},
			},
			PVCVolumeName: "fluent-pvc", PVCVolumeMountPath: VolumePath,
			SidecarContainerTemplate: corev1.Container{Name: "sidecar", Image: workload, Args: []string{"ship"}},
			CommonEnvs:               []corev1.EnvVar{{Name: "FLUENT_PVC_MOUNT_DIR", Value: VolumePath}},
		},
	}
	if change != nil {
		change(&f.Spec)
	}
	Create(t, f)
	AwaitReady(t, f)
	return f
}

// AwaitReady waits until new Pods that name a FluentPVC get their volume.
func AwaitReady(t *testing.T, f *sondev1.FluentPVC) {
	t.Helper()
	Eventually(t, 30*time.Second, "FluentPVC "+f.Name+" Ready", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(f), f); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(f.Status.Conditions, sondev1.ConditionReady) {
			return fmt.Errorf("conditions %+v", f.Status.Conditions)
		}
		return nil
	})
}

// VolumeSpec is PodSpec for a Pod that may write into its volumes, although its image's user is not root. OpenShift sets the group
// of volumes itself, and refuses others.
func VolumeSpec(args ...string) corev1.PodSpec {
	spec := PodSpec(args...)
	constraints := schema.GroupVersionResource{Group: securityv1.GroupName, Resource: "securitycontextconstraints"}
	if _, err := Admin.RESTMapper().KindFor(constraints); err != nil {
		spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(2000))}
	}
	return spec
}

// FinalizerSpec returns the spec of a finalizer's Pod that runs the workload with these arguments.
func FinalizerSpec(args ...string) corev1.PodSpec {
	spec := VolumeSpec(args...)
	spec.RestartPolicy = corev1.RestartPolicyNever
	return spec
}

// WriterPod returns a Pod that names a FluentPVC, writes lines into its volume, and ends when its sidecar does.
func WriterPod(ns, name string, f *sondev1.FluentPVC, args ...string) *corev1.Pod {
	spec := VolumeSpec(append([]string{"write", "-file", VolumePath + "/log"}, args...)...)
	spec.RestartPolicy = corev1.RestartPolicyNever
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{
			sondev1.KeyFluentPVC: f.Name,
			// A cluster admin's own Pod would get constraints that set no group.
			securityv1.RequiredSCCAnnotation: "restricted-v2",
		}},
		Spec: spec,
	}
}

// ClaimOf returns the name of a Pod's claim.
func ClaimOf(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	t.Fatalf("Pod %s has no claim: %+v", p.Name, p.Spec.Volumes)
	return ""
}

// AwaitBinding waits until the binding of a claim has a phase, and returns it.
func AwaitBinding(t *testing.T, ns, claim string, phase sondev1.BindingPhase, within time.Duration) *sondev1.FluentPVCBinding {
	t.Helper()
	b := &sondev1.FluentPVCBinding{}
	Eventually(t, within, "binding "+string(phase), func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: claim}, b); err != nil {
			return err
		}
		if b.Status.Phase != phase {
			return fmt.Errorf("phase %s, conditions %+v", b.Status.Phase, b.Status.Conditions)
		}
		return nil
	})
	return b
}

// NoClaims waits until a namespace has no binding, no claim and no Job of one.
func NoClaims(t *testing.T, ns string, within time.Duration) {
	t.Helper()
	Eventually(t, within, "no binding, claim or finalizer Job in "+ns, func(ctx context.Context) error {
		for _, list := range []client.ObjectList{&sondev1.FluentPVCBindingList{}, &corev1.PersistentVolumeClaimList{}, &batchv1.JobList{}} {
			if err := Admin.List(ctx, list, client.InNamespace(ns)); err != nil {
				return err
			}
			if n := countItems(list); n > 0 {
				return fmt.Errorf("%d items in %T", n, list)
			}
		}
		return nil
	})
}

func countItems(list client.ObjectList) int {
	switch l := list.(type) {
	case *sondev1.FluentPVCBindingList:
		return len(l.Items)
	case *corev1.PersistentVolumeClaimList:
		return len(l.Items)
	case *batchv1.JobList:
		return len(l.Items)
	default:
		return 0
	}
}

// FinalizerLog returns what the Pod of a binding's finalizer Job printed.
func FinalizerLog(t *testing.T, b *sondev1.FluentPVCBinding) string {
	t.Helper()
	var pods corev1.PodList
	if err := Admin.List(t.Context(), &pods, client.InNamespace(b.Namespace), client.MatchingLabels{sondev1.LabelUID: string(b.UID)}); err != nil || len(pods.Items) == 0 {
		t.Fatalf("list finalizer Pods: got %d, error %v", len(pods.Items), err)
	}
	log, err := Logs(t.Context(), &pods.Items[len(pods.Items)-1])
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// DeleteJobs deletes the Jobs of a namespace, and their Pods.
func DeleteJobs(t *testing.T, ns string) {
	t.Helper()
	var jobs batchv1.JobList
	if err := Admin.List(t.Context(), &jobs, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for i := range jobs.Items {
		DeleteNow(t, &jobs.Items[i])
	}
}
