//go:build e2e

package security

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/test/crds"
)

// Where the cluster has the console and the Prometheus operator, the manager creates its objects for them with its
// normal rights, and restores them after deletion. (The version of a download depends on the build.)
func TestSccAndOtherOptionalAPIs(t *testing.T) {
	options := envtest.CRDInstallOptions{Paths: crds.ConsoleAndMonitoring(t), ErrorIfPathMissing: true}
	if _, err := envtest.InstallCRDs(cluster.Config, options); err != nil {
		t.Fatal(err)
	}
	cluster.ManagerFlag(t, "--metrics-bind-address=:8443")
	t.Cleanup(func() { // before the manager starts again
		if err := envtest.UninstallCRDs(cluster.Config, options); err != nil {
			t.Error(err)
		}
	})
	objects := append(platform.Console("dev"), platform.Monitoring(cluster.OperatorNamespace)...)
	download := platform.Console("0.0.0")[1]
	unstructured.RemoveNestedField(download.Object, "spec")
	for _, o := range append(objects, download) {
		t.Run(o.GetKind(), func(t *testing.T) {
			made := asBuilt(t, o)
			cluster.DeleteNow(t, made)
			if again := asBuilt(t, o); again.GetUID() == made.GetUID() {
				t.Error("the object has the same UID, want it deleted and created again")
			}
		})
	}
}

// asBuilt waits until an object exists, is owned by the install and is not being deleted.
func asBuilt(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.GroupVersionKind())
	cluster.Eventually(t, time.Minute, o.GetKind()+" as built", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
			return err
		}
		if !platform.Covers(o, live) || len(live.GetOwnerReferences()) != 1 || live.GetDeletionTimestamp() != nil {
			return fmt.Errorf("the object is %v", live.Object)
		}
		return nil
	})
	return live
}
