//go:build faults

package faults

import (
	"context"
	"fmt"
	osexec "os/exec"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/test/cluster"
)

// gateRow is one fault while a Pod waits at its gate.
type gateRow struct {
	name string
	// onTimeout of the gate; empty means Proceed.
	onTimeout sondev1.GateOnTimeout
	// unscheduled Pods get no node until the fault allows it, so their Job does not exist yet. All other Pods wait
	// because their probe is stopped (SIGSTOP) before it attaches, or does not come.
	unscheduled bool
	// noProbe says that no probe can come.
	noProbe bool
	// fault injects the fault. When it returns, the stopped parts are back, and nothing holds the Pod any more.
	fault func(*testing.T, *gateScene)
	// want lists the accepted results: how the Pod's gate ends, and what becomes of the trace.
	want []string
}

const (
	gateOpened   = "Opened, the trace Completed (Stopped), file"
	gateUntraced = "Untraced"
)

// gateRows are the promised matrix of gates.
var gateRows = []gateRow{
	{name: "nothing", fault: nothing, want: []string{gateOpened}},
	{name: "probe killed (SIGKILL)", fault: gateProbeKilled, want: []string{gateUntraced + ", the trace Failed (Killed)"}},
	{name: "agent's Job deleted", fault: gateJobDeleted, want: []string{gateUntraced + ", the trace Failed (Drained)"}},
	{name: "probe's Pod cannot be made (quota)", noProbe: true, fault: quotaLifted, want: []string{gateUntraced + ", the trace Incomplete (StartMissed), file"}},
	{name: "Trace deleted", fault: gateTraceDeleted, want: []string{gateUntraced + ", no trace"}},
	{name: "manager killed (SIGKILL, both replicas)", fault: gateManagersKilled, want: []string{gateOpened}},
	{name: "manager away before the Job is made", unscheduled: true, fault: gateManagersAway, want: []string{gateUntraced + ", the trace Incomplete (StartMissed), file"}},
	{
		name: "manager away before the Job is made, `onTimeout: Fail`: refused until it is back", unscheduled: true, onTimeout: sondev1.GateFail,
		fault: gateManagersAwayRefused, want: []string{gateOpened},
	},
	{name: "API server killed, away for longer than the gate's time; the probe comes meanwhile", fault: gateWithoutAPI, want: []string{gateOpened}},
	{name: "kubelet hangs, the probe comes meanwhile; killed, and comes back", fault: gateWithoutKubelet(false), want: []string{gateOpened}},
	{name: "kubelet hangs and the probe is killed; kubelet killed, and comes back", fault: gateWithoutKubelet(true), want: []string{gateUntraced + ", the trace Failed (Killed)"}},
	{name: "node reboots (all its processes killed, back at once)", fault: gateNodeReboots, want: []string{gateUntraced + ", the trace Failed (NodeLost)"}},
}

func nothing(t *testing.T, s *gateScene) {
	t.Helper()
	s.letProbeGo(t)
}

func gateProbeKilled(t *testing.T, s *gateScene) {
	t.Helper()
	signalContainer(t, s.agent, probe, "KILL")
}

func gateJobDeleted(t *testing.T, s *gateScene) {
	t.Helper()
	cluster.DeleteNow(t, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: s.agent.Labels[batchv1.JobNameLabel]}})
}

// quotaLifted waits until the gate has given up, and then lets the probe come.
func quotaLifted(t *testing.T, s *gateScene) {
	t.Helper()
	s.awaitGateEnd(t)
	cluster.DeleteNow(t, s.quota)
}

func gateTraceDeleted(t *testing.T, s *gateScene) {
	t.Helper()
	cluster.DeleteNow(t, s.trace.DeepCopy())
	cluster.NothingLeft(t, string(s.trace.UID))
}

func gateManagersKilled(t *testing.T, s *gateScene) {
	t.Helper()
	for _, p := range managers(t) {
		signalContainer(t, &p, "manager", "KILL")
	}
	s.letProbeGo(t)
}

func gateManagersAway(t *testing.T, s *gateScene) {
	t.Helper()
	scaleManager(t, 0)
	s.schedule(t)
	s.awaitGateEnd(t)
	scaleManager(t, 2)
}

// gateManagersAwayRefused makes the gate refuse its Pod once before a manager is back.
func gateManagersAwayRefused(t *testing.T, s *gateScene) {
	t.Helper()
	scaleManager(t, 0)
	s.schedule(t)
	s.awaitGate(t, "the gate has refused once", func(g *corev1.ContainerStatus) bool {
		return refused(g.State.Terminated) || refused(g.LastTerminationState.Terminated)
	})
	scaleManager(t, 2)
}

func refused(end *corev1.ContainerStateTerminated) bool {
	return end != nil && end.ExitCode == gateconfig.ExitRefused
}

func gateWithoutAPI(t *testing.T, s *gateScene) {
	t.Helper()
	cluster.Machine(t, "api-stop")
	t.Cleanup(func() { _ = osexec.Command(cluster.Command, "api-start").Run() })
	s.letProbeGo(t)
	time.Sleep(gateTime + 5*time.Second) // the time that the row names; there is no condition to await
	cluster.Machine(t, "api-start")
}

// gateWithoutKubelet makes the gate end, because of its probe or its timeout, while the kubelet cannot start the next
// container.
func gateWithoutKubelet(killed bool) func(*testing.T, *gateScene) {
	return func(t *testing.T, s *gateScene) {
		t.Helper()
		cluster.OnNode(t, hurt, "sh", "-c", "kill -STOP $(pidof kubelet)")
		defer cluster.OnNode(t, hurt, "sh", "-c", "kill -KILL $(pidof kubelet)")
		if killed {
			signalContainer(t, s.agent, probe, "KILL")
		} else {
			s.letProbeGo(t)
		}
		id := s.gateID()
		cluster.Eventually(t, gateTime+gateSlack, "the gate ended while the kubelet was away", func(context.Context) error {
			if left := processesOf(t, hurt, id); len(left) > 0 {
				return fmt.Errorf("processes %v still run", left)
			}
			return nil
		})
	}
}

// gateNodeReboots makes the kubelet create the Pod's sandbox and gate again; the probe does not know this gate.
func gateNodeReboots(t *testing.T, _ *gateScene) {
	t.Helper()
	cluster.Machine(t, "node-stop", hurt)
	t.Cleanup(func() { _ = osexec.Command(cluster.Command, "node-start", hurt).Run() })
	cluster.Machine(t, "node-start", hurt)
}

// quotaOfNone makes the API server refuse the Pods of agents.
func quotaOfNone(t *testing.T) *corev1.ResourceQuota {
	t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	if err := cluster.Admin.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), quota) })
	cluster.Eventually(t, 30*time.Second, "quota in force", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if len(quota.Status.Hard) == 0 {
			return fmt.Errorf("%+v", quota.Status)
		}
		return nil
	})
	return quota
}
