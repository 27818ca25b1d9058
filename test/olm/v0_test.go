//go:build olm

package olm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"
)

// v0 is the way by Subscription, InstallPlan and ClusterServiceVersion.
type v0 struct{}

// OLM v0: its two operators, with catalog and bundles as images that are unpacked in Pods.
func TestV0(t *testing.T) {
	crds := programs + "/crds-v0/" // a link: only with the slash does kubectl look behind it
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
	life(t, &v0{})
}

// catalogOperator is a Pod, because it asks catalogs by the names of their Services. Without the last flag it would set a uid
// on the Pods that it makes, which OpenShift's restricted-v2 refuses.
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

// serve lets the CatalogSource name the catalog of a version.
func (v *v0) serve(t *testing.T, version string) {
	t.Helper()
	apply(t, fmt.Sprintf(`
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: sonde, namespace: olm}
spec:
  sourceType: grpc
  image: quay.io/sonde/sonde-catalog:v%s
  grpcPodConfig: {securityContextConfig: restricted, extractContent: {catalogDir: /configs}}
`, version))
}

func (v *v0) name() string { return "OLM v0" }

func (v *v0) install(t *testing.T) {
	t.Helper()
	v.serve(t, previous)
	apply(t, `
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: sonde, namespace: sonde-system}
---
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: sonde, namespace: sonde-system}
spec: {name: sonde, channel: candidate, source: sonde, sourceNamespace: olm, installPlanApproval: Automatic}
`)
	v.await(t, previous)
}

func (v *v0) upgrade(t *testing.T) {
	t.Helper()
	v.serve(t, current)
	v.await(t, current)
}

// await waits until the ClusterServiceVersion of a version has succeeded, and that before it is gone.
func (v *v0) await(t *testing.T, version string) {
	t.Helper()
	want := "sonde.v" + version + "=Succeeded"
	cluster.Eventually(t, 3*time.Minute, want, func(ctx context.Context) error {
		got, err := field(ctx, `{range .items[*]}{.metadata.name}={.status.phase} {end}`, "-n", "sonde-system", "csv")
		if err != nil {
			return err
		}
		if strings.TrimSpace(got) != want {
			state, err := field(ctx, `{.items[*].status.conditions}`, "-n", "sonde-system", "subscription,installplan,csv")
			return fmt.Errorf("%q, %s (%w)", got, state, err)
		}
		return nil
	})
}

// uninstall removes in the order in which OLM would not install again what was just removed.
func (v *v0) uninstall(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"subscription", "installplan", "csv"} {
		kubectl(t, "", "-n", "sonde-system", "delete", kind, "--all")
	}
}

// forget removes what the cluster admin made for OLM.
func (v *v0) forget(t *testing.T) {
	t.Helper()
	kubectl(t, "", "-n", "olm", "delete", "catalogsource", "sonde")
	kubectl(t, "", "delete", "--ignore-not-found", "operators.operators.coreos.com", "sonde.sonde-system")
}

// keeps: the catalog and what was unpacked of it, the roles for each CRD and for the OperatorGroup, and OLM's own object
// that stands for the operator.
func (v *v0) keeps(object string) bool {
	resource, name, _ := strings.Cut(object, " ")
	switch resource {
	case "clusterroles.rbac.authorization.k8s.io":
		return strings.Contains(name, ".monitoring.openshift.tpg-v1alpha1-") || strings.HasPrefix(name, "olm.og.sonde.")
	case "operators.operators.coreos.com":
		return name == "sonde.sonde-system"
	}
	return strings.HasPrefix(name, "olm/")
}

// roles: OLM v0 makes a ClusterRole per CRD and verb set, and aggregates them to the roles of Kubernetes. So view reads
// ResultAccesses too, which hold the hashes of tokens and nothing that opens anything.
func (v *v0) roles() map[string]string {
	roles := defaultRoles()
	roles["view resultaccesses"] = "get list watch"
	return roles
}
