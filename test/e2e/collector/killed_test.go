//go:build e2e

package collector

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/release"
	"github.com/sonde-operator/sonde/test/cluster"
)

// kills is how often the test kills the releaser.
const kills = 4

// The releaser is killed again and again while it upgrades to an image that does not exist. The old Pods answer every request meanwhile,
// and the next change leaves one release that is deployed.
func TestCollectorReleaserKilled(t *testing.T) {
	t.Parallel()
	ns := cluster.OpenedNamespace(t)
	stateless := map[string]any{"persistence": map[string]any{"enabled": false}}
	c := create(t, ns, stateless)
	old := pods(t, ns)[0]
	requests, stop := answering(t, &old)

	broken := map[string]any{"image": "sonde.local/missing:1"}
	maps.Copy(broken, stateless)
	cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) {
		s.Values, s.Upgrade = cluster.Values(t, broken), &sondev1.CollectorAction{Timeout: "1m", Retries: new(int32(100))}
	})
	before := c.Status.Job
	for i := range kills {
		releaser := nextReleaser(t, c, before)
		before = releaser.Labels[batchv1.JobNameLabel]
		time.Sleep(time.Duration(i) * 700 * time.Millisecond) // at another moment each time
		cluster.KillProcess(t, releaser, "KILL", "/releaser")
		cluster.Eventually(t, patience, "the killed releaser's Pod has ended", func(ctx context.Context) error {
			err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(releaser), releaser)
			if client.IgnoreNotFound(err) != nil || err == nil && releaser.Status.Phase == corev1.PodRunning {
				return fmt.Errorf("%s, %w", releaser.Status.Phase, err)
			}
			return nil
		})
	}
	stop()
	if all, failed := requests.all.Load(), requests.failed.Load(); failed > 0 || all < kills {
		t.Errorf("%d of %d requests to the old Pod failed", failed, all)
	} else {
		t.Logf("the old Pod answered %d requests", all)
	}

	cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) { s.Values = cluster.Values(t, stateless) })
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", patience)
	var deployed, others int
	var secrets corev1.SecretList
	if err := cluster.Admin.List(t.Context(), &secrets, client.InNamespace(ns), client.MatchingLabels{"owner": "helm"}); err != nil {
		t.Fatal(err)
	}
	for i := range secrets.Items {
		switch status := secrets.Items[i].Labels["status"]; status {
		case "deployed":
			deployed++
		case "superseded", "failed":
			others++
		default:
			t.Errorf("revision %s is %s", secrets.Items[i].Name, status)
		}
	}
	if deployed != 1 || deployed+others > release.MaxHistory {
		t.Errorf("%d revisions are deployed, %d are not", deployed, others)
	}
}

// count of requests.
type count struct{ all, failed atomic.Int64 }

// answering sends spans to a Pod of the release until stop is called.
func answering(t *testing.T, pod *corev1.Pod) (requests *count, stop func()) {
	t.Helper()
	address, closeForward, err := cluster.Forward(pod, 4318)
	if err != nil {
		t.Fatal(err)
	}
	requests = &count{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := post(ctx, address); err != nil && ctx.Err() == nil {
				requests.failed.Add(1)
				t.Log(err)
			}
			requests.all.Add(1)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return requests, func() {
		cancel()
		<-ended
		closeForward()
	}
}

// nextReleaser waits until the releaser of a Job after this one runs.
func nextReleaser(t *testing.T, c *sondev1.Collector, before string) (running *corev1.Pod) {
	t.Helper()
	cluster.Eventually(t, patience, "another releaser runs", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if c.Status.Job == before {
			return fmt.Errorf("the last Job is %s", before)
		}
		var list corev1.PodList
		if err := cluster.Admin.List(ctx, &list, client.InNamespace(c.Namespace), client.MatchingLabels{batchv1.JobNameLabel: c.Status.Job}); err != nil {
			return err
		}
		for i := range list.Items {
			if running = &list.Items[i]; running.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return fmt.Errorf("no Pod of Job %s runs", c.Status.Job)
	})
	return running
}
