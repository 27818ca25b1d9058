//go:build e2e

package trace

import (
	"context"
	"fmt"
	osexec "os/exec"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// The operator is uninstalled for good. A Pod that waits at its gate starts at the latest when the gate's time is over.
// When the sandbox of a started Pod is created again, its gate runs again and passes when its time is over. With
// onTimeout Fail it passes when the Trace would have ended.
func TestGateUninstalled(t *testing.T) {
	proceeds := cluster.Deployment(t, cluster.Namespace(t, nil), "web", 1, "idle")
	fails := cluster.Deployment(t, cluster.Namespace(t, nil), "web", 1, "idle")
	waits := cluster.Deployment(t, cluster.Namespace(t, nil), "web", 1, "idle")
	cluster.GatedTrace(t, proceeds, sondev1.TraceGate{Timeout: "5s"})
	late := cluster.GatedTrace(t, waits, sondev1.TraceGate{Timeout: "90s"})
	// A gate refuses until a time that counts from the start of its trace.
	cluster.AwaitCapturing(t, cluster.GatedBy(t, fails, sondev1.TraceSpec{
		Duration: "2m", Events: []sondev1.TraceGroup{sondev1.TraceProcess}, Gate: &sondev1.TraceGate{Timeout: "5s", OnTimeout: sondev1.GateFail},
	}))
	passed := map[string]*corev1.Pod{"Proceed": &cluster.RestartPods(t, proceeds)[0], "Fail": &cluster.RestartPods(t, fails)[0]}
	cluster.SuspendJobs(t, sondev1.LabelUID, string(late.UID)) // nothing resumes them
	cluster.Restart(t, waits)
	waiting := gatedPod(t, waits, func(s *corev1.ContainerStatus) bool { return s.State.Running != nil })

	t.Cleanup(func() { cluster.Reinstall(t) })
	if out, err := osexec.CommandContext(t.Context(), cluster.InstallCommand, "--remove").CombinedOutput(); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	cluster.NoGateConfiguration(t)
	for name, p := range passed {
		if got := gateMessage(p); got != gateconfig.Opened {
			t.Errorf("%s: the gate ended by %s before", name, got)
		}
		killSandbox(t, p)
	}
	wantPasses(t, waiting, gateconfig.Untraced)
	wantPasses(t, passed["Proceed"], gateconfig.Untraced)
	wantPasses(t, passed["Fail"], gateconfig.Over)
	for _, p := range []*corev1.Pod{cluster.OnePod(t, proceeds, false), cluster.OnePod(t, fails, true)} {
		if err := cluster.Admin.Create(t.Context(), p, client.DryRunAll); err != nil || cluster.IsGated(p) {
			t.Errorf("a new Pod, labelled %v: got error %v, gated %t; want it accepted without a gate", p.Labels, err, cluster.IsGated(p))
		}
	}
}

// wantPasses waits until the latest run of a Pod's gate has let the Pod start.
func wantPasses(t *testing.T, p *corev1.Pod, want gateconfig.Outcome) {
	t.Helper()
	before := mainContainer(p)
	cluster.Eventually(t, 6*time.Minute, p.Name+" starts", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		now := mainContainer(p)
		if now == nil || now.State.Running == nil || before != nil && now.ContainerID == before.ContainerID {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	if got := gateMessage(p); got != want {
		t.Errorf("%s: the gate ended by %q, want %s", p.Name, got, want)
	}
}

// gateMessage returns the message in which the Pod's gate says how it ended; empty if there is none.
func gateMessage(p *corev1.Pod) gateconfig.Outcome {
	for _, s := range p.Status.InitContainerStatuses {
		if s.Name == gateconfig.ContainerName && s.State.Terminated != nil {
			outcome, _, _ := gateconfig.ParseMessage(s.State.Terminated.Message)
			return outcome
		}
	}
	return ""
}

// killSandbox kills the process that holds a Pod's namespaces. The kubelet then creates the sandbox again and reruns
// the init containers.
func killSandbox(t *testing.T, p *corev1.Pod) {
	t.Helper()
	cluster.KillProcess(t, p, "KILL", "/pause")
}
