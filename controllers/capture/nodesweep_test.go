package capture

import (
	"errors"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// reported is the last account of a probe before it was killed.
func reported(engine string) account.Account {
	return account.Account{State: account.StateCapturing, Engine: engine, Started: dawn, Counts: account.Counts{Seen: 10, Packets: 10}}
}

// killed returns a change that kills probes after this last account; nil means none.
func (w *world) killed(a *account.Account) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		end := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error", FinishedAt: w.nodeNow()}
		if a != nil {
			b, err := a.Marshal()
			if err != nil {
				w.t.Fatal(err)
			}
			end.Message = string(b)
		}
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: end}
	}
}

// sweeps returns the arguments of the sweep Jobs.
func (w *world) sweeps() (all []string) {
	w.t.Helper()
	for _, job := range w.jobs() {
		if job.Labels["app.kubernetes.io/component"] == "sweep" {
			all = append(all, strings.Join(job.Spec.Template.Spec.Containers[0].Args, " "))
		}
	}
	return all
}

func withEngine(engine sondev1.CaptureEngine) func(*sondev1.PacketCapture) {
	return func(pc *sondev1.PacketCapture) { pc.Spec.Engine = engine }
}

// TestSweepAfterAKilledProbe checks that there is one sweep after each probe that may have left programs, and no other.
func TestSweepAfterAKilledProbe(t *testing.T) {
	t.Parallel()
	const pod, node = "sweep --pod-uid uid-web-1", "sweep --pod-uid uid-web-1 --host-network"
	ended := done(sondev1.ReasonDuration)
	ended.Engine = "clsact"
	cases := map[string]struct {
		engine   sondev1.CaptureEngine
		on       bool // the host network
		setup    func(*world)
		reported *account.Account
		target   func(*world) // changes the target
		want     []string
	}{
		"at clsact":              {engine: sondev1.EngineBPF, reported: new(reported("clsact")), want: []string{pod}},
		"at clsact, by auto":     {engine: sondev1.EngineAuto, reported: new(reported("clsact")), want: []string{pod}},
		"not known, by auto":     {engine: sondev1.EngineAuto, want: []string{pod}},
		"not attached, by bpf":   {engine: sondev1.EngineBPF, reported: &account.Account{State: account.StateStarting}, want: []string{pod}},
		"at tcx":                 {engine: sondev1.EngineAuto, reported: new(reported("tcx"))},
		"packet sockets":         {engine: sondev1.EngineAuto, reported: new(reported("afpacket"))},
		"not known, by afpacket": {engine: sondev1.EngineAFPacket},
		"ended, then killed":     {engine: sondev1.EngineBPF, reported: &ended},
		"on the host network":    {engine: sondev1.EngineBPF, on: true, reported: new(reported("clsact")), want: []string{node}},
		"the target is gone":     {engine: sondev1.EngineBPF, reported: new(reported("clsact")), target: (*world).removeTarget},
		"gone, host network":     {engine: sondev1.EngineBPF, on: true, reported: new(reported("clsact")), target: (*world).removeTarget, want: []string{node}},
		"no right to clsact":     {engine: sondev1.EngineBPF, setup: func(w *world) { w.r.Options.Privilege = privilege.Capabilities }},
		"created before":         {engine: sondev1.EngineBPF, setup: (*world).sweepExists, want: []string{pod}},
		"creation forbidden": {engine: sondev1.EngineBPF, setup: func(w *world) {
			w.createErr = refuseSweeps(apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("quota")))
		}},
		"no connection": {engine: sondev1.EngineBPF, setup: func(w *world) { w.createErr = refuseSweeps(errors.New("no connection")) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var change []func(*corev1.Pod)
			if tc.on {
				change = append(change, hostNetwork)
			}
			w := newWorld(t, newCapture(withEngine(tc.engine)), append(deployment(), webPod("web-1", change...))...)
			w.settle()
			w.agents(w.attach)
			w.settle()
			if tc.setup != nil {
				tc.setup(w)
			}
			if tc.target != nil {
				tc.target(w)
			}
			if tc.reported != nil {
				w.recounted = *tc.reported
			}
			w.agentOf("web-1-qwer", w.killed(tc.reported))
			w.settle()
			w.settle()
			if got := w.sweeps(); !slices.Equal(got, tc.want) {
				t.Errorf("sweeps %q, want %q", got, tc.want)
			}
			if e := w.capture().Status.Pods[0]; !e.Phase.Final() {
				t.Errorf("the Pod's capture is %s: it must not wait for a sweep", e.Phase)
			}
		})
	}
}

