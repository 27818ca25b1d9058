//go:build faults

package faults

import (
	"context"
	"fmt"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/test/cluster"
)

// withProbe are the stages at which a probe runs.
var withProbe = []stage{starting, capturing, tracing, ending}

func onProbes(signal string) func(*testing.T, *scene) {
	return func(t *testing.T, s *scene) {
		t.Helper()
		for _, st := range withProbe {
			s.signal(t, st, probe, signal)
		}
	}
}

// probesOutOfMemory moves a process that allocates memory into each probe's memory cgroup, until the kernel kills the
// probe, which the test has made the first candidate. (The kernel refuses to lower the limit below the current use.)
func probesOutOfMemory(t *testing.T, s *scene) {
	t.Helper()
	const eat = `set -e
for pid in %s; do
	echo 1000 >/proc/$pid/oom_score_adj
	group=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/$pid/cgroup)
	[ -e "$group/cgroup.procs" ] || group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$pid/cgroup)
	sh -c 'echo $$ >'"$group"'/cgroup.procs; exec head -c 1G /dev/zero | tail' >/dev/null 2>&1 &
	eater=$!
	while [ -d /proc/$pid ] && ! grep -q '^State:.Z' /proc/$pid/status; do sleep 0.05; done
	kill -KILL $eater $(pgrep -P $eater) 2>/dev/null || true
done`
	for _, st := range withProbe {
		cluster.OnNode(t, hurt, "timeout", "60", "sh", "-c", fmt.Sprintf(eat, strings.Join(pids(t, s.agents[st], probe), " ")))
	}
}

func keepersKilled(t *testing.T, s *scene) {
	t.Helper()
	for _, st := range stages {
		s.signal(t, st, keeper, "KILL")
	}
}

func agentPodsDeleted(t *testing.T, s *scene) {
	t.Helper()
	for _, st := range stages {
		cluster.DeleteNow(t, s.agents[st].DeepCopy())
	}
}

func agentJobsDeleted(t *testing.T, s *scene) {
	t.Helper()
	for _, st := range stages {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: s.agents[st].Labels[batchv1.JobNameLabel]}}
		cluster.DeleteNow(t, job)
	}
	// Wait for the garbage collector: until it deletes the Pods, the row's fault has not happened.
	cluster.Eventually(t, time.Minute, "Pods deleted with their Jobs", func(ctx context.Context) error {
		for _, st := range stages {
			p := s.agents[st].DeepCopy()
			if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); client.IgnoreNotFound(err) != nil || err == nil && p.DeletionTimestamp == nil {
				return fmt.Errorf("Pod %s still exists: %w", p.Name, err)
			}
		}
		return nil
	})
}

func agentPodsEvicted(t *testing.T, s *scene) {
	t.Helper()
	for _, st := range stages {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: s.agents[st].Name}}
		if err := cluster.Admin.SubResource("eviction").Create(t.Context(), s.agents[st].DeepCopy(), eviction); err != nil {
			t.Fatal(err)
		}
	}
}

func managersKilled(t *testing.T, s *scene) {
	t.Helper()
	for _, p := range managers(t) {
		signalContainer(t, &p, "manager", "KILL")
	}
	s.resume(t)
}

// managersAway stops the manager until the capture in the stage ending has ended and its keeper has released the file.
func managersAway(t *testing.T, s *scene) {
	t.Helper()
	scaleManager(t, 0)
	s.release(t)
	cluster.Eventually(t, 2*time.Minute, "Job ended", func(ctx context.Context) error {
		var job batchv1.Job
		key := client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: s.agents[ending].Labels[batchv1.JobNameLabel]}
		if err := cluster.Admin.Get(ctx, key, &job); err != nil {
			return err
		}
		if job.Status.CompletionTime == nil {
			return fmt.Errorf("%+v", job.Status)
		}
		return nil
	})
	scaleManager(t, 2)
}

func managers(t *testing.T) []corev1.Pod {
	t.Helper()
	var d appsv1.Deployment
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: "sonde-manager"}, &d); err != nil {
		t.Fatal(err)
	}
	return cluster.ReadyPods(t, &d, 2)
}

func scaleManager(t *testing.T, n int32) {
	t.Helper()
	var d appsv1.Deployment
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: "sonde-manager"}, &d); err != nil {
		t.Fatal(err)
	}
	cluster.Scale(t, &d, n)
	cluster.ReadyPods(t, &d, int(n))
}

