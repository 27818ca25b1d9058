//go:build olm

package olm

import (
	"context"
	"errors"
	"testing"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// backend is a tenant's release in a namespace of its own.
type backend struct{ namespace string }

// newBackend installs a Collector under the current version.
func newBackend(t *testing.T) backend {
	t.Helper()
	ns := cluster.OpenedNamespace(t)
	c := cluster.NewCollector(t, ns, map[string]any{"persistence": map[string]any{"enabled": false}})
	cluster.Create(t, c)
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", 3*time.Minute)
	return backend{ns}
}

// runs fails the test unless the release is there: it outlives the operator.
func (b backend) runs(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, 10*time.Second, "the release is there", func(ctx context.Context) error {
		found, err := cluster.ReleaseObjects(ctx, b.namespace)
		if _, ok := found["*v1.Deployment/collector-prod"]; err == nil && !ok {
			err = errors.New("the Deployment is gone")
		}
		return err
	})
}

// gone waits until the cluster's garbage collector has removed the release, because its Collector went with the CRD.
func (b backend) gone(t *testing.T) {
	t.Helper()
	cluster.NoRelease(t, b.namespace, time.Minute)
}