// TestSweepIsNoProbe checks that a sweep Job does not count as a probe, and stays when the capture is deleted.
func TestSweepIsNoProbe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(withEngine(sondev1.EngineBPF)), deployment("web-1")...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.recounted = reported("clsact")
	w.agentOf("web-1-qwer", w.killed(new(reported("clsact"))))
	w.settle()
	counts, err := w.r.jobsOn(t.Context(), "node-a", nil)
	if n := counts[placeOf{"node-a", sondev1.ReasonCeilingNode}]; len(n) != 0 || err != nil {
		t.Errorf("%v probes on the node, %v", n, err)
	}
	if s := w.capture().Status; len(s.Pods) != 1 {
		t.Errorf("entries %v", entries(s))
	}
	w.remove(w.capture())
	w.settle()
	if w.sweeps() == nil || len(w.jobs()) != 1 {
		t.Errorf("left: %v, sweeps %q", w.jobNames(), w.sweeps())
	}
	if err := w.r.Sweeper.All(t.Context()); err != nil || w.sweeps() == nil {
		t.Errorf("after a sweep of all captures: %v, sweeps %q", err, w.sweeps())
	}
}

// TestNoSweepForALostNode checks that there is no sweep on a lost node: its kernel is gone, or the probe still runs.
func TestNoSweepForALostNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(withEngine(sondev1.EngineBPF)), deployment("web-1")...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.agentOf("web-1-qwer", func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodFailed, nil })
	w.settle() // node-a does not exist
	if e := w.capture().Status.Pods[0]; e.Reason != sondev1.ReasonNodeLost || w.sweeps() != nil {
		t.Errorf("%s %s, sweeps %q", e.Phase, e.Reason, w.sweeps())
	}
}

// TestSweepWhereTheAgentVanished checks that there is a sweep after an agent's Pod was deleted by force.
func TestSweepWhereTheAgentVanished(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(withEngine(sondev1.EngineAuto)), append(deployment("web-1"), readyNode("node-a"))...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1-qwer-x", Namespace: operatorNamespace}})
	w.settle()
	if e := w.capture().Status.Pods[0]; e.Reason != sondev1.ReasonDrained || len(w.sweeps()) != 1 {
		t.Errorf("%s %s, sweeps %q", e.Phase, e.Reason, w.sweeps())
	}
}

func readyNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
}

// agentOf changes the Pod of one Job.
func (w *world) agentOf(job string, change func(*corev1.Pod)) {
	w.t.Helper()
	var pod corev1.Pod
	w.get(client.ObjectKey{Namespace: operatorNamespace, Name: job + "-x"}, &pod)
	change(&pod)
	w.update(&pod)
}

func (w *world) removeTarget() {
	w.t.Helper()
	w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop"}})
}

func (w *world) sweepExists() {
	w.t.Helper()
	w.add(agentjob.Sweep(w.r.Options, w.capture(), agentjob.SweepPlan{Name: naming.Sweep("uid-web-1", captureUID), UID: "uid-web-1"}))
}

// refuseSweeps fails the creation of sweep Jobs only.
func refuseSweeps(err error) func(client.Object) error {
	return func(o client.Object) error {
		if job, ok := o.(*batchv1.Job); ok && job.Labels["app.kubernetes.io/component"] == "sweep" {
			return err
		}
		return nil
	}
}
