//go:build faults

package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/test/cluster"
)

// judge waits until the Deployment's Pod runs, and returns how its gate ended and what became of the trace.
func (s *gateScene) judge(t *testing.T) string {
	t.Helper()
	was := s.pod.UID
	cluster.Eventually(t, gatePatience, "the Pod runs", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := cluster.Admin.List(ctx, &pods, client.InNamespace(s.ns)); err != nil {
			return err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.DeletionTimestamp == nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil {
				s.pod = p
				return nil
			}
		}
		return fmt.Errorf("%+v", pods.Items)
	})
	how := gateconfig.Outcome("no gate")
	if s.pod.UID != was {
		how = "Pod replaced"
	}
	if g := gateOf(s.pod); g != nil {
		how = endOfGate(t, g)
	}
	return fmt.Sprintf("%s, %s", how, s.endTrace(t, how))
}

// endOfGate returns how a gate ended according to its own message. However often the gate was started, it must not have
// waited longer than its timeout.
func endOfGate(t *testing.T, g *corev1.ContainerStatus) gateconfig.Outcome {
	t.Helper()
	for _, end := range []*corev1.ContainerStateTerminated{g.State.Terminated, g.LastTerminationState.Terminated} {
		if end != nil && end.FinishedAt.Sub(end.StartedAt.Time) > gateTime+gateSlack {
			t.Errorf("the gate waited from %s to %s, want at most %s", end.StartedAt, end.FinishedAt, gateTime)
		}
	}
	if g.State.Terminated == nil {
		t.Errorf("the Pod runs although its gate has not ended: %+v", g)
		return ""
	}
	how, waited, ok := gateconfig.ParseMessage(g.State.Terminated.Message)
	if !ok || waited > gateTime+time.Second {
		t.Errorf("the gate's message is %q after %s, want how it ended", g.State.Terminated.Message, waited)
	}
	return how
}

// endTrace stops the trace once the Pod is traced, or cannot be, and returns what became of it. Then nothing of it may
// be left in the kernel.
func (s *gateScene) endTrace(t *testing.T, how gateconfig.Outcome) string {
	t.Helper()
	entry, there := s.awaitEntry(t)
	if !there {
		return "no trace"
	}
	if gateOf(s.pod) != nil && entry.Gate.Outcome != sondev1.GateOutcome(how) {
		t.Errorf("the Pod's gate ended as %s, but the Trace says %+v", how, entry.Gate)
	}
	var traced []bpfID
	if entry.Phase == sondev1.PhaseCapturing {
		traced = bpfOf(t, awaitAgent(t, s.trace), tracersBPF)
	}
	if !s.trace.Status.Phase.Final() {
		cluster.Stop(t, s.trace)
	}
	awaitNoBPF(t, traced)
	return "the trace " + text(s.trace)
}

// awaitEntry reads the trace until its Pod is traced, or cannot be. It returns false if the trace is gone.
func (s *gateScene) awaitEntry(t *testing.T) (entry sondev1.PodResult, there bool) {
	t.Helper()
	cluster.Eventually(t, gatePatience, "the Pod traced, or not", func(ctx context.Context) error {
		err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(s.trace), s.trace)
		if apierrors.IsNotFound(err) {
			there = false
			return nil
		}
		if err != nil {
			return err
		}
		there = true
		for _, e := range s.trace.Status.Pods {
			reported := e.Gate != nil || gateOf(s.pod) == nil
			if e.UID == string(s.pod.UID) && reported && (e.Phase == sondev1.PhaseCapturing || e.Phase.Final()) {
				entry = e
				return nil
			}
		}
		return fmt.Errorf("%+v", s.trace.Status)
	})
	return entry, there
}

// remove deletes all objects of the scene and waits until the operator has none of them.
func (s *gateScene) remove(t *testing.T) {
	t.Helper()
	cluster.DeleteNow(t, s.trace.DeepCopy())
	cluster.DeleteNow(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}})
	cluster.NothingLeft(t, string(s.trace.UID))
}
