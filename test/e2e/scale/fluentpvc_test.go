//go:build e2e

package scale

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// Size and goals of the part about FluentPVC.
const (
	volumePods       = 1000
	goalReady        = 30 * time.Second // 99 of 100 Pods
	goalReadyWrites  = 3.0
	goalVolumeWrites = 9.0
	goalVolumeMemory = 40 << 20
	idleVolumes      = 3 * time.Minute
)

// TestScaleFluentPVC measures the cost of 1,000 simulated Pods with a volume each, from their creation until nothing is left.
func TestScaleFluentPVC(t *testing.T) {
	simulateNodes(t)
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	simulated := func(spec *corev1.PodSpec) {
		spec.NodeSelector = map[string]string{cluster.Simulated: "kwok"}
		spec.Tolerations = []corev1.Toleration{{Key: "kwok.x-k8s.io/node", Operator: corev1.TolerationOpExists}}
	}
	f := cluster.FluentPVC(t, ns, func(s *sondev1.FluentPVCSpec) {
		s.MaxBindings = 2 * volumePods
		simulated(&s.PVCFinalizerJobSpecTemplate.Template.Spec)
	})
	cluster.Eventually(t, 2*time.Minute, "10 s without writes", cluster.QuietFor(t, 10*time.Second))
	watched := watchMemory(t)
	before := watched.now(t)
	t.Logf("before: %s", before)

	from := time.Now()
	spec := cluster.VolumeSpec("idle")
	simulated(&spec)
	labels := map[string]string{"app": "volumes"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "volumes"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(volumePods)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{sondev1.KeyFluentPVC: f.Name}}, Spec: spec,
		}},
	}
	if err := cluster.Admin.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	// The bindings are listed afterwards: five lists of 1,000 each second would take most of the API server that is measured.
	cluster.Eventually(t, 10*time.Minute, "simulated Pods ready", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil || d.Status.ReadyReplicas != volumePods {
			return fmt.Errorf("%d of %d: %w", d.Status.ReadyReplicas, volumePods, err)
		}
		return nil
	})
	cluster.Eventually(t, 5*time.Minute, "all bindings Ready", bindingsAre(ns, volumePods, func(b *sondev1.FluentPVCBinding) bool { return b.Status.Phase == sondev1.BindingReady }))
	ready := readyTimes(t, ns)
	median, p99 := ready[len(ready)/2], ready[len(ready)*99/100]
	t.Logf("Ready after %s (median), %s (p99; goal %s); all after %s", median, p99, goalReady, time.Since(from).Round(time.Second))
	if p99 > goalReady {
		t.Errorf("p99 of the time from a Pod's creation to Ready is %s, want at most %s", p99, goalReady)
	}
	writesReady := perPod(t, "to Ready", from, goalReadyWrites)
	idle := testIdleVolumes(t)

	if err := cluster.Admin.Delete(t.Context(), d, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	cluster.NoClaims(t, ns, 15*time.Minute)
	t.Logf("all processed and gone %s after the Deployment; %s", time.Since(deleted).Round(time.Second), watched.now(t))
	writesAll := perPod(t, "in all", from, goalVolumeWrites)
	more := watched.peak(t).Own - before.Own
	t.Logf("at the peak: %s, %.1f MiB of its own more than before (goal: %.0f)", watched.peak(t), mib(more), mib(goalVolumeMemory))
	if more > goalVolumeMemory {
		t.Errorf("%.1f MiB more at the peak, want at most %.0f", mib(more), mib(goalVolumeMemory))
	}
	figures(t, "5-volumes",
		figure{"1,000 Pods with volumes: from a Pod's creation to its binding's Ready, median and p99", "30 s (p99)", fmt.Sprintf("%s, %s", median, p99)},
		figure{"1,000 Pods with volumes: API writes for each Pod until Ready", "3", writesReady},
		figure{"1,000 Pods with volumes: API writes for each Pod, over its life", "9", writesAll},
		figure{fmt.Sprintf("1,000 volumes, %.0f minutes in which nothing happens: API calls but watches and leases", idleVolumes.Minutes()), "0", fmt.Sprint(idle)},
		figure{"1,000 Pods with volumes: further memory of the manager at its peak", "40 MiB", fmt.Sprintf("%.1f MiB", mib(more))})
}

// perPod returns the manager's writes for each Pod, and how many of them are questions for its own rights, which store nothing.
func perPod(t *testing.T, what string, from time.Time, goal float64) string {
	t.Helper()
	all := cluster.ManagerCalls(t, from).Writes()
	n, reviews := float64(len(all))/volumePods, float64(len(all.Reviews()))/volumePods
	t.Logf("%.2f writes for each Pod %s (goal: %.0f), of which %.2f reviews: %v", n, what, goal, reviews, all.ByVerb())
	if n > goal {
		t.Errorf("%.2f writes for each Pod %s, want at most %.0f", n, what, goal)
	}
	return fmt.Sprintf("%.2f, of which %.2f reviews", n, reviews)
}

// testIdleVolumes counts the manager's calls but watches and leases while nothing happens.
func testIdleVolumes(t *testing.T) int {
	t.Helper()
	cluster.Eventually(t, 2*time.Minute, "10 s without writes", cluster.QuietFor(t, 10*time.Second))
	from := time.Now()
	time.Sleep(idleVolumes)
	calls := slices.DeleteFunc(cluster.ManagerCalls(t, from), func(e cluster.AuditEvent) bool {
		return e.Verb == "watch" || e.ObjectRef.Resource == "leases" || e.ChangesPath()
	})
	for _, e := range calls {
		t.Errorf("the manager sent %s %s at %s, want only watches and leases", e.Verb, e.RequestURI, e.StageTimestamp)
	}
	return len(calls)
}

// bindingsAre returns a check that passes when a namespace has n bindings that satisfy a condition.
func bindingsAre(ns string, n int, ok func(*sondev1.FluentPVCBinding) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		var list sondev1.FluentPVCBindingList
		if err := cluster.Admin.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		have := 0
		for i := range list.Items {
			if ok(&list.Items[i]) {
				have++
			}
		}
		if have != n {
			return fmt.Errorf("%d of %d", have, n)
		}
		return nil
	}
}

// readyTimes returns how long it took from each Pod's creation to its binding's Ready, sorted. Both times are whole seconds.
func readyTimes(t *testing.T, ns string) []time.Duration {
	t.Helper()
	var bindings sondev1.FluentPVCBindingList
	if err := cluster.Admin.List(t.Context(), &bindings, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := cluster.Admin.List(t.Context(), &pods, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	created := map[string]time.Time{}
	for i := range pods.Items {
		created[string(pods.Items[i].UID)] = pods.Items[i].CreationTimestamp.Time
	}
	var times []time.Duration
	for i := range bindings.Items {
		if b := &bindings.Items[i]; b.Status.PhaseTime != nil && !created[b.Spec.Pod.UID].IsZero() {
			times = append(times, b.Status.PhaseTime.Sub(created[b.Spec.Pod.UID]))
		}
	}
	if len(times) != volumePods {
		t.Fatalf("times of %d Pods, want %d", len(times), volumePods)
	}
	slices.Sort(times)
	return times
}
