package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Deployment creates a Deployment of the workload image and waits for its Pods, which are spread over the nodes.
func Deployment(t *testing.T, ns, name string, replicas int32, args ...string) *appsv1.Deployment {
	t.Helper()
	d := NewDeployment(ns, name, replicas, args...)
	d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector,
		MatchLabelKeys: []string{"pod-template-hash"}, NodeTaintsPolicy: new(corev1.NodeInclusionPolicyHonor), // not the simulated nodes
	}}
	if err := Admin.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	ReadyPods(t, d, int(replicas))
	return d
}

// NewDeployment returns a Deployment of the workload image that is not created yet.
func NewDeployment(ns, name string, replicas int32, args ...string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       PodSpec(args...),
			},
		},
	}
}

// PodSpec returns the spec of a Pod that runs the workload with these arguments.
func PodSpec(args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{
			Name: "c", Image: workload, Args: args,
		}},
	}
}

// Pod creates a Pod and waits until it is ready.
func Pod(t *testing.T, ns, name string, spec corev1.PodSpec) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}}, Spec: spec}
	if err := Admin.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	Eventually(t, time.Minute, "pod "+name+" ready", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if !ready(p) {
			return fmt.Errorf("phase %s", p.Status.Phase)
		}
		return nil
	})
	return p
}

// ReadyPods waits until d has exactly n Pods, all ready, and returns them.
func ReadyPods(t *testing.T, d *appsv1.Deployment, n int) []corev1.Pod {
	t.Helper()
	return ReadyPodsWithin(t, d, n, 90*time.Second)
}

// ReadyPodsWithin is ReadyPods with another timeout.
func ReadyPodsWithin(t *testing.T, d *appsv1.Deployment, n int, within time.Duration) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	Eventually(t, within, fmt.Sprintf("%d ready pods of %s", n, d.Name), func(ctx context.Context) error {
		if err := Admin.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return err
		}
		count := 0
		for i := range pods.Items {
			if ready(&pods.Items[i]) && pods.Items[i].DeletionTimestamp.IsZero() {
				count++
			}
		}
		if count != n || len(pods.Items) != n {
			return fmt.Errorf("%d of %d Pods are ready, want %d", count, len(pods.Items), n)
		}
		return nil
	})
	return pods.Items
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Scale sets the number of replicas.
func Scale(t *testing.T, d *appsv1.Deployment, n int32) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
	if err := Admin.Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}
}

// ShellSpec returns the spec of a Pod in which tests run programs of busybox.
func ShellSpec() corev1.PodSpec {
	spec := PodSpec()
	spec.Containers[0].Image, spec.Containers[0].Command = Busybox, []string{"sleep", "3600"}
	return spec
}

// Busybox is an image with the usual programs. The local cluster serves it.
const Busybox = "sonde.local/busybox:1"

// Restart starts to replace all Pods of a Deployment.
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

// OwnersOf returns the owner references of a Deployment's Pods.
func OwnersOf(ctx context.Context, t *testing.T, d *appsv1.Deployment) []metav1.OwnerReference {
	t.Helper()
	var sets appsv1.ReplicaSetList
	if err := Admin.List(ctx, &sets, client.InNamespace(d.Namespace)); err != nil || len(sets.Items) == 0 {
		t.Fatalf("list ReplicaSets: got %d, error %v", len(sets.Items), err)
	}
	set := &sets.Items[0]
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: new(true)}}
}
