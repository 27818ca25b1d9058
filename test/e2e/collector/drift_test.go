//go:build e2e

package collector

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/release"
	"github.com/sonde-operator/sonde/test/cluster"
)

// Others scale the Deployment and delete the Secret. The status names both, and then they are repaired.
func TestCollectorDrift(t *testing.T) {
	t.Parallel()
	ns := cluster.OpenedNamespace(t)
	c := create(t, ns, map[string]any{"persistence": map[string]any{"enabled": false}})
	deployment, secret := &appsv1.Deployment{ObjectMeta: meta(ns)}, &corev1.Secret{ObjectMeta: meta(ns)}
	if err := cluster.Admin.Patch(t.Context(), deployment, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"replicas": 2}}`))); err != nil {
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
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(deployment), deployment); err != nil {
			return err
		}
		if n := *deployment.Spec.Replicas; n != 1 {
			return fmt.Errorf("%d replicas", n)
		}
		return nil
	})
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", sondev1.ReasonUpToDate, patience)
}
