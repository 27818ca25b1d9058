//go:build olm

package olm

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"
)

// v0 is the way by Subscription, InstallPlan and ClusterServiceVersion.
type v0 struct {
	registry *guest // opm, which serves the catalog
}

// OLM v0, as its two operators with a catalog that is served beside them.
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
	startGuest(t, "olm")
	// Without the flag it would set a uid on the Pods that it makes, which OpenShift's restricted-v2 refuses.
	startGuest(t, "catalog", "--namespace=olm", "--opmImage=sonde.local/opm:1", "--configmapServerImage=sonde.local/opm:1", "--util-image=sonde.local/olm-util:1", "--set-workload-user-id=false")
	life(t, &v0{})
}

// serve offers the catalog of a version in the place of an earlier one.
func (v *v0) serve(t *testing.T, version string) {
	t.Helper()
	if v.registry != nil {
		v.registry.stop(t)
	}
	v.registry = startGuest(t, "opm", "serve", catalog(t, version), "--port=50051", "--cache-dir="+t.TempDir(), "--cache-enforce-integrity=false",
		"--termination-log="+filepath.Join(logs, "opm.termination"))
}

func (v *v0) name() string { return "OLM v0" }

func (v *v0) install(t *testing.T) {
	t.Helper()
	v.serve(t, previous)
	apply(t, fmt.Sprintf(`
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: sonde, namespace: olm}
spec: {sourceType: grpc, address: "%s:50051", displayName: Sonde, publisher: Sonde, grpcPodConfig: {securityContextConfig: restricted}}
---
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: sonde, namespace: sonde-system}
---
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: sonde, namespace: sonde-system}
spec: {name: sonde, channel: candidate, source: sonde, sourceNamespace: olm, installPlanApproval: Automatic}
`, controlPlane))
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
		return strings.HasPrefix(name, "packetcaptures.monitoring.openshift.tpg-v1alpha1-") || strings.HasPrefix(name, "resultaccesses.monitoring.openshift.tpg-v1alpha1-") || strings.HasPrefix(name, "olm.og.sonde.")
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
