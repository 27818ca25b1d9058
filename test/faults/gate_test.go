//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/test/cluster"
)

const (
	// gateTime is how long Pods wait.
	gateTime = 20 * time.Second
	// gateSlack is the additional lifetime of a gate: to start, to end, and because the kubelet's times are whole
	// seconds.
	gateSlack = 5 * time.Second
	// gatePatience is the timeout until a Pod runs and its trace has its result. Kubernetes retries the Pods of Jobs,
	// and failed containers, after longer and longer pauses.
	gatePatience = 3 * time.Minute
	gatedName    = "gated"
)

// gateScene is the target of one fault: a Pod that waits at its gate.
type gateScene struct {
	ns         string
	deployment *appsv1.Deployment
	trace      *sondev1.Trace
	pod        *corev1.Pod
	agent      *corev1.Pod // nil if no agent can come
	quota      *corev1.ResourceQuota
}

// TestGates injects every fault that may hit while a Pod waits at its gate. No Pod ever waits longer than its gate's
// timeout, and nothing is left behind. SONDE_GATES_TABLE=FILE writes the results there as the table of
// docs/reliability.md.
func TestGates(t *testing.T) {
	found := map[string]string{}
	awaitOldLogsGone(t)
	before := steadySnapshot(t)
	for _, r := range gateRows {
		t.Run(r.name, func(t *testing.T) { found[r.name] = r.run(t) })
	}
	awaitSnapshot(t, before)
	if file := os.Getenv("SONDE_GATES_TABLE"); file != "" && len(found) == len(gateRows) {
		if err := os.WriteFile(file, []byte(gateTable(found)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (r gateRow) run(t *testing.T) string {
	t.Helper()
	began := time.Now()
	s := &gateScene{ns: cluster.Namespace(t, nil)}
	s.prepare(t, r)
	if r.noProbe {
		s.quota = quotaOfNone(t)
	}
	caught := func() {}
	if !r.noProbe && !r.unscheduled {
		caught = catchProbe(t)
	}
	cluster.Scale(t, s.deployment, 1)
	s.awaitPod(t, r.unscheduled)
	if !r.noProbe && !r.unscheduled {
		caught()
		s.agent = awaitAgent(t, s.trace)
		if len(processesOf(t, hurt, s.gateID())) == 0 {
			t.Fatal("the gate opened before the test could stop its probe: run this test on a less busy machine")
		}
	}
	t.Logf("staged after %s", time.Since(began).Round(time.Second))
	r.fault(t, s)
	got := s.judge(t)
	t.Logf("%s, after %s", got, time.Since(began).Round(time.Second))
	if !slices.Contains(r.want, got) {
		t.Errorf("%s, want %v", got, r.want)
	}
	s.remove(t)
	if others := slices.DeleteFunc(slices.Clone(r.want), func(w string) bool { return w == got }); len(others) > 0 {
		got += " (or " + strings.Join(others, ", or ") + ")"
	}
	return got
}

// prepare creates a Deployment without Pods and a Trace that gates it. It returns when the API server calls the
// webhook.
func (s *gateScene) prepare(t *testing.T, r gateRow) {
	t.Helper()
	labels := map[string]string{"app": gatedName}
	spec := cluster.PodSpec("idle")
	spec.NodeSelector = map[string]string{corev1.LabelHostname: hurt}
	if r.unscheduled {
		spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "sonde.test/hold"}}
	}
	s.deployment = &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: gatedName},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
	s.trace = &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: gatedName},
		Spec: sondev1.TraceSpec{
			TargetDeployment: gatedName, Duration: "1h", RetainFor: "10m", Events: []sondev1.TraceGroup{sondev1.TraceProcess},
			Gate: &sondev1.TraceGate{Enabled: true, Timeout: gateTime.String(), OnTimeout: r.onTimeout},
		},
	}
	if err := cluster.Admin.Create(t.Context(), s.deployment); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, time.Minute, "trace created", func(ctx context.Context) error { return cluster.Admin.Create(ctx, s.trace) })
	cluster.Eventually(t, time.Minute, "gate on new Pods", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(s.trace), s.trace); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(s.trace.Status.Conditions, sondev1.ConditionGating) {
			return fmt.Errorf("conditions %+v", s.trace.Status.Conditions)
		}
		var sets appsv1.ReplicaSetList
		if err := cluster.Admin.List(ctx, &sets, client.InNamespace(s.ns)); err != nil || len(sets.Items) == 0 {
			return fmt.Errorf("%d ReplicaSets: %w", len(sets.Items), err)
		}
		// A dry run shows whether the API server calls the webhook yet.
		owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: sets.Items[0].Name, UID: sets.Items[0].UID, Controller: new(true)}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, GenerateName: "dry-", OwnerReferences: []metav1.OwnerReference{owner}}, Spec: cluster.PodSpec("idle")}
		if err := cluster.Admin.Create(ctx, p, client.DryRunAll); err != nil {
			return err
		}
		if len(p.Spec.InitContainers) == 0 || p.Spec.InitContainers[0].Name != gateconfig.ContainerName {
			return errors.New("a dry run has no gate")
		}
		return nil
	})
}

