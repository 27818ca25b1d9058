//go:build e2e

// Package collector tests on a real cluster that a Collector installs, upgrades and removes a real OpenTelemetry Collector, and that
// what cannot work changes nothing. hack/e2e.sh runs it.
package collector

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/release"
	"github.com/sonde-operator/sonde/test/cluster"
	"github.com/sonde-operator/sonde/test/crds"
)

// patience is how long tests wait for what takes seconds. Where a time is promised, a test has its own bound.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	if err := errors.Join(cluster.Setup(), flag.Set("test.parallel", "4")); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// create creates a Collector and waits until it is ready.
func create(t *testing.T, ns string, values map[string]any) *sondev1.Collector {
	t.Helper()
	c := cluster.NewCollector(t, ns, values)
	cluster.Create(t, c)
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	return c
}

func meta(ns string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: "collector-prod"}
}

// pods returns the Pods of the release.
func pods(t *testing.T, ns string) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := cluster.Admin.List(t.Context(), &list, client.InNamespace(ns), client.MatchingLabels{"app.kubernetes.io/instance": "collector-prod"}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

const spans = `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"hello"}]}]}]}`

// send sends a span to a Pod of the release.
func send(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	address, stop, err := cluster.Forward(pod, 4318)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := post(t.Context(), address); err != nil {
		t.Error(err)
	}
}

// post sends a span to an address.
func post(ctx context.Context, address string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/traces", strings.NewReader(spans))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the backend answers %s", resp.Status)
	}
	return nil
}

// A tenant's backend comes, receives data, changes, and goes. Its volume stays, and the next Collector of the name uses it again.
func TestCollectorLife(t *testing.T) {
	t.Parallel()
	ns := cluster.OpenedNamespace(t)
	c := create(t, ns, nil)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta(ns)}
	for _, o := range []client.Object{
		&appsv1.Deployment{ObjectMeta: meta(ns)}, &corev1.Service{ObjectMeta: meta(ns)}, &corev1.Secret{ObjectMeta: meta(ns)}, &networkingv1.NetworkPolicy{ObjectMeta: meta(ns)}, claim,
	} {
		if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Error(err)
		}
	}
	running := pods(t, ns)
	if len(running) != 1 {
		t.Fatalf("%d Pods, want 1", len(running))
	}
	send(t, &running[0])

	cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) {
		s.Values = cluster.Values(t, map[string]any{"file": map[string]any{"rotation": map[string]any{"maxMegabytes": 7}}, "networkPolicy": map[string]any{"enabled": false}})
	})
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	if c.Status.Revision != 2 || len(c.Status.History) != 2 {
		t.Errorf("status %+v, want revision 2", c.Status)
	}
	cluster.Gone(t, &networkingv1.NetworkPolicy{ObjectMeta: meta(ns)}, 30*time.Second)
	config := &corev1.Secret{ObjectMeta: meta(ns)}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil || !strings.Contains(string(config.Data["config.yaml"]), "max_megabytes: 7") {
		t.Errorf("configuration %s, %v", config.Data["config.yaml"], err)
	}

	cluster.DeleteNow(t, c)
	cluster.NoRelease(t, ns, time.Minute)
	before := claim.UID
	create(t, ns, nil)
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil || claim.UID != before {
		t.Errorf("the volume is another one: %v", err)
	}
}

