package intercept

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// TestTargetChanged: a Pod wakes the controller only if an InterceptRequest that has not ended is about its namespace. The index answers that,
// because Pods of the whole cluster change, and users may write thousands of InterceptRequests.
func TestTargetChanged(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := sondev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	request := func(namespace, targetNamespace string, phase sondev1.InterceptPhase) *sondev1.InterceptRequest {
		q := &sondev1.InterceptRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "q"}}
		q.Spec.TargetNamespace, q.Status.Phase = targetNamespace, phase
		return q
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		request("shop", "", ""), request("bank", "", sondev1.InterceptEnded), request("hub", "farm", sondev1.InterceptActive))
	for _, i := range target.Indexes {
		if _, ok := i.Object.(*sondev1.InterceptRequest); ok {
			b = b.WithIndex(i.Object, i.Field, i.Extract)
		}
	}
	r := &Reconciler{Client: b.Build()}
	for namespace, want := range map[string]bool{"shop": true, "bank": false, "hub": false, "farm": true, "other": false} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
		if got := len(r.targetChanged(t.Context(), pod)) > 0; got != want {
			t.Errorf("a Pod in namespace %s wakes the controller: %t, want %t", namespace, got, want)
		}
	}
}
