//go:build e2e

package scale

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/release"
	"github.com/sonde-operator/sonde/test/cluster"
)

// Sizes and goals of the part about Collectors.
const (
	collectors          = 500
	tenants             = 25 // namespaces, which share the Collectors
	installs            = 20
	goalInstall         = 8 * time.Second // the median
	goalCollectorMemory = 15 << 20
)

// TestScaleCollectors measures the cost of 500 Collectors whose releasers are simulated, and the time of real installs.
func TestScaleCollectors(t *testing.T) {
	times := realInstalls(t)
	median := times[len(times)/2]
	t.Logf("%d installs took %s (median; goal %s), from %s to %s", installs, median, goalInstall, times[0], times[len(times)-1])
	if median > goalInstall {
		t.Errorf("an install took %s (median), want at most %s", median, goalInstall)
	}

	cordon(t, true)
	t.Cleanup(func() { cordon(t, false) })
	namespaces := make([]string, tenants)
	for i := range namespaces {
		namespaces[i] = cluster.OpenedNamespace(t)
	}
	cluster.Eventually(t, 2*time.Minute, "10 s without writes", cluster.QuietFor(t, 10*time.Second))
	watched := watchMemory(t)
	before := watched.now(t)
	t.Logf("before: %s", before)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- endReleasers(ctx) }()

	from := time.Now()
	for i := range collectors {
		c := cluster.NewCollector(t, namespaces[i%tenants], nil)
		c.Name = fmt.Sprintf("c-%d", i)
		c.Spec.Tenant.Instance = fmt.Sprintf("i-%d", i)
		if err := cluster.Admin.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Eventually(t, 30*time.Minute, "all Collectors ready", func(ctx context.Context) error { return collectorsReady(ctx, namespaces) })
	all := time.Since(from)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	writes := float64(len(cluster.ManagerCalls(t, from).Writes())) / collectors
	idle := testIdleVolumes(t)
	more := watched.peak(t).Own - before.Own
	t.Logf("all ready after %s; %.1f writes for each; at the peak %s, %.1f MiB of its own more than before (goal: %.0f)", all.Round(time.Second), writes, watched.peak(t), mib(more), mib(goalCollectorMemory))
	if more > goalCollectorMemory {
		t.Errorf("%.1f MiB more at the peak, want at most %.0f", mib(more), mib(goalCollectorMemory))
	}
	figures(t, "6-collectors",
		figure{fmt.Sprintf("%d installs of the embedded chart, one after the other: from the creation of the Collector to Ready, median", installs), "8 s", fmt.Sprintf("%.1f s", median.Seconds())},
		figure{"500 Collectors with simulated releasers: API writes for each", "", fmt.Sprintf("%.1f", writes)},
		figure{fmt.Sprintf("500 Collectors, %.0f minutes in which nothing happens: API calls but watches and leases", idleVolumes.Minutes()), "0", fmt.Sprint(idle)},
		figure{"500 Collectors: further memory of the manager at its peak", "15 MiB", fmt.Sprintf("%.1f MiB", mib(more))})
}

// realInstalls returns how long each install took, sorted.
func realInstalls(t *testing.T) []time.Duration {
	t.Helper()
	ns := cluster.OpenedNamespace(t)
	var times []time.Duration
	for i := range installs {
		c := cluster.NewCollector(t, ns, map[string]any{"persistence": map[string]any{"enabled": false}})
		c.Name, c.Spec.Tenant.Instance = fmt.Sprintf("c-%d", i), fmt.Sprintf("i-%d", i)
		began := time.Now()
		cluster.Create(t, c)
		cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", 3*time.Minute)
		times = append(times, time.Since(began).Round(100*time.Millisecond))
		cluster.DeleteNow(t, c)
		cluster.NoRelease(t, ns, time.Minute)
	}
	slices.Sort(times)
	return times
}

// cordon keeps the Pods of releasers from real nodes, or lets them run there again.
func cordon(t *testing.T, on bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var nodes corev1.NodeList
	if err := cluster.Admin.List(ctx, &nodes); err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		patch := client.MergeFrom(n.DeepCopy())
		n.Spec.Unschedulable = on
		if err := cluster.Admin.Patch(ctx, n, patch); err != nil {
			t.Fatal(err)
		}
	}
}

// endReleasers plays the kubelet for the Pods of releasers: each ends at once with the report of a first release.
func endReleasers(ctx context.Context) error {
	text, err := release.Report{
		Outcome: release.Ready, Reason: release.ReasonReleased, Message: "simulated", Revision: 1, ChartVersion: "1.0.0",
		History: []release.Revision{{Revision: 1, ChartVersion: "1.0.0", Status: release.Deployed, Unix: time.Now().Unix()}},
	}.Marshal()
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
		var pods corev1.PodList
		if err := cluster.Admin.List(ctx, &pods, client.MatchingLabels{sondev1.LabelKind: sondev1.CollectorKind}); err != nil && ctx.Err() == nil {
			return err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.Status.Phase != corev1.PodPending {
				continue
			}
			patch := client.MergeFrom(p.DeepCopy())
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: release.Container, Image: p.Spec.Containers[0].Image,
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", Message: string(text), FinishedAt: metav1.Now()}},
			}}
			if err := cluster.Admin.Status().Patch(ctx, p, patch); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

func collectorsReady(ctx context.Context, namespaces []string) error {
	ready := 0
	for _, ns := range namespaces {
		var list sondev1.CollectorList
		if err := cluster.Admin.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == sondev1.ConditionReady && c.Status == metav1.ConditionTrue {
					ready++
				}
			}
		}
	}
	if ready != collectors {
		return fmt.Errorf("%d of %d", ready, collectors)
	}
	return nil
}