// Where the cluster has the Prometheus operator, the release has a ServiceMonitor, which goes with it.
func TestCollectorServiceMonitor(t *testing.T) { // not in parallel: the kind must not appear in the midst of other releases
	options := envtest.CRDInstallOptions{Paths: crds.ConsoleAndMonitoring(t), ErrorIfPathMissing: true}
	if _, err := envtest.InstallCRDs(cluster.Config, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := envtest.UninstallCRDs(cluster.Config, options); err != nil {
			t.Error(err)
		}
	})
	ns := cluster.Namespace(t, nil)
	cmd, out, errOut := cluster.StartPlugin(t, "collector", "open", "-n", ns) // by an admin who may give rights on ServiceMonitors
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, out, errOut)
	}
	stateless := map[string]any{"persistence": map[string]any{"enabled": false}}
	c := create(t, ns, stateless)
	monitor := &unstructured.Unstructured{}
	monitor.SetAPIVersion("monitoring.coreos.com/v1")
	monitor.SetKind("ServiceMonitor")
	monitor.SetNamespace(ns)
	monitor.SetName(meta(ns).Name)
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(monitor), monitor); err != nil {
		t.Fatal(err)
	}
	cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) {
		s.Values = cluster.Values(t, map[string]any{"persistence": stateless["persistence"], "serviceMonitor": map[string]any{"interval": "17s"}})
	})
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(monitor), monitor); err != nil || !strings.Contains(fmt.Sprint(monitor.Object["spec"]), "17s") {
		t.Errorf("%v, %v", monitor.Object["spec"], err)
	}
	cluster.DeleteNow(t, c)
	cluster.Gone(t, monitor, time.Minute)
}

// Without the consent of the namespace's admin nothing happens, and the status says what to do.
func TestCollectorNotOpened(t *testing.T) {
	t.Parallel()
	ns := cluster.Namespace(t, nil)
	c := cluster.NewCollector(t, ns, nil)
	cluster.Create(t, c)
	stalled := cluster.AwaitCollector(t, c, sondev1.ConditionStalled, "True", sondev1.ReasonNamespaceNotOpened, patience)
	if !strings.Contains(stalled.Message, "kubectl sonde collector open -n "+ns) {
		t.Errorf("message %q", stalled.Message)
	}
	cluster.NoRelease(t, ns, time.Second)
	cluster.OpenCollectors(t, ns)
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
}

// A change that cannot work is refused, and nothing of the release is written.
func TestCollectorRefused(t *testing.T) {
	t.Parallel()
	ns := cluster.OpenedNamespace(t)
	c := create(t, ns, nil)
	before := releaseOnly(t, ns)
	// The cases come in any order, so each one begins with the spec that works.
	working := func(s *sondev1.CollectorSpec) { s.Collector.Version, s.Values = "", cluster.Values(t, nil) }
	for name, tc := range map[string]struct {
		change func(*sondev1.CollectorSpec)
		reason string
		want   string
	}{
		"schema":  {func(s *sondev1.CollectorSpec) { s.Values = cluster.Values(t, map[string]any{"replicas": "two"}) }, release.ReasonSchemaInvalid, "/replicas"},
		"version": {func(s *sondev1.CollectorSpec) { s.Collector.Version = "9.9.9" }, release.ReasonChartNotFound, "the embedded one is"},
		"immutable field": {func(s *sondev1.CollectorSpec) {
			s.Values = cluster.Values(t, map[string]any{"persistence": map[string]any{"size": "16Mi", "storageClassName": "another"}})
		}, release.ReasonImmutable, "PersistentVolumeClaim collector-prod"},
		"invalid object": {func(s *sondev1.CollectorSpec) {
			s.Values = cluster.Values(t, map[string]any{"resources": map[string]any{"limits": map[string]any{"memory": "much"}}})
		}, release.ReasonObjectInvalid, "Deployment collector-prod"},
	} {
		cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) {
			working(s)
			tc.change(s)
		})
		stalled := cluster.AwaitCollector(t, c, sondev1.ConditionStalled, "True", tc.reason, 30*time.Second)
		if !strings.Contains(stalled.Message, tc.want) {
			t.Errorf("%s: %s: message %q, want %q", name, stalled.Reason, stalled.Message, tc.want)
		}
		if after := releaseOnly(t, ns); !maps.Equal(before, after) {
			t.Errorf("%s: the release changed from %v to %v", name, before, after)
		}
	}
	cluster.ChangeCollector(t, c, working)
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	if c.Status.Revision != 1 {
		t.Errorf("revision %d after the spec is as before, want 1", c.Status.Revision)
	}
}

