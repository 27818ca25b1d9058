//go:build olm

package olm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// backend is a tenant's release in the namespace of its Collector, and another one of a Collector in a hub.
type backend struct{ namespace, hub, ofHub string }

// newBackend installs a Collector under the current version.
func newBackend(t *testing.T) backend {
	t.Helper()
	ns := cluster.OpenedNamespace(t)
	c := cluster.NewCollector(t, ns, map[string]any{"persistence": map[string]any{"enabled": false}})
	hub, ofHub := cluster.Namespace(t, map[string]string{sondev1.LabelHub: "true"}), cluster.OpenedNamespace(t)
	h := cluster.NewCollector(t, hub, map[string]any{"persistence": map[string]any{"enabled": false}})
	h.Spec.Tenant.Reference = ofHub
	for _, c := range []*sondev1.Collector{c, h} {
		cluster.Create(t, c)
		cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", 3*time.Minute)
	}
	return backend{ns, hub, ofHub}
}

// prepare does what the docs say to do before an uninstall.
func (b backend) prepare(t *testing.T) {
	t.Helper()
	kubectl(t, "", "delete", "collectors", "--all", "-n", b.hub)
	cluster.NoRelease(t, b.ofHub, time.Minute)
}

// closed fails the test if someone who creates the operator's namespace later may act in the namespaces that were open.
func (b backend) closed(t *testing.T) {
	t.Helper()
	for _, ns := range []string{b.namespace, b.ofHub} {
		answer, _ := run(t.Context(), "", "kubectl", "auth", "can-i", "create", "jobs", "-n", ns, "--as", "system:serviceaccount:"+cluster.OperatorNamespace+":sonde-manager")
		if !strings.HasPrefix(answer, "no") {
			t.Errorf("after the uninstall the ServiceAccount sonde-manager may create Jobs in %s: %s", ns, answer)
		}
	}
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
