package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Gone waits until an object is deleted.
func Gone(t *testing.T, o client.Object, within time.Duration) {
	t.Helper()
	Eventually(t, within, fmt.Sprintf("%T %s deleted", o, o.GetName()), func(ctx context.Context) error {
		err := Admin.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("still there, deleted at %v", o.GetDeletionTimestamp())
	})
}

// DeleteNow deletes an object, and its dependents in the background.
func DeleteNow(t *testing.T, o client.Object) {
	t.Helper()
	if err := Admin.Delete(t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// CreateEventually creates an object within 15 s, because a new right takes a moment to reach every API server cache.
func CreateEventually(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	Eventually(t, 15*time.Second, fmt.Sprintf("%T %s created", o, o.GetName()), func(ctx context.Context) error { return c.Create(ctx, o) })
	t.Cleanup(func() {
		_ = Admin.Delete(context.WithoutCancel(t.Context()), o, client.PropagationPolicy(metav1.DeletePropagationBackground))
	})
}

// Create creates an object and deletes it when the test ends.
func Create(t *testing.T, o client.Object) {
	t.Helper()
	if err := Admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = Admin.Delete(context.WithoutCancel(t.Context()), o, client.PropagationPolicy(metav1.DeletePropagationBackground))
	})
}

// RefuseAgentPods makes the API server refuse the Pods of agents until the test ends.
func RefuseAgentPods(t *testing.T) {
	t.Helper()
	RefusePods(t, OperatorNamespace)
}

// RefusePods makes the API server refuse all Pods of a namespace after the mutating webhooks have answered.
func RefusePods(t *testing.T, ns string) {
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
			return errors.New("the quota has no status yet")
		}
		return nil
	})
}
