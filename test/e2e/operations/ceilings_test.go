//go:build e2e

package operations

import (
	"context"
	"encoding/json"
	"fmt"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Defaults of the manifests (docs/operations.md), and the sizes of this test.
const (
	ceilingPods     = 200
	ceilingNode     = 20
	ceilingCaptures = 20
	simulatedNodes  = 25
	manyPods        = 5000
	manyCaptures    = 50
)

// Captures of simulated Pods. Their agents seem to run at once, capture nothing and answer no calls. So the test shows
// what the manager creates and writes, not what probes do.
func TestOpsCeilings(t *testing.T) {
	simulate(t)
	// Created first, because it takes minutes to fail.
	never := neverStarting(t)
	t.Run("endless", testEndless)
	t.Run("one capture of many Pods", testManyPods)
	t.Run("many captures at once", testManyCaptures)
	t.Run("Jobs that never start", func(t *testing.T) {
		cluster.AwaitFinal(t, never, 8*time.Minute)
		e := never.Status.Pods[0]
		if never.Status.Phase != sondev1.PhaseFailed || e.Reason != sondev1.ReasonNotStarted || !strings.Contains(e.Message, "Insufficient cpu") {
			t.Errorf("phase %s, entry %+v; want Failed, NotStarted and a message", never.Status.Phase, e)
		}
		cluster.DeleteNow(t, never)
		cluster.NothingLeft(t, string(never.UID))
	})
	for _, p := range cluster.ManagerPods(t) {
		if n := p.Status.ContainerStatuses[0].RestartCount; n != 0 {
			t.Errorf("%s was restarted %d times, want none: %+v", p.Name, n, p.Status.ContainerStatuses[0].LastTerminationState)
		}
	}
}

// simulate adds nodes to the cluster until the test ends, and restarts the managers.
func simulate(t *testing.T) {
	t.Helper()
	out, err := osexec.CommandContext(t.Context(), cluster.Command, "kwok", "--nodes", fmt.Sprint(simulatedNodes)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if err := cluster.Admin.DeleteAllOf(context.WithoutCancel(t.Context()), &corev1.Node{}, client.MatchingLabels{cluster.Simulated: "kwok"}); err != nil {
			t.Error(err)
		}
	})
	pods := cluster.ManagerPods(t)
	for i := range pods {
		cluster.DeleteNow(t, &pods[i])
		cluster.Gone(t, &pods[i], time.Minute)
	}
	cluster.AwaitManager(t.Context(), t)
}

// simulated creates a Deployment on simulated nodes.
func simulated(t *testing.T, ns string, replicas int32, selector map[string]string) {
	t.Helper()
	labels := map[string]string{"app": "fake"}
	spec := cluster.PodSpec("idle")
	spec.NodeSelector = selector
	spec.Tolerations = []corev1.Toleration{{Key: "kwok.x-k8s.io/node", Operator: corev1.TolerationOpExists}}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fake"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
	if err := cluster.Admin.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, 5*time.Minute, "simulated Pods ready", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.ReadyReplicas != replicas {
			return fmt.Errorf("%d of %d Pods are ready", d.Status.ReadyReplicas, replicas)
		}
		return nil
	})
}

// neverStarting creates a capture on a node that has no room for its agent.
func neverStarting(t *testing.T) *sondev1.PacketCapture {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	simulated(t, ns, 1, map[string]string{corev1.LabelHostname: "kwok-1"})
	full := []byte(`{"status":{"allocatable":{"cpu":"1m"},"capacity":{"cpu":"1m"}}}`)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kwok-1"}}
	if err := cluster.Admin.Status().Patch(t.Context(), node, client.RawPatch("application/merge-patch+json", full)); err != nil {
		t.Fatal(err)
	}
	return cluster.CreateCapture(t, ns, sondev1.PacketCaptureSpec{TargetDeployment: "fake", Duration: "1m"})
}

// A request above a ceiling is refused with a message that names the ceiling and who can raise it.
func testEndless(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	simulated(t, ns, 1, map[string]string{cluster.Simulated: "kwok"})
	for name, tc := range map[string]struct {
		spec sondev1.PacketCaptureSpec
		want []string
	}{
		"a day":       {spec: sondev1.PacketCaptureSpec{Duration: "24h"}, want: []string{"24h", "at most 4h0m0s", "--max-duration", "cluster admin"}},
		"a week":      {spec: sondev1.PacketCaptureSpec{Duration: "168h"}, want: []string{"24h"}},
		"a full disk": {spec: sondev1.PacketCaptureSpec{MaxBytes: 1 << 39}, want: []string{"at most 4294967296", "--max-bytes", "cluster admin"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.spec.TargetDeployment = "fake"
			err := cluster.Admin.Create(t.Context(), &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "cap-", Namespace: ns}, Spec: tc.spec})
			if err == nil {
				t.Fatal("accepted, want a refusal")
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("refused with %v, want %q in the message", err, w)
				}
			}
		})
	}
}

