//go:build olm

package olm

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/test/cluster"
)

// v0 installs by Subscription, InstallPlan and ClusterServiceVersion.
type v0 struct{}

// OLM v0: its two operators, with catalog and bundles as images that are unpacked in Pods.
func TestV0(t *testing.T) {
	crds := programs + "/crds-v0/" // kubectl follows a link only with the slash
	kubectl(t, "", "create", "-f", crds)
	t.Cleanup(func() {
		_, err := run(context.WithoutCancel(t.Context()), "", "kubectl", "delete", "--ignore-not-found", "-f", crds)
		if err != nil {
			t.Error(err)
		}
	})
	kubectl(t, "", "wait", "--for=condition=Established", "--timeout=30s", "-f", crds)
	apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: olm}}`)
	t.Cleanup(func() {
		_, _ = run(context.WithoutCancel(t.Context()), "", "kubectl", "delete", "namespace", "olm")
	})
	catalogImages(t)
	startGuest(t, "olm")
	apply(t, catalogOperator)
	t.Cleanup(func() {
		_, _ = run(context.WithoutCancel(t.Context()), "", "kubectl", "delete", "clusterrolebinding", "olm-catalog")
	})
	kubectl(t, "", "-n", "olm", "rollout", "status", "deployment/catalog", "--timeout=60s")
	lifecycle(t, v0{})
}

// catalogOperator runs in a Pod, because it finds catalogs by the names of their Services. Without the last flag it
// would set a user ID on the Pods that it creates, which OpenShift's restricted-v2 refuses.
const catalogOperator = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: catalog, namespace: olm}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: olm-catalog}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: catalog, namespace: olm}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: catalog, namespace: olm}
spec:
  selector: {matchLabels: {app: catalog}}
  template:
    metadata: {labels: {app: catalog}}
    spec:
      serviceAccountName: catalog
      containers:
      - name: catalog
        image: sonde.local/olm-catalog:1
        command: [/bin/catalog]
        args: [--namespace=olm, --opmImage=sonde.local/opm:1, --configmapServerImage=sonde.local/opm:1, --util-image=sonde.local/olm-util:1, --set-workload-user-id=false]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}}
        volumeMounts: [{name: tmp, mountPath: /tmp}]
      volumes: [{name: tmp, emptyDir: {}}]
`

func (v0) name() string { return "OLM v0" }

// catalogSource of a version.
func catalogSource(version string) *operatorsv1alpha1.CatalogSource {
	return &operatorsv1alpha1.CatalogSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: "olm", Name: "sonde"},
		Spec: operatorsv1alpha1.CatalogSourceSpec{
			SourceType: operatorsv1alpha1.SourceTypeGrpc, Image: "quay.io/sonde/sonde-catalog:v" + version,
			GrpcPodConfig: &operatorsv1alpha1.GrpcPodConfig{
				SecurityContextConfig: operatorsv1alpha1.Restricted,
				ExtractContent:        &operatorsv1alpha1.ExtractContentConfig{CatalogDir: "/configs"},
			},
		},
	}
}

func (v v0) install(t *testing.T) {
	t.Helper()
	installed := metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: "sonde"}
	for _, o := range []client.Object{
		catalogSource(previous),
		&operatorsv1.OperatorGroup{ObjectMeta: installed},
		&operatorsv1alpha1.Subscription{ObjectMeta: installed, Spec: &operatorsv1alpha1.SubscriptionSpec{
			Package: "sonde", Channel: "candidate", CatalogSource: "sonde", CatalogSourceNamespace: "olm",
			InstallPlanApproval: operatorsv1alpha1.ApprovalAutomatic,
		}},
	} {
		if err := cluster.Admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	v.await(t, previous)
}

func (v v0) upgrade(t *testing.T) {
	t.Helper()
	if err := cluster.Admin.Patch(t.Context(), catalogSource(current), client.MergeFrom(catalogSource(previous))); err != nil {
		t.Fatal(err)
	}
	v.await(t, current)
}

// await waits until the ClusterServiceVersion of a version has succeeded and the previous one is gone.
func (v0) await(t *testing.T, version string) {
	t.Helper()
	want := map[string]operatorsv1alpha1.ClusterServiceVersionPhase{"sonde.v" + version: operatorsv1alpha1.CSVPhaseSucceeded}
	cluster.Eventually(t, 3*time.Minute, fmt.Sprint(want), func(ctx context.Context) error {
		var subscriptions operatorsv1alpha1.SubscriptionList
		var plans operatorsv1alpha1.InstallPlanList
		var csvs operatorsv1alpha1.ClusterServiceVersionList
		for _, list := range []client.ObjectList{&subscriptions, &plans, &csvs} {
			if err := cluster.Admin.List(ctx, list, client.InNamespace(cluster.OperatorNamespace)); err != nil {
				return err
			}
		}
		got, conditions := map[string]operatorsv1alpha1.ClusterServiceVersionPhase{}, []any{}
		for _, c := range csvs.Items {
			got[c.Name] = c.Status.Phase
			conditions = append(conditions, c.Status.Conditions)
		}
		if maps.Equal(got, want) {
			return nil
		}
		for _, s := range subscriptions.Items {
			conditions = append(conditions, s.Status.Conditions)
		}
		for _, p := range plans.Items {
			conditions = append(conditions, p.Status.Conditions)
		}
		return fmt.Errorf("%v, conditions %+v", got, conditions)
	})
}

// uninstall deletes in this order, or OLM would install the deleted objects again.
func (v0) uninstall(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"subscription", "installplan", "csv"} {
		kubectl(t, "", "-n", cluster.OperatorNamespace, "delete", kind, "--all")
	}
}

// cleanUp deletes what the cluster admin created for OLM.
func (v0) cleanUp(t *testing.T) {
	t.Helper()
	kubectl(t, "", "-n", "olm", "delete", "catalogsource", "sonde")
	kubectl(t, "", "delete", "--ignore-not-found", "operators.operators.coreos.com", "sonde.sonde-system")
}

// leaves: the catalog and what was unpacked from it, the roles for each CRD and for the OperatorGroup, and OLM's own
// object for the operator.
func (v0) leaves(object string) bool {
	resource, name, _ := strings.Cut(object, " ")
	switch resource {
	case "clusterroles.rbac.authorization.k8s.io":
		return strings.Contains(name, ".monitoring.openshift.tpg-v1alpha1-") || strings.HasPrefix(name, "olm.og.sonde.")
	case "operators.operators.coreos.com":
		return name == "sonde.sonde-system"
	}
	return strings.HasPrefix(name, "olm/")
}

// roles: OLM v0 creates a ClusterRole for each CRD and verb set, and aggregates them to the roles of Kubernetes. So
// view reads ResultAccesses too. These hold only hashes of tokens.
func (v0) roles() map[string]string {
	roles := defaultRoles()
	roles["view resultaccesses"] = "get list watch"
	return roles
}
