//go:build olm

package olm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/cluster"
)

// crds of Sonde. OLM v0 leaves them.
var crds = []string{
	"packetcaptures.monitoring.openshift.tpg", "traces.monitoring.openshift.tpg", "resultaccesses.monitoring.openshift.tpg",
	"fluentpvcs.monitoring.openshift.tpg", "fluentpvcbindings.monitoring.openshift.tpg", "interceptrequests.monitoring.openshift.tpg",
	"collectors.monitoring.openshift.tpg",
}

// remove uninstalls Sonde while a capture and an intercept run, others have results, a Pod has a volume, and a tenant has a backend, and
// compares the remaining objects with the docs.
func remove(t *testing.T, m installMethod, u *user, v volumes, b backend, before []string) {
	t.Helper()
	u.capture(t, "last", "10m")
	web := cluster.ReadyPods(t, cluster.Deployment(t, u.namespace, "web", 1, "serve"), 1)
	asker := cluster.Pod(t, u.namespace, "asker", cluster.PodSpec("idle"))
	cluster.Intercept(t, u.namespace, "web", 1, "--to", cluster.Laptop(t, "laptop"))
	answers := func(who string) {
		if got, err := cluster.Ask(t.Context(), asker, &web[0], ""); err != nil || got != who {
			t.Errorf("the intercepted Pod is answered by %q (%v), want %q", got, err, who)
		}
	}
	answers("laptop")
	b.prepare(t)
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
	ofUser := func(o string) bool {
		return slices.ContainsFunc([]string{u.namespace, b.namespace, b.hub, b.ofHub}, func(ns string) bool { return strings.Contains(o, ns) })
	}
	var left []string
	cluster.Eventually(t, 30*time.Second, "nothing left but what the docs name", func(ctx context.Context) error {
		all, err := objects(ctx)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(added(before, all), func(o string) bool {
			return isVolume(o) || ofUser(o) && !strings.Contains(o, "monitoring.openshift.tpg")
		})
		if undocumented := slices.DeleteFunc(slices.Clone(left), func(o string) bool { return documented(o) || m.leaves(o) }); len(undocumented) > 0 {
			return fmt.Errorf("left, but not in the docs:\n%s", strings.Join(undocumented, "\n"))
		}
		return nil
	})
	answers(web[0].Name)
	if slices.Contains(left, "customresourcedefinitions.apiextensions.k8s.io collectors.monitoring.openshift.tpg") {
		b.runs(t)
	} else { // OLM v1 has deleted the CRDs, and with them all Collectors and their releases
		b.gone(t)
	}
	t.Logf("%s: left after the uninstall, as documented:\n%s", m.name(), strings.Join(left, "\n"))
	timed(t, m.name()+": deleting CRDs and namespace with captures and volumes in them", func() {
		kubectl(t, "", append([]string{"delete", "--ignore-not-found", "--timeout=60s", "crd"}, crds...)...)
		kubectl(t, "", "delete", "--timeout=60s", "namespace", cluster.OperatorNamespace)
	})
	b.gone(t)
	b.closed(t)
	v.delete(t)
	m.cleanUp(t)
	cluster.NoAgents(t, 10*time.Second)
	cluster.Eventually(t, 30*time.Second, "nothing left at all", func(ctx context.Context) error {
		all, err := objects(ctx)
		if err != nil {
			return err
		}
		if left := slices.DeleteFunc(added(before, all), func(o string) bool { return isVolume(o) || ofUser(o) }); len(left) > 0 {
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
	if strings.Contains(name, "/"+tunnel.Name) || strings.Contains(name, "/carrier-") {
		return false // intercepts end with the operator
	}
	return strings.HasSuffix(resource, ".monitoring.openshift.tpg") || strings.HasPrefix(name, cluster.OperatorNamespace+"/")
}
