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

// remove uninstalls Sonde while a capture runs and others are kept, and holds what is left against what the docs tell.
func remove(t *testing.T, w way, u *user, clean []string) {
	t.Helper()
	u.capture(t, "last", "10m")
	timed(t, w.name()+": uninstall", func() {
		w.uninstall(t)
		cluster.Eventually(t, time.Minute, "manager gone", func(ctx context.Context) error {
			out, err := field(ctx, `{.items[*].metadata.name}`, "-n", cluster.OperatorNamespace, "pods", "-l", "app.kubernetes.io/component=manager")
			if err == nil && out != "" {
				err = fmt.Errorf("pods %s", out)
			}
			return err
		})
	})
	mine := func(o string) bool { return strings.Contains(o, u.namespace) }
	var left []string
	cluster.Eventually(t, 30*time.Second, "nothing left but what is told", func(ctx context.Context) error {
		all, err := objects(ctx)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(added(clean, all), func(o string) bool { return mine(o) && !strings.Contains(o, "monitoring.openshift.tpg") })
		if not := slices.DeleteFunc(slices.Clone(left), func(o string) bool { return told(o) || w.keeps(o) }); len(not) > 0 {
			return fmt.Errorf("left, and not told:\n%s", strings.Join(not, "\n"))
		}
		return nil
	})
	t.Logf("%s: left after the uninstall, as told:\n%s", w.name(), strings.Join(left, "\n"))
	timed(t, w.name()+": deleting CRDs and namespace with captures in them", func() {
		kubectl(t, "", "delete", "--ignore-not-found", "--timeout=60s", "crd", "packetcaptures.monitoring.openshift.tpg", "traces.monitoring.openshift.tpg", "resultaccesses.monitoring.openshift.tpg")
		kubectl(t, "", "delete", "--timeout=60s", "namespace", cluster.OperatorNamespace)
	})
	w.forget(t)
	cluster.NoAgents(t, 10*time.Second)
	cluster.Eventually(t, 30*time.Second, "nothing left at all", func(ctx context.Context) error {
		all, err := objects(ctx)
		if err != nil {
			return err
		}
		if left := slices.DeleteFunc(added(clean, all), mine); len(left) > 0 {
			return fmt.Errorf("left:\n%s", strings.Join(left, "\n"))
		}
		return nil
	})
}

// told says whether the docs tell that an object stays after the uninstall, whatever the way: CRDs, what is in them, and
// the operator's namespace, where agents keep their results.
func told(object string) bool {
	resource, name, _ := strings.Cut(object, " ")
	switch resource {
	case "customresourcedefinitions.apiextensions.k8s.io":
		return strings.HasSuffix(name, ".monitoring.openshift.tpg")
	case "apiservices.apiregistration.k8s.io": // made by the API server, of the CRDs
		return name == "v1alpha1.monitoring.openshift.tpg"
	case "namespaces":
		return name == cluster.OperatorNamespace
	}
	return strings.HasSuffix(resource, ".monitoring.openshift.tpg") || strings.HasPrefix(name, cluster.OperatorNamespace+"/")
}
