//go:build e2e

package collector

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/release"
	"github.com/sonde-operator/sonde/test/cluster"
)

// failingHook is a Job that fails before an upgrade.
const failingHook = `apiVersion: batch/v1
kind: Job
metadata: {name: hook, annotations: {helm.sh/hook: pre-upgrade, helm.sh/hook-delete-policy: before-hook-creation}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: sonde.local/workload:1, args: [no-such-command]}]
`

// shop returns the versions of a chart, and their digests.
func shop(t *testing.T) (archives map[string][]byte, digests map[string]string) {
	t.Helper()
	archives, digests = map[string][]byte{}, map[string]string{}
	for version, templates := range map[string]map[string]string{
		"1.0.0": {"version": cluster.ConfigMapTemplate("version", "one"), "old": cluster.ConfigMapTemplate("old", "one")},
		"1.1.0": {"version": cluster.ConfigMapTemplate("version", "two"), "password": cluster.ConfigMapTemplate("password", `{{ .Values.password | default "none" }}`)},
		"2.0.0": {"version": cluster.ConfigMapTemplate("version", "three"), "hook": failingHook},
	} {
		archives[version], digests[version] = cluster.PackChart(t, "shop", version, templates)
	}
	return archives, digests
}

// newShop is a Collector of a chart server.
func newShop(ns string, source sondev1.ChartSource, url string, from *cluster.ChartServer) *sondev1.Collector {
	return &sondev1.Collector{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"},
		Spec: sondev1.CollectorSpec{
			Collector: sondev1.CollectorRelease{Name: "shop", Version: "1.0.0"}, Tenant: sondev1.CollectorTenant{Reference: ns, Instance: "prod"},
			Chart: &sondev1.CollectorChart{Source: source, URL: url, CABundle: from.CA, SecretRef: &sondev1.CollectorSecretReference{Name: from.Credentials}},
		},
	}
}

// refused changes a Collector, waits until it is stalled, checks that nothing of the release was written, and changes it back.
func refused(t *testing.T, c *sondev1.Collector, reason, text string, change func(*sondev1.CollectorSpec)) {
	t.Helper()
	before, spec := releaseOnly(t, c.Namespace), c.Spec.DeepCopy()
	cluster.ChangeCollector(t, c, change)
	stalled := cluster.AwaitCollector(t, c, sondev1.ConditionStalled, "True", reason, 30*time.Second)
	if !strings.Contains(stalled.Message, text) {
		t.Errorf("%s: message %q, want %q", reason, stalled.Message, text)
	}
	if after := releaseOnly(t, c.Namespace); !maps.Equal(before, after) {
		t.Errorf("%s: the release changed from %v to %v", reason, before, after)
	}
	cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) { *s = *spec })
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
}

// A chart from a repository with TLS and a password: another version, the way back, a wrong digest, a hook that fails, and a repository
// that is away for a while.
func TestCollectorRepository(t *testing.T) {
	t.Parallel()
	ns := cluster.OpenedNamespace(t)
	archives, digests := shop(t)
	repository := cluster.NewRepository(t, ns, archives)
	c := newShop(ns, sondev1.ChartHTTP, "https://"+repository.Host, repository)
	c.Spec.Chart.Digest = digests["1.0.0"]
	cluster.Create(t, c)
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	cluster.AwaitConfigMap(t, ns, "version", "one", time.Second)
	version := func(number string) func(*sondev1.CollectorSpec) {
		return func(s *sondev1.CollectorSpec) { s.Collector.Version, s.Chart.Digest = number, digests[number] }
	}

	t.Run("another version", func(t *testing.T) {
		cluster.ChangeCollector(t, c, version("1.1.0"))
		cluster.Gone(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "old"}}, 30*time.Second)
		cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
		cluster.AwaitConfigMap(t, ns, "version", "two", time.Second)
	})
	t.Run("values of a Secret", func(t *testing.T) { valuesOfASecret(t, c) })
	t.Run("refused", func(t *testing.T) {
		refused(t, c, release.ReasonDigestMismatch, "chart.digest says", func(s *sondev1.CollectorSpec) { s.Chart.Digest = "sha256:" + strings.Repeat("0", 64) })
		refused(t, c, release.ReasonChartNotFound, "no chart shop of version", func(s *sondev1.CollectorSpec) { s.Collector.Version = "9.0.0" })
	})
	t.Run("a failing hook", func(t *testing.T) {
		cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) {
			version("2.0.0")(s)
			s.Upgrade = &sondev1.CollectorAction{Timeout: "20s", Retries: new(int32(0))}
		})
		cluster.AwaitCollector(t, c, sondev1.ConditionStalled, "True", release.ReasonNotReady, patience)
		cluster.AwaitCollector(t, c, sondev1.ConditionRemediated, "True", sondev1.ReasonRolledBack, patience)
		cluster.AwaitConfigMap(t, ns, "version", "two", time.Second)
	})
	t.Run("downgrade", func(t *testing.T) {
		cluster.ChangeCollector(t, c, version("1.0.0"))
		cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
		cluster.AwaitConfigMap(t, ns, "version", "one", time.Second)
		cluster.AwaitConfigMap(t, ns, "old", "one", time.Second)
	})
	t.Run("the repository is away", func(t *testing.T) {
		repository.Stop(t)
		cluster.ChangeCollector(t, c, version("1.1.0"))
		retrying := cluster.AwaitCollector(t, c, sondev1.ConditionReconciling, "True", sondev1.ReasonRetrying, patience)
		if !strings.Contains(retrying.Message, "attempt") || !strings.Contains(retrying.Message, repository.Host) {
			t.Errorf("message %q", retrying.Message)
		}
		repository.Start(t)
		cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", time.Minute)
		cluster.AwaitConfigMap(t, ns, "version", "two", time.Second)
	})
}

