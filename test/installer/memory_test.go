package installer_test

import (
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// TestMemoryLimit: the Go runtime knows the container's limit and leaves room for memory that it does not count.
func TestMemoryLimit(t *testing.T) {
	b, err := os.ReadFile("../../config/manager/manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	manager := d.Spec.Template.Spec.Containers[0]
	most := manager.Resources.Limits.Memory()
	for _, e := range manager.Env {
		if e.Name != "GOMEMLIMIT" {
			continue
		}
		soft, err := resource.ParseQuantity(strings.TrimSuffix(e.Value, "B")) // Go writes MiB, Kubernetes Mi
		if err != nil || soft.Value() > most.Value()*9/10 || soft.Value() < most.Value()*2/5 {
			t.Errorf("GOMEMLIMIT=%s (%v) with a limit of %s: want two fifths of it to nine tenths", e.Value, err, most)
		}
		return
	}
	t.Error("the manager has no GOMEMLIMIT")
}