// releaseOnly returns the objects of a release without the releaser's own.
func releaseOnly(t *testing.T, ns string) map[string]string {
	t.Helper()
	all, err := cluster.ReleaseObjects(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(all, func(name, _ string) bool {
		return strings.Contains(name, "/sonde-") && !strings.Contains(name, "sh.helm.release")
	})
	return all
}

// A release that does not become ready is rolled back, and its Pods answer all the time. A first one is uninstalled.
func TestCollectorRemediation(t *testing.T) {
	t.Parallel()
	ns := cluster.OpenedNamespace(t)
	broken := map[string]any{"image": "sonde.local/missing:1", "persistence": map[string]any{"enabled": false}}
	soon := &sondev1.CollectorAction{Timeout: "15s", Retries: new(int32(0))}
	c := cluster.NewCollector(t, ns, broken)
	c.Spec.Install, c.Spec.Upgrade = soon, soon
	cluster.Create(t, c)
	cluster.AwaitCollector(t, c, sondev1.ConditionRemediated, "True", sondev1.ReasonUninstalled, patience)
	cluster.AwaitCollector(t, c, sondev1.ConditionStalled, "True", release.ReasonNotReady, patience)
	if left := releaseOnly(t, ns); len(left) != 0 {
		t.Errorf("left after the first release failed: %v", left)
	}

	working := map[string]any{"persistence": map[string]any{"enabled": false}}
	cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) { s.Values, s.Install = cluster.Values(t, working), nil })
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	old := pods(t, ns)[0]
	cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) { s.Values = cluster.Values(t, broken) })
	cluster.AwaitCollector(t, c, sondev1.ConditionRemediated, "True", sondev1.ReasonRolledBack, patience)
	send(t, &old)
	cluster.Eventually(t, patience, "only the old Pod is left", func(context.Context) error {
		if now := pods(t, ns); len(now) != 1 || now[0].UID != old.UID {
			return fmt.Errorf("%d Pods", len(now))
		}
		return nil
	})
	if len(c.Status.History) > release.MaxHistory {
		t.Errorf("%d revisions", len(c.Status.History))
	}
}

// Many changes in short time: never two Jobs at once, and the last change wins.
func TestCollectorManyChanges(t *testing.T) {
	t.Parallel()
	ns := cluster.OpenedNamespace(t)
	c := create(t, ns, map[string]any{"persistence": map[string]any{"enabled": false}})
	stop := make(chan struct{})
	most := make(chan int, 1)
	go func() {
		n := 0
		defer func() { most <- n }()
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			var list batchv1.JobList
			if err := cluster.Admin.List(context.WithoutCancel(t.Context()), &list, client.InNamespace(ns)); err != nil {
				continue
			}
			active := 0
			for i := range list.Items {
				active += int(list.Items[i].Status.Active)
			}
			n = max(n, active)
		}
	}()
	const changes = 50
	for i := range changes {
		cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) {
			s.Values = cluster.Values(t, map[string]any{"persistence": map[string]any{"enabled": false}, "service": map[string]any{"grpcPort": 5000 + i}})
		})
		time.Sleep(time.Minute / changes)
	}
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	close(stop)
	if n := <-most; n != 1 {
		t.Errorf("%d Jobs were active at once, want 1", n)
	}
	service := &corev1.Service{ObjectMeta: meta(ns)}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil || service.Spec.Ports[0].Port != 5000+changes-1 {
		t.Errorf("port %d, %v", service.Spec.Ports[0].Port, err)
	}
	if n := len(c.Status.History); n > release.MaxHistory {
		t.Errorf("%d revisions, want at most %d", n, release.MaxHistory)
	}
}

// Two Collectors never share a release.
func TestCollectorNameTaken(t *testing.T) {
	t.Parallel()
	ns := cluster.OpenedNamespace(t)
	create(t, ns, nil)
	second := cluster.NewCollector(t, ns, nil)
	second.Name = "second"
	cluster.Create(t, second)
	stalled := cluster.AwaitCollector(t, second, sondev1.ConditionStalled, "True", sondev1.ReasonReleaseNameTaken, patience)
	if !strings.Contains(stalled.Message, ns+"/mine") {
		t.Errorf("message %q", stalled.Message)
	}
}
