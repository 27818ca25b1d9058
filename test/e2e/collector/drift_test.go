//go:build e2e

package collector

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/release"
	"github.com/sonde-operator/sonde/test/cluster"
)

// Others change a port and delete a Secret. The status names both, and then they are repaired.
func TestCollectorDrift(t *testing.T) {
	t.Parallel()
	ns := cluster.OpenedNamespace(t)
	c := create(t, ns, map[string]any{"persistence": map[string]any{"enabled": false}})
	service, secret := &corev1.Service{ObjectMeta: meta(ns)}, &corev1.Secret{ObjectMeta: meta(ns)}
	port := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "replace", "path": "/spec/ports/0/port", "value": 9}]`))
	if err := cluster.Admin.Patch(t.Context(), service, port); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Admin.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) { s.Drift, s.Interval = sondev1.DriftWarn, "30s" })
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", release.ReasonDrifted, patience)
	cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) { s.Drift = sondev1.DriftRepair })
	cluster.Eventually(t, patience, "both are as the chart says", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
			return err
		}
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(service), service); err != nil {
			return err
		}
		if p := service.Spec.Ports[0].Port; p != 4317 {
			return fmt.Errorf("port %d", p)
		}
		return nil
	})
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", sondev1.ReasonUpToDate, patience)
}
