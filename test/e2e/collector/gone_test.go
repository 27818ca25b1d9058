//go:build e2e

package collector

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// While no manager runs, a Collector is deleted, another one after its ServiceAccount, and a third one with its namespace. Nothing hangs,
// and nothing is left. test/olm deletes the CRD.
func TestCollectorDeletedWithoutOperator(t *testing.T) {
	deleted, withoutAccount, whole := cluster.OpenedNamespace(t), cluster.OpenedNamespace(t), cluster.OpenedNamespace(t)
	first, second := create(t, deleted, nil), create(t, withoutAccount, nil)
	create(t, whole, nil)
	cluster.StopManager(t)
	cluster.DeleteNow(t, first)
	cluster.DeleteNow(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: withoutAccount, Name: "sonde-releaser"}})
	cluster.DeleteNow(t, second)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: whole}}
	cluster.DeleteNow(t, namespace)
	cluster.NoRelease(t, deleted, time.Minute)
	cluster.NoRelease(t, withoutAccount, time.Minute)
	cluster.Gone(t, namespace, time.Minute)
}

// A hub has the Collectors of other namespaces. The operator removes their releases, and those whose anchor somebody deletes come again.
func TestCollectorFromAHub(t *testing.T) {
	t.Parallel()
	hub, tenant := cluster.Namespace(t, map[string]string{sondev1.LabelHub: "true"}), cluster.OpenedNamespace(t)
	c := cluster.NewCollector(t, hub, map[string]any{"persistence": map[string]any{"enabled": false}})
	c.Spec.Tenant.Reference = tenant
	cluster.Create(t, c)
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	if n := len(pods(t, tenant)); n != 1 {
		t.Errorf("%d Pods, want 1", n)
	}
	anchor := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "sonde-collector-collector-prod"}}
	before := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "collector-prod"}}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(before), before); err != nil {
		t.Fatal(err)
	}
	cluster.DeleteNow(t, anchor)
	cluster.Eventually(t, patience, "the release is installed again", func(ctx context.Context) error {
		now := &appsv1.Deployment{}
		err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(before), now)
		if err == nil && now.UID == before.UID {
			err = errors.New("it is the Deployment of before")
		}
		return err
	})
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	cluster.DeleteNow(t, c)
	cluster.NoRelease(t, tenant, time.Minute)
}
