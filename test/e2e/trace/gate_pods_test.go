//go:build e2e

package trace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// gateOfPod waits until the Trace's status says how the gate of a Pod ended.
func gateOfPod(t *testing.T, tr *sondev1.Trace, uid string) sondev1.GateOutcome {
	t.Helper()
	var outcome sondev1.GateOutcome
	cluster.Eventually(t, time.Minute, "the gate's end in the status", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(tr), tr); err != nil {
			return err
		}
		for _, e := range tr.Status.Pods {
			if e.UID == uid && e.Gate != nil {
				outcome = e.Gate.Outcome
				return nil
			}
		}
		return fmt.Errorf("%+v", tr.Status.Pods)
	})
	return outcome
}

// Pods of many kinds start, each after its gate was opened.
func TestGateOfAllSortsOfPods(t *testing.T) {
	idle := cluster.PodSpec("idle").Containers[0]
	sorts := map[string]func(*corev1.PodSpec){
		"init": func(s *corev1.PodSpec) {
			c := idle
			c.Name, c.Args = "own", []string{"send", "-to", "127.0.0.1:9", "-run", "1", "-count", "1"} // which ends
			s.InitContainers = []corev1.Container{c}
		},
		"sidecar": func(s *corev1.PodSpec) {
			c := idle
			c.Name, c.RestartPolicy = "sidecar", new(corev1.ContainerRestartPolicyAlways)
			s.InitContainers = []corev1.Container{c}
		},
		"shared":   func(s *corev1.PodSpec) { s.ShareProcessNamespace = new(true) },
		"host-pid": func(s *corev1.PodSpec) { s.HostPID = true },
		"host-net": func(s *corev1.PodSpec) { s.HostNetwork = true },
		"nonroot": func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(12345))}
		},
		"root": func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))} },
		"readonly": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true)}
		},
		"small": func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(sorts)) {
		t.Run(name, func(t *testing.T) {
			d := cluster.Deployment(t, cluster.Namespace(t, nil), "web", 1, "idle")
			tr := cluster.GatedTrace(t, d, sondev1.TraceGate{})
			change(t, d, sorts[name])
			for _, p := range cluster.RestartPods(t, d) {
				if got := gateOfPod(t, tr, string(p.UID)); !cluster.IsGated(&p) || got != sondev1.GateOpened {
					t.Errorf("Pod %s, gated %t: %s", p.Name, cluster.IsGated(&p), got)
				}
			}
		})
	}
}

// change writes a new Pod template into a Deployment.
func change(t *testing.T, d *appsv1.Deployment, how func(*corev1.PodSpec)) {
	t.Helper()
	cluster.Eventually(t, 10*time.Second, "changed", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		how(&d.Spec.Template.Spec)
		return cluster.Admin.Update(ctx, d) // may conflict with the controller that writes the status
	})
}

// Without a tracer a Pod starts untraced when its gate's time is over. With onTimeout Fail it does not start, and says
// why.
func TestGateWithoutATracer(t *testing.T) {
	proceed, fail := cluster.Deployment(t, cluster.Namespace(t, nil), "web", 1, "idle"), cluster.Deployment(t, cluster.Namespace(t, nil), "web", 1, "idle")
	trProceed := cluster.GatedTrace(t, proceed, sondev1.TraceGate{Timeout: "3s"})
	trFail := cluster.GatedTrace(t, fail, sondev1.TraceGate{Timeout: "3s", OnTimeout: sondev1.GateFail})
	cluster.RefuseAgentPods(t)
	for _, p := range cluster.RestartPods(t, proceed) {
		if got := gateOfPod(t, trProceed, string(p.UID)); got != sondev1.GateUntraced {
			t.Errorf("onTimeout Proceed: the gate ended as %s", got)
		}
	}
	cluster.Restart(t, fail)
	waiting := gatedPod(t, fail, func(s *corev1.ContainerStatus) bool { return s.RestartCount > 0 })
	if got := gateOfPod(t, trFail, string(waiting.UID)); got != sondev1.GateRefused || waiting.Status.Phase != corev1.PodPending {
		t.Errorf("onTimeout Fail: the gate ended as %s, phase %s", got, waiting.Status.Phase)
	}
	last := waiting.Status.InitContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode != gateconfig.ExitRefused || !strings.Contains(last.Message, "must not start untraced") {
		t.Errorf("the gate ended by %+v, want the refusal of an untraced start", last)
	}
}

// gatedPod waits for a Pod of a Deployment whose gate satisfies a condition.
func gatedPod(t *testing.T, d *appsv1.Deployment, is func(*corev1.ContainerStatus) bool) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	cluster.Eventually(t, time.Minute, "a Pod at its gate", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := cluster.Admin.List(ctx, &pods, client.InNamespace(d.Namespace)); err != nil {
			return err
		}
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool {
			return cluster.IsGated(&p) && len(p.Status.InitContainerStatuses) > 0 && is(&p.Status.InitContainerStatuses[0])
		})
		if i < 0 {
			return fmt.Errorf("got %d Pods, none whose gate satisfies the condition", len(pods.Items))
		}
		found = &pods.Items[i]
		return nil
	})
	return found
}

// While the operator is down, Pods start. Those that must not start untraced are refused with a reason.
func TestGateWithoutTheOperator(t *testing.T) {
	d := cluster.Deployment(t, cluster.Namespace(t, nil), "web", 1, "idle")
	cluster.GatedTrace(t, d, sondev1.TraceGate{})
	cluster.StopManager(t)
	defer cluster.StartManager(t)
	if err := cluster.Admin.Create(t.Context(), cluster.OnePod(t, d, true)); err == nil || !strings.Contains(err.Error(), "trace-required") {
		t.Errorf("create a Pod that must not start untraced: got %v, want a refusal", err)
	}
	for _, p := range cluster.RestartPods(t, d) {
		if cluster.IsGated(&p) {
			t.Errorf("Pod %s has a gate, want none without the operator", p.Name)
		}
	}
}
