package health

import (
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestExists(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}
	check, r := Exists(c, o.DeepCopy()), httptest.NewRequest("GET", "/readyz", nil)
	if err := check(r); err == nil {
		t.Error("the object does not exist, and the check passes")
	}
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := check(r); err != nil {
		t.Error(err)
	}
	if err := c.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := check(r); err != nil {
		t.Errorf("after the deletion: %v", err)
	}
}
