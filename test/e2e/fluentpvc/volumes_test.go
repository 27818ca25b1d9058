//go:build e2e

package fluentpvc

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// exempt is a user whom the policy sonde-fluentpvc lets delete bindings and claims.
const exempt = "system:serviceaccount:kube-system:generic-garbage-collector"

// volume is a Pod that has written into its volume and still runs.
type volume struct {
	ns, claim string
	f         *sondev1.FluentPVC
	pod       *corev1.Pod
}

// newVolume returns a volume in a namespace of its own. change may be nil.
func newVolume(t *testing.T, change func(*sondev1.FluentPVCSpec)) volume {
	t.Helper()
	v := volume{ns: cluster.Namespace(t, nil)}
	cluster.AllowFluentPVC(t, v.ns)
	v.f = cluster.FluentPVC(t, v.ns, change)
	v.pod = cluster.WriterPod(v.ns, "writer", v.f, "-stay")
	v.claim = create(t, v.pod)
	cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingReady, patience)
	cluster.Eventually(t, patience, "the Pod has written", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(v.pod), v.pod); err != nil || v.pod.Status.Phase != corev1.PodRunning {
			return errors.Join(err, fmt.Errorf("phase %s", v.pod.Status.Phase))
		}
		if log, err := cluster.Logs(ctx, v.pod); err != nil || log == "" {
			return errors.Join(err, fmt.Errorf("log %q", log))
		}
		return nil
	})
	return v
}

func (v volume) getClaim(t *testing.T) *corev1.PersistentVolumeClaim {
	t.Helper()
	c := &corev1.PersistentVolumeClaim{}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: v.ns, Name: v.claim}, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// discard gives the data up, and waits until nothing is left.
func (v volume) discard(t *testing.T) {
	t.Helper()
	run(t, "fluentpvc", "discard", v.claim, "-n", v.ns, "--yes")
	cluster.NoClaims(t, v.ns, patience)
}

// discardAll discards the volumes of a namespace.
func discardAll(t *testing.T, ns string) {
	t.Helper()
	var all sondev1.FluentPVCBindingList
	if err := cluster.Admin.List(t.Context(), &all, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		run(t, "fluentpvc", "discard", all.Items[i].Name, "-n", ns, "--yes")
	}
	cluster.NoClaims(t, ns, patience)
}

// idle makes the finalizer Job run until it is deleted.
func idle(s *sondev1.FluentPVCSpec) {
	s.PVCFinalizerJobSpecTemplate.Template.Spec = cluster.FinalizerSpec("idle")
}

// deleteByForce deletes an object and its finalizers.
func deleteByForce(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Delete(t.Context(), o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Patch(t.Context(), o, patch); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

func wantCondition(t *testing.T, b *sondev1.FluentPVCBinding, kind, reason, text string) {
	t.Helper()
	if err := hasCondition(b, kind, reason, text); err != nil {
		t.Error(err)
	}
}