// valuesOfASecret gives a release a value that only the releaser reads. Another value is used when somebody asks for it.
func valuesOfASecret(t *testing.T, c *sondev1.Collector) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "database"}, StringData: map[string]string{"values.yaml": "password: first"}}
	cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) {
		s.ValuesFrom = []sondev1.CollectorValuesReference{{Kind: "Secret", Name: secret.Name}}
	})
	missing := cluster.AwaitCollector(t, c, sondev1.ConditionReconciling, "True", sondev1.ReasonRetrying, patience)
	if !strings.Contains(missing.Message, "key values.yaml of Secret database does not exist") {
		t.Errorf("message %q", missing.Message)
	}
	if err := cluster.Admin.Create(t.Context(), secret); err != nil { // it goes with the namespace: later parts need it, too
		t.Fatal(err)
	}
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	cluster.AwaitConfigMap(t, c.Namespace, "password", "first", time.Second)
	secret.StringData = map[string]string{"values.yaml": "password: second"}
	if err := cluster.Admin.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	cluster.RetryCollector(t, c)
	cluster.AwaitConfigMap(t, c.Namespace, "password", "second", patience)
	cluster.Eventually(t, patience, "the upgrade has ended", func(ctx context.Context) error {
		var pending corev1.SecretList
		err := cluster.Admin.List(ctx, &pending, client.InNamespace(c.Namespace), client.MatchingLabels{"owner": "helm", "status": "pending-upgrade"})
		if err == nil && len(pending.Items) > 0 {
			err = fmt.Errorf("%s is pending", pending.Items[0].Name)
		}
		return err
	})
}

// A chart from a registry with TLS and a password, by the digest of its manifest.
func TestCollectorRegistry(t *testing.T) {
	t.Parallel()
	ns := cluster.OpenedNamespace(t)
	registry := cluster.NewRegistry(t, ns)
	archives, _ := shop(t)
	digest := registry.Push(t, "shop", "1.0.0", archives["1.0.0"])
	newer := registry.Push(t, "shop", "1.1.0", archives["1.1.0"])
	c := newShop(ns, sondev1.ChartOCI, fmt.Sprintf("oci://%s/charts/shop", registry.Host), registry)
	c.Spec.Chart.Digest = digest
	cluster.Create(t, c)
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	cluster.AwaitConfigMap(t, ns, "version", "one", time.Second)
	refused(t, c, release.ReasonChartNotFound, "chart.digest", func(s *sondev1.CollectorSpec) { s.Chart.Digest = "sha256:" + strings.Repeat("0", 64) })
	cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) { s.Chart.Digest = newer })
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	cluster.AwaitConfigMap(t, ns, "version", "two", time.Second)

	wrong := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "wrong"}, StringData: map[string]string{"username": cluster.ChartUser, "password": "guessed"}}
	cluster.Create(t, wrong)
	for secret, text := range map[string]string{"wrong": "correct the Secret", "missing": "Secret missing, which chart.secretRef names, does not exist"} {
		cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) { s.Chart.SecretRef.Name = secret })
		cluster.Eventually(t, patience, text, func(ctx context.Context) error {
			if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
				return err
			}
			if r := apimeta.FindStatusCondition(c.Status.Conditions, sondev1.ConditionReleased); r == nil || r.Reason != release.ReasonChartForbidden || !strings.Contains(r.Message, text) {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
	}
}