// kubeletAway stops the kubelet while the capture in the stage ending ends.
func kubeletAway(t *testing.T, s *scene) {
	t.Helper()
	cluster.OnNode(t, hurt, "sh", "-c", "kill -STOP $(pidof kubelet)")
	s.release(t)
	cluster.Eventually(t, 30*time.Second, "probe ended while the kubelet was away", func(context.Context) error {
		if left := pids(t, s.agents[ending], probe); len(left) > 0 {
			return fmt.Errorf("processes %v still run", left)
		}
		return nil
	})
	time.Sleep(10 * time.Second) // the time that the row names; there is no condition to await
	cluster.OnNode(t, hurt, "sh", "-c", "kill -KILL $(pidof kubelet)")
}

func containerdKilled(t *testing.T, s *scene) {
	t.Helper()
	cluster.OnNode(t, hurt, "sh", "-c", "kill -KILL $(pidof containerd)")
	s.release(t)
}

// apiAway kills or freezes the API server while the capture in the stage ending ends.
func apiAway(during time.Duration, freeze bool) func(*testing.T, *scene) {
	return func(t *testing.T, s *scene) {
		t.Helper()
		args := []string{"api-stop"}
		if freeze {
			args = append(args, "--freeze")
		}
		cluster.Machine(t, args...)
		t.Cleanup(func() { _ = osexec.Command(cluster.Command, "api-start").Run() })
		s.resume(t)
		time.Sleep(during) // the time that the row names; there is no condition to await
		cluster.Machine(t, "api-start")
	}
}

func targetsDeleted(t *testing.T, s *scene) {
	t.Helper()
	cluster.DeleteNow(t, s.sink.DeepCopy())
	cluster.DeleteNow(t, s.late.DeepCopy())
	s.resume(t)
}

func namespaceDeleted(t *testing.T, s *scene) {
	t.Helper()
	cluster.DeleteNow(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}})
	s.resume(t)
}

func capturesDeleted(t *testing.T, s *scene) {
	t.Helper()
	for _, st := range stages {
		cluster.DeleteNow(t, copyOf(s.captures[st]))
	}
	for _, st := range stages {
		cluster.NothingLeft(t, string(s.captures[st].GetUID()))
	}
}

func nodeReboots(t *testing.T, s *scene) {
	t.Helper()
	cluster.Machine(t, "node-stop", hurt)
	t.Cleanup(func() { _ = osexec.Command(cluster.Command, "node-start", hurt).Run() })
	cluster.Machine(t, "node-start", hurt)
	s.released = true
}

// nodeGone kills a node and deletes its Node object once Kubernetes has noticed. The node comes back for the next test.
func nodeGone(t *testing.T, s *scene) {
	t.Helper()
	s.elsewhere = onNode(t, hurt)
	cluster.Machine(t, "node-stop", hurt)
	t.Cleanup(func() { _ = osexec.Command(cluster.Command, "node-start", hurt).Run() })
	node := cluster.AwaitNotReady(t, hurt)
	cluster.DeleteNow(t, node)
	s.released = true
}

// nodeStarts brings the node back, and with it the Pods that Kubernetes has started elsewhere meanwhile.
func nodeStarts(t *testing.T, s *scene) {
	t.Helper()
	cluster.Machine(t, "node-start", hurt)
	unschedulable(t, spare, true)
	defer unschedulable(t, spare, false)
	for made, n := range s.elsewhere {
		have := onNode(t, hurt)[made]
		for _, p := range podsOf(t, spare) {
			if have < n && ownerOf(&p) == made {
				cluster.DeleteNow(t, &p)
				have++
			}
		}
	}
	cluster.Eventually(t, 2*time.Minute, "Pods back on "+hurt, func(context.Context) error {
		if diff := cmp.Diff(s.elsewhere, onNode(t, hurt)); diff != "" {
			return fmt.Errorf("on the node (-before +now):\n%s", diff)
		}
		return nil
	})
}

func unschedulable(t *testing.T, node string, is bool) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, is))
	if err := cluster.Admin.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch); err != nil {
		t.Fatal(err)
	}
}

// onNode counts, by ReplicaSet, a node's Pods that a ReplicaSet created.
func onNode(t *testing.T, node string) map[client.ObjectKey]int {
	t.Helper()
	found := map[client.ObjectKey]int{}
	for _, p := range podsOf(t, node) {
		if made := ownerOf(&p); made.Name != "" {
			found[made]++
		}
	}
	return found
}

func podsOf(t *testing.T, node string) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := cluster.Admin.List(t.Context(), &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

func ownerOf(p *corev1.Pod) client.ObjectKey {
	if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == "ReplicaSet" {
		return client.ObjectKey{Namespace: p.Namespace, Name: owner.Name}
	}
	return client.ObjectKey{}
}