// 200 of 5,000 Pods are captured at a time, and the status stays small.
func testManyPods(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	simulated(t, ns, manyPods, map[string]string{cluster.Simulated: "kwok"})
	from := time.Now()
	pc := cluster.CreateCapture(t, ns, sondev1.PacketCaptureSpec{TargetDeployment: "fake", Duration: "5m", RetainFor: "10s"})
	cluster.Eventually(t, 3*time.Minute, "as many probes as the ceiling", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return err
		}
		if n := len(cluster.JobsOf(t, pc)); n < ceilingPods || pc.Status.Totals.Pods < ceilingPods {
			return fmt.Errorf("%d Jobs, totals %+v", n, pc.Status.Totals)
		}
		return nil
	})
	// Give the waiting Pods time for a few more passes, which come every five seconds.
	passes := time.NewTimer(20 * time.Second)
	defer passes.Stop()
	<-passes.C
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(pc), pc); err != nil {
		t.Fatal(err)
	}
	c := wantWaiting(t, pc, sondev1.ReasonCeilingPods, "--max-pods-per-capture")
	if !strings.Contains(c.Message, fmt.Sprintf("of %d Pods", manyPods)) {
		t.Errorf("condition %+v, want the number of Pods in the message", c)
	}
	made := cluster.JobsOf(t, pc)
	onNode := map[string]int{}
	for i := range made {
		onNode[made[i].Annotations[sondev1.AnnotationTargetNode]]++
	}
	for node, n := range onNode {
		if n > ceilingNode {
			t.Errorf("%d probes on node %s, want at most %d", n, node, ceilingNode)
		}
	}
	b, err := json.Marshal(pc)
	if err != nil {
		t.Fatal(err)
	}
	writes := cluster.ManagerWrites(t, from)
	byResource := map[string]int{}
	for _, w := range writes {
		byResource[w.Verb+" "+w.ObjectRef.Resource]++
	}
	t.Logf("%d Jobs on %d nodes, %d entries and %d omitted, %d bytes, writes %v", len(made), len(onNode), len(pc.Status.Pods), pc.Status.PodsOmitted, len(b), byResource)
	if len(made) != ceilingPods || len(pc.Status.Pods) > sondev1.MaxPodEntries || len(pc.Status.Pods)+int(pc.Status.PodsOmitted) != manyPods {
		t.Errorf("%d Jobs, %d entries, %d omitted; want %d, at most %d, and together %d", len(made), len(pc.Status.Pods), pc.Status.PodsOmitted, ceilingPods, sondev1.MaxPodEntries, manyPods)
	}
	if len(b) > cluster.MaxStatus {
		t.Errorf("the object has %d bytes, want at most %d", len(b), cluster.MaxStatus)
	}
	// At most a Job, a review and a status per Pod. The 4,800 waiting Pods must add no writes.
	if most := 4*ceilingPods + 100; len(writes) > most {
		t.Errorf("%d writes, want at most %d: %v", len(writes), most, byResource)
	}
	wantMemory(t)
	cluster.DeleteNow(t, pc)
	cluster.NothingLeft(t, string(pc.UID))
}

// wantWaiting asserts a condition that says what the capture waits for, which flag limits it, and who can change the
// flag.
func wantWaiting(t *testing.T, pc *sondev1.PacketCapture, reason, flag string) metav1.Condition {
	t.Helper()
	c := apimeta.FindStatusCondition(pc.Status.Conditions, sondev1.ConditionCapturing)
	if c == nil {
		t.Fatalf("no condition Capturing in %+v", pc.Status)
	}
	if c.Status != metav1.ConditionFalse || c.Reason != reason || !strings.Contains(c.Message, flag) || !strings.Contains(c.Message, "cluster admin") {
		t.Errorf("condition %+v, want False, %s, and a message with %s and who can raise it", *c, reason, flag)
	}
	return *c
}

// wantMemory asserts that the peak memory of each replica stays well below its limit.
func wantMemory(t *testing.T) {
	t.Helper()
	limit := cluster.Manager(t).Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
	pods := cluster.ManagerPods(t)
	for i := range pods {
		status := cluster.OnNode(t, pods[i].Spec.NodeName, "cat", "/proc/"+managerPID(t, &pods[i])+"/status")
		_, rest, _ := strings.Cut(status, "VmHWM:")
		var peak int64
		if _, err := fmt.Sscanf(rest, "%d kB", &peak); err != nil {
			t.Fatalf("read %q: %v", rest, err)
		}
		t.Logf("%s: %d MiB at its peak, of %d", pods[i].Name, peak>>10, limit>>20)
		if peak<<10 > limit*3/4 {
			t.Errorf("%s had %d kB, more than three quarters of its limit of %d bytes", pods[i].Name, peak, limit)
		}
	}
}

// 50 captures of real Pods are created at once. 20 of them run at a time, and all of them run in the end.
func testManyCaptures(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	var all []*sondev1.PacketCapture
	for range manyCaptures {
		all = append(all, cluster.CreateCapture(t, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10s", RetainFor: "10s"}))
	}
	reported, most := false, 0
	cluster.Eventually(t, 8*time.Minute, "all captures ended", func(ctx context.Context) error {
		var list sondev1.PacketCaptureList
		if err := cluster.Admin.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		begun, over := 0, 0
		for i := range list.Items {
			pc := &list.Items[i]
			c := apimeta.FindStatusCondition(pc.Status.Conditions, sondev1.ConditionCapturing)
			switch {
			case pc.Status.Phase.Final():
				over++
			case pc.Status.StartTime != nil:
				begun++
			case c != nil && c.Reason == sondev1.ReasonQueued && !reported:
				reported = true
				wantWaiting(t, pc, sondev1.ReasonQueued, "--max-captures-per-namespace")
			}
		}
		most = max(most, begun)
		if over < manyCaptures {
			return fmt.Errorf("%d ended, %d started", over, begun)
		}
		return nil
	})
	t.Logf("at most %d ran at the same time", most)
	// Passes run in parallel, so a few more captures may start at the same moment.
	if !reported || most > ceilingCaptures+4 {
		t.Errorf("at most %d captures ran at the same time, want about 20; waiting was reported: %t", most, reported)
	}
	for _, pc := range all {
		if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(pc), pc); err != nil {
			t.Fatal(err)
		}
		if pc.Status.Phase != sondev1.PhaseCompleted {
			t.Errorf("%s: phase %s, want Completed: %+v", pc.Name, pc.Status.Phase, pc.Status.Pods)
		}
	}
}
