//go:build olm

package olm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"
)

// remove uninstalls Sonde while a capture runs and others have results, and compares the remaining objects with the docs.
func remove(t *testing.T, m installMethod, u *user, before []string) {
	t.Helper()
	u.capture(t, "last", "10m")
	timed(t, m.name()+": uninstall", func() {
		m.uninstall(t)
		cluster.Eventually(t, time.Minute, "manager gone", func(ctx context.Context) error {
			out, err := field(ctx, `{.items[*].metadata.name}`, "-n", cluster.OperatorNamespace, "pods", "-l", "app.kubernetes.io/component=manager")
			if err == nil && out != "" {
				err = fmt.Errorf("pods %s", out)
			}
			return err
		})
	})
	ofUser := func(o string) bool { return strings.Contains(o, u.namespace) }
	var left []string
	cluster.Eventually(t, 30*time.Second, "nothing left but what the docs name", func(ctx context.Context) error {
		all, err := objects(ctx)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(added(before, all), func(o string) bool { return ofUser(o) && !strings.Contains(o, "monitoring.openshift.tpg") })
		if undocumented := slices.DeleteFunc(slices.Clone(left), func(o string) bool { return documented(o) || m.leaves(o) }); len(undocumented) > 0 {
			return fmt.Errorf("left, but not in the docs:\n%s", strings.Join(undocumented, "\n"))
		}
		return nil
	})
	t.Logf("%s: left after the uninstall, as documented:\n%s", m.name(), strings.Join(left, "\n"))
	timed(t, m.name()+": deleting CRDs and namespace with captures in them", func() {
		kubectl(t, "", "delete", "--ignore-not-found", "--timeout=60s", "crd", "packetcaptures.monitoring.openshift.tpg", "traces.monitoring.openshift.tpg", "resultaccesses.monitoring.openshift.tpg")
		kubectl(t, "", "delete", "--timeout=60s", "namespace", cluster.OperatorNamespace)
	})
	m.cleanUp(t)
	cluster.NoAgents(t, 10*time.Second)
	cluster.Eventually(t, 30*time.Second, "nothing left at all", func(ctx context.Context) error {
		all, err := objects(ctx)
		if err != nil {
			return err
		}
		if left := slices.DeleteFunc(added(before, all), ofUser); len(left) > 0 {
			return fmt.Errorf("left:\n%s", strings.Join(left, "\n"))
		}
		return nil
	})
}

// documented reports whether the docs name an object that remains after an uninstall by either OLM: CRDs, their
// objects, and the operator's namespace, where agents keep their results.
func documented(object string) bool {
	resource, name, _ := strings.Cut(object, " ")
	switch resource {
	case "customresourcedefinitions.apiextensions.k8s.io":
		return strings.HasSuffix(name, ".monitoring.openshift.tpg")
	case "apiservices.apiregistration.k8s.io": // the API server creates it for the CRDs
		return name == "v1alpha1.monitoring.openshift.tpg"
	case "namespaces":
		return name == cluster.OperatorNamespace
	}
	return strings.HasSuffix(resource, ".monitoring.openshift.tpg") || strings.HasPrefix(name, cluster.OperatorNamespace+"/")
}