// awaitPod waits until the Pod waits at its gate or, if a fault stops it earlier, exists.
func (s *gateScene) awaitPod(t *testing.T, unscheduled bool) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "a Pod at its gate", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := cluster.Admin.List(ctx, &pods, client.InNamespace(s.ns)); err != nil || len(pods.Items) != 1 {
			return fmt.Errorf("%d Pods: %w", len(pods.Items), err)
		}
		s.pod = &pods.Items[0]
		if g := gateOf(s.pod); !unscheduled && (g == nil || g.State.Running == nil) {
			return fmt.Errorf("%+v", s.pod.Status)
		}
		return nil
	})
}

// catchProbe stops the first probe of a gated Pod as soon as its process exists: the probe needs at least a tenth of a
// second to attach. The returned function waits until that has happened.
func catchProbe(t *testing.T) func() {
	t.Helper()
	const catch = `until p=$(pgrep -f '^/agent probe .*--gate'); do :; done; kill -STOP $p`
	cmd := osexec.CommandContext(t.Context(), cluster.Command, "node-exec", hurt, "--", "timeout", "60", "sh", "-c", catch)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("no probe could be stopped: %v\n%s", err, said.String())
		}
	}
}

func (s *gateScene) letProbeGo(t *testing.T) {
	t.Helper()
	signalContainer(t, s.agent, probe, "CONT")
}

// schedule lets the Pod have a node.
func (s *gateScene) schedule(t *testing.T) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"schedulingGates":null}}`))
	if err := cluster.Admin.Patch(t.Context(), s.pod.DeepCopy(), patch); err != nil {
		t.Fatal(err)
	}
}

// gateOf returns the status of a Pod's gate, or nil before the kubelet has reported it.
func gateOf(p *corev1.Pod) *corev1.ContainerStatus {
	i := slices.IndexFunc(p.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == gateconfig.ContainerName })
	if i < 0 {
		return nil
	}
	return &p.Status.InitContainerStatuses[i]
}

func (s *gateScene) gateID() string {
	return strings.TrimPrefix(gateOf(s.pod).ContainerID, "containerd://")
}

// awaitGate reads the Pod until its gate satisfies a condition.
func (s *gateScene) awaitGate(t *testing.T, what string, is func(*corev1.ContainerStatus) bool) {
	t.Helper()
	cluster.Eventually(t, gateTime+time.Minute, what, func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(s.pod), s.pod); err != nil {
			return err
		}
		if g := gateOf(s.pod); g == nil || !is(g) {
			return fmt.Errorf("%+v", s.pod.Status)
		}
		return nil
	})
}

// awaitGateEnd waits until the gate has ended.
func (s *gateScene) awaitGateEnd(t *testing.T) {
	t.Helper()
	s.awaitGate(t, "the gate has ended", func(g *corev1.ContainerStatus) bool { return g.State.Terminated != nil })
}

func gateTable(found map[string]string) string {
	var out strings.Builder
	out.WriteString("| what happens while a Pod waits | its gate | the trace |\n|---|---|---|\n")
	for _, r := range gateRows {
		gate, trace, _ := strings.Cut(found[r.name], ", ")
		fmt.Fprintf(&out, "| %s | %s | %s |\n", r.name, gate, strings.TrimPrefix(trace, "the trace "))
	}
	return out.String()
}
