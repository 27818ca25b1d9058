package capture

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

func newTrace(change ...func(*sondev1.Trace)) *sondev1.Trace {
	t := &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{Name: "tr", Namespace: "shop", UID: captureUID, Generation: 1, CreationTimestamp: metav1.NewTime(dawn)},
		Spec: sondev1.TraceSpec{
			JobID: "qwer", TargetDeployment: "web", Duration: "30m", RetainFor: "1h", MaxBytes: 1 << 30, Events: []sondev1.TraceGroup{sondev1.TraceFile},
			Gate: &sondev1.TraceGate{Enabled: true, Timeout: "30s", OnTimeout: sondev1.GateProceed},
		},
	}
	for _, c := range change {
		c(t)
	}
	return t
}

func (w *world) gating() string {
	w.t.Helper()
	c := apimeta.FindStatusCondition(w.trace().Status.Conditions, sondev1.ConditionGating)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// openGate lets the world settle, with a second settling as API servers have read the webhook configuration.
func (w *world) openGate() {
	w.t.Helper()
	w.settle()
	w.clock.Step(gateSettle)
	w.settle()
}

// gated is a Pod that waits at its gate: none of its containers runs.
func gated(state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{sondev1.AnnotationGatedByUID: string(captureUID)}
		p.CreationTimestamp = metav1.NewTime(dawn)
		p.Status.Phase, p.Status.StartTime = corev1.PodPending, &p.CreationTimestamp
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: gateconfig.ContainerName, State: state}}
	}
}

// gateID is the ID of the gate's container.
const gateID = "9a7e9a7e9a7e9a7e9a7e9a7e9a7e9a7e9a7e9a7e9a7e9a7e9a7e9a7e9a7e9a7e"

func gateMessage(o gateconfig.Outcome) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(o.ExitCode()), Message: gateconfig.Message(o, 1234*time.Millisecond),
		ContainerID: "containerd://" + gateID, FinishedAt: metav1.NewTime(dawn),
	}}
}

// exited is a gate whose message claims an outcome, with another exit code.
func exited(claim gateconfig.Outcome, code int32) corev1.ContainerState {
	state := gateMessage(claim)
	state.Terminated.ExitCode, state.Terminated.StartedAt = code, metav1.NewTime(dawn)
	return state
}

// withoutMessage is a gate that ended without a message.
func withoutMessage(reason string, started time.Time) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 255, Reason: reason, StartedAt: metav1.NewTime(started)}}
}

func awaits(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// TestGatedPodIsTracedBeforeItStarts checks that a Pod gets its Job as soon as it has a node. Only the probes of Pods that this
// Trace gates get the flag for the gate.
func TestGatedPodIsTracedBeforeItStarts(t *testing.T) {
	t.Parallel()
	other := func(p *corev1.Pod) {
		gated(awaits("PodInitializing"))(p)
		p.Annotations[sondev1.AnnotationGatedByUID] = "another"
	}
	objects := append(deployment("web-1"), webPod("web-2", gated(awaits("PodInitializing"))), webPod("web-3", other),
		webPod("web-4", gated(awaits("PodInitializing")), func(p *corev1.Pod) { p.Spec.NodeName = "" }))
	w := newWorld(t, newTrace(), objects...)
	w.openGate()
	got := map[string]bool{}
	for _, j := range w.jobs() {
		got[j.Name] = slices.Contains(j.Spec.Template.Spec.Containers[0].Args, agentjob.FlagGate)
	}
	if diff := cmp.Diff(map[string]bool{"web-1-qwer": false, "web-2-qwer": true, "web-3-qwer": false}, got); diff != "" {
		t.Errorf("Jobs, and whether their probes open a gate (-want +got):\n%s", diff)
	}
	if w.gating() != "True Gating" {
		t.Errorf("Gating is %q", w.gating())
	}
}

// TestPodThatPassedTheGate: a Pod that has started untraced while Gating was True makes the trace Incomplete, also if the webhook
// for new Pods failed open, so that the Pod has no gate.
func TestPodThatPassedTheGate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pod  func(*corev1.Pod)
		gate string // whose gate the probe says that it opened
		// want is the outcome of its gate, and wantPhase of the trace.
		want      sondev1.GateOutcome
		wantPhase sondev1.Phase
	}{
		"its gate opened":      {pod: gated(gateMessage(gateconfig.Opened)), gate: gateID, want: sondev1.GateOpened, wantPhase: sondev1.PhaseCompleted},
		"no tracer came":       {pod: gated(gateMessage(gateconfig.Untraced)), want: sondev1.GateUntraced, wantPhase: sondev1.PhaseIncomplete},
		"its gate says Over":   {pod: gated(gateMessage(gateconfig.Over)), want: sondev1.GateOver, wantPhase: sondev1.PhaseIncomplete},
		"forged: Refused":      {pod: gated(exited(gateconfig.Refused, 0)), want: sondev1.GateUntraced, wantPhase: sondev1.PhaseIncomplete},
		"forged: Ended":        {pod: gated(exited(gateconfig.Ended, 0)), want: sondev1.GateUntraced, wantPhase: sondev1.PhaseIncomplete},
		"no gate":              {want: sondev1.GateUntraced, wantPhase: sondev1.PhaseIncomplete},
		"a forged annotation":  {pod: func(p *corev1.Pod) { gated(corev1.ContainerState{})(p); p.Status.InitContainerStatuses = nil }, want: sondev1.GateUntraced, wantPhase: sondev1.PhaseIncomplete},
		"another Trace's gate": {pod: func(p *corev1.Pod) { p.Annotations = map[string]string{sondev1.AnnotationGatedByUID: "another"} }, want: sondev1.GateUntraced, wantPhase: sondev1.PhaseIncomplete},
		"created before Gating": {
			pod: func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(dawn) }, wantPhase: sondev1.PhaseCompleted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newTrace(func(t *sondev1.Trace) { t.Spec.Duration = "30" }), deployment("web-1")...)
			w.openGate()
			w.clock.Step(10 * time.Second)
			w.attachNew()
			w.settle()
			pod := webPod("web-2", func(p *corev1.Pod) {
				created := metav1.NewTime(w.clock.Now())
				p.CreationTimestamp = created
				if tc.pod != nil {
					tc.pod(p)
				}
				if name != "created before Gating" {
					p.CreationTimestamp = created
				}
				p.Status.Phase = corev1.PodRunning
			})
			w.add(pod)
			w.settle()
			w.attachNew()
			w.settle()
			w.clock.Step(40 * time.Second)
			ended := done(sondev1.ReasonDuration)
			ended.Gate = tc.gate
			w.agents(w.end(ended))
			w.settle()
			w.clock.Step(gateTail)
			w.settle()
			s := w.trace().Status
			e := s.Pods[slices.IndexFunc(s.Pods, func(e sondev1.PodResult) bool { return e.Name == pod.Name })]
			got := sondev1.GateOutcome("")
			if e.Gate != nil {
				got = e.Gate.Outcome
			}
			complete := apimeta.FindStatusCondition(s.Conditions, sondev1.ConditionComplete).Message
			if got != tc.want || s.Phase != tc.wantPhase {
				t.Errorf("gate %q, phase %s, want %q and %s; Complete: %s", got, s.Phase, tc.want, tc.wantPhase, complete)
			}
			if tc.wantPhase == sondev1.PhaseIncomplete && (e.Reason != sondev1.ReasonStartMissed || s.Totals.Incomplete != 1) {
				t.Errorf("entry %+v, Complete: %s", e, complete)
			}
		})
	}
}

// TestPodIsFoundLongAfterItsCreation: what a Pod was promised depends on when it was created, also if it waits for a node until Gating
// is no longer True, or True again.
func TestPodIsFoundLongAfterItsCreation(t *testing.T) {
	t.Parallel()
	const first, changed = 10 * time.Second, 30 * time.Second // when Gating first turned True, and when it last changed
	for name, tc := range map[string]struct {
		gating metav1.ConditionStatus
		after  time.Duration // dawn
		want   bool
	}{
		"True, before":              {metav1.ConditionTrue, first, false},
		"True, since":               {metav1.ConditionTrue, changed + time.Second, true},
		"True again, of the first":  {metav1.ConditionTrue, first + time.Second, true},
		"False, before":             {metav1.ConditionFalse, first, false},
		"False, while it was True":  {metav1.ConditionFalse, first + time.Second, true},
		"False, of the last second": {metav1.ConditionFalse, changed, true},
		"False, since":              {metav1.ConditionFalse, changed + time.Second, false},
		"Unknown, while it was":     {metav1.ConditionUnknown, first + time.Second, true},
		"Unknown, since":            {metav1.ConditionUnknown, changed + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			trace := newTrace()
			trace.Status.GatedFrom = new(metav1.NewTime(dawn.Add(first)))
			trace.Status.Conditions = []metav1.Condition{{Type: sondev1.ConditionGating, Status: tc.gating, LastTransitionTime: metav1.NewTime(dawn.Add(changed))}}
			pod := webPod("web-1", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(dawn.Add(tc.after)) })
			if got := ungated(trace, pod) != nil; got != tc.want {
				t.Errorf("untraced %t, want %t", got, tc.want)
			}
		})
	}
	w := newWorld(t, newTrace(), deployment("web-1")...)
	w.openGate()
	if at := w.trace().Status.GatedFrom; at == nil || !at.Equal(&gatingOf(w.trace()).LastTransitionTime) {
		t.Errorf("Gating is True from %v, want the condition's time", at)
	}
}

// TestGateResult checks that the end of a Pod's gate is in its entry.
func TestGateResult(t *testing.T) {
	t.Parallel()
	result := func(o sondev1.GateOutcome, ms int64) *sondev1.GateResult {
		return &sondev1.GateResult{Outcome: o, WaitedMilliseconds: ms}
	}
	tests := map[string]struct {
		state corev1.ContainerState
		after time.Duration
		want  *sondev1.GateResult
	}{
		"opened":                              {gateMessage(gateconfig.Opened), 0, result(sondev1.GateOpened, 1234)},
		"untraced":                            {gateMessage(gateconfig.Untraced), 0, result(sondev1.GateUntraced, 1234)},
		"refused":                             {gateMessage(gateconfig.Refused), 0, result(sondev1.GateRefused, 1234)},
		"over":                                {gateMessage(gateconfig.Over), 0, result(sondev1.GateOver, 1234)},
		"stopped":                             {gateMessage(gateconfig.Ended), 0, result(sondev1.GateEnded, 1234)},
		"no message of its own":               {corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "hello"}}, time.Minute, result(sondev1.GateUntraced, 0)},
		"refused, and it starts nevertheless": {exited(gateconfig.Refused, 0), time.Minute, result(sondev1.GateOpened, 1234)},
		"ended, and it starts nevertheless":   {exited(gateconfig.Ended, 0), time.Minute, result(sondev1.GateOpened, 1234)},
		"opened, and it does not start":       {exited(gateconfig.Opened, 1), time.Minute, nil},
		"over, and it does not start":         {exited(gateconfig.Over, 1), time.Minute, nil},
		"cannot be executed":                  {withoutMessage("StartError", time.Unix(0, 0)), 0, result(sondev1.GateNotStarted, 0)},
		"node rebooted":                       {withoutMessage("Unknown", dawn), time.Minute, nil},
		"crashes repeatedly":                  {awaits("CrashLoopBackOff"), 30 * time.Second, result(sondev1.GateNotStarted, 0)},
		"waits":                               {corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, time.Minute, nil},
		"starts":                              {awaits("PodInitializing"), time.Hour, nil},
		"no image yet":                        {awaits("ErrImagePull"), 29 * time.Second, nil},
		"no image":                            {awaits("ImagePullBackOff"), 30 * time.Second, result(sondev1.GateNotStarted, 0)},
		"refused by its node":                 {awaits("CreateContainerError"), 30 * time.Second, result(sondev1.GateNotStarted, 0)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod, opened := webPod("web-1", gated(tc.state)), &account.Account{State: account.StateCapturing, Gate: gateID}
			if diff := cmp.Diff(tc.want, observeGate(newTrace(), pod, opened, nil, dawn.Add(tc.after))); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if got := observeGate(newTrace(func(t *sondev1.Trace) { t.Spec.Gate = nil }), pod, opened, nil, dawn.Add(tc.after)); got != nil {
				t.Errorf("result without a gate: %v", got)
			}
			if got := observeGate(newTrace(), nil, opened, tc.want, dawn); got != tc.want {
				t.Errorf("result of a Pod that is gone: %v", got)
			}
		})
	}
	opened := result(sondev1.GateOpened, 1234)
	late := &account.Account{State: account.StateCapturing, Gate: gateID}
	if got := observeGate(newTrace(), webPod("web-1", gated(gateMessage(gateconfig.Opened))), late, result(sondev1.GateNotStarted, 0), dawn); !cmp.Equal(opened, got) {
		t.Errorf("gate that started late: %v", got)
	}
	failed := webPod("web-1", gated(withoutMessage("Error", dawn)), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	if diff := cmp.Diff(result(sondev1.GateNotStarted, 0), observeGate(newTrace(), failed, nil, nil, dawn)); diff != "" {
		t.Errorf("gate that is not restarted (-want +got):\n%s", diff)
	}
	for _, claim := range []gateconfig.Outcome{gateconfig.Refused, gateconfig.Ended} {
		pod := webPod("web-1", gated(exited(claim, 0)))
		if diff := cmp.Diff(result(sondev1.GateUntraced, 1234), observeGate(newTrace(), pod, &account.Account{State: account.StateDone}, nil, dawn)); diff != "" {
			t.Errorf("gate that claims %s, and that the probe has not opened (-want +got):\n%s", claim, diff)
		}
	}
	forged := webPod("web-1", gated(awaits("CrashLoopBackOff")))
	forged.Status.InitContainerStatuses[0].LastTerminationState = gateMessage(gateconfig.Opened)
	if got := observeGate(newTrace(), forged, nil, nil, dawn); got != nil {
		t.Errorf("gate that waits for its restart, and claims that it was opened: %v", got)
	}
	// The kubelet restarts a gate that refused its Pod, with growing delays. A manager that was away finds this state.
	again := webPod("web-1", gated(awaits("CrashLoopBackOff")))
	again.Status.InitContainerStatuses[0].LastTerminationState = gateMessage(gateconfig.Refused)
	if diff := cmp.Diff(result(sondev1.GateRefused, 1234), observeGate(newTrace(), again, nil, nil, dawn.Add(time.Hour))); diff != "" {
		t.Errorf("gate that waits for its restart (-want +got):\n%s", diff)
	}
}

// TestOpenedIsProved checks that a Pod counts as traced from its first instruction only by the word of its probe.
func TestOpenedIsProved(t *testing.T) {
	t.Parallel()
	result := func(o sondev1.GateOutcome) *sondev1.GateResult {
		return &sondev1.GateResult{Outcome: o, WaitedMilliseconds: 1234}
	}
	running := func(id string) *account.Account { return &account.Account{State: account.StateCapturing, Gate: id} }
	ended := func(id string) *account.Account { return &account.Account{State: account.StateDone, Gate: id} }
	for name, tc := range map[string]struct {
		acc    *account.Account
		id     string // of the gate in the Pod's status; gateID if empty
		before *sondev1.GateResult
		after  time.Duration
		want   *sondev1.GateResult
	}{
		"opened by the probe":          {acc: running(gateID), want: result(sondev1.GateOpened)},
		"not reported yet":             {acc: running("")},
		"not reported in time":         {acc: running(""), after: proofWait, want: result(sondev1.GateUntraced)},
		"not opened":                   {acc: ended(""), want: result(sondev1.GateUntraced)},
		"another container":            {acc: running("c0ffee"), after: proofWait, want: result(sondev1.GateUntraced)},
		"a container without an ID":    {acc: ended(""), id: "containerd://", want: result(sondev1.GateUntraced)},
		"no word of the probe":         {after: time.Hour},
		"no word of the probe, before": {before: result(sondev1.GateUntraced), after: time.Hour, want: result(sondev1.GateUntraced)},
		"reported late":                {acc: ended(gateID), before: result(sondev1.GateUntraced), want: result(sondev1.GateOpened)},
		"proved before":                {acc: running(""), before: result(sondev1.GateOpened), want: result(sondev1.GateOpened)},
		"proved at the end":            {acc: ended(gateID), before: result(sondev1.GateOpened), want: result(sondev1.GateOpened)},
		"a keeper's lie":               {acc: ended(""), before: result(sondev1.GateOpened), want: result(sondev1.GateUntraced)},
		"a keeper's other lie":         {acc: ended("c0ffee"), before: result(sondev1.GateOpened), want: result(sondev1.GateUntraced)},
	} {
		t.Run(name, func(t *testing.T) {
			state := gateMessage(gateconfig.Opened)
			if tc.id != "" {
				state.Terminated.ContainerID = tc.id
			}
			pod := webPod("web-1", gated(state))
			if diff := cmp.Diff(tc.want, observeGate(newTrace(), pod, tc.acc, tc.before, dawn.Add(tc.after))); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// TestForgedGate checks that the keeper is asked whether its probe opened a gate, in a running trace and at its end.
func TestForgedGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newTrace(), append(deployment(), webPod("web-1", gated(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})))...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.progress = account.Account{State: account.StateCapturing}
	w.update(webPod("web-1", gated(gateMessage(gateconfig.Opened)), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }))
	gate := func() *sondev1.GateResult { return w.trace().Status.Pods[0].Gate }
	if w.clock.Now().Before(dawn.Add(proofWait)) {
		if res := w.pass(); res.RequeueAfter > proofAgain {
			t.Errorf("next pass only after %v", res.RequeueAfter)
		}
		if got := gate(); got != nil {
			t.Errorf("gate %+v, want none before the probe could report it", got)
		}
		w.clock.Step(proofWait)
	}
	w.settle()
	if got := gate(); got == nil || got.Outcome != sondev1.GateUntraced {
		t.Errorf("gate %+v of a running trace, want Untraced", got)
	}
}

// TestKeepersWordOnTheGateIsChecked checks that the word of a running probe, which comes from its keeper, is compared with what the
// probe says when it has ended.
func TestKeepersWordOnTheGateIsChecked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		gate      string // whose gate the probe says that it opened
		gone      bool   // the Pod is gone when the probe ends
		want      sondev1.GateOutcome
		wantPhase sondev1.Phase
	}{
		"true":                          {gate: gateID, want: sondev1.GateOpened, wantPhase: sondev1.PhaseCompleted},
		"a lie":                         {want: sondev1.GateUntraced, wantPhase: sondev1.PhaseIncomplete},
		"true, and the Pod is gone":     {gate: gateID, gone: true, want: sondev1.GateOpened, wantPhase: sondev1.PhaseCompleted},
		"a lie, and the Pod is gone":    {gone: true, want: sondev1.GateUntraced, wantPhase: sondev1.PhaseIncomplete},
		"another container of the same": {gate: "c0ffee", want: sondev1.GateUntraced, wantPhase: sondev1.PhaseIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newTrace(), append(deployment(), webPod("web-1", gated(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})))...)
			w.settle()
			w.agents(w.attach)
			w.settle()
			w.progress = account.Account{State: account.StateDone, Gate: gateID}
			pod := webPod("web-1", gated(gateMessage(gateconfig.Opened)), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
			w.update(pod)
			w.settle()
			entry := func() sondev1.PodResult { return w.trace().Status.Pods[0] }
			if g := entry().Gate; g == nil || g.Outcome != sondev1.GateOpened {
				t.Fatalf("gate %+v by the keeper's word", g)
			}
			ended := done(sondev1.ReasonDuration)
			if ended.Gate = tc.gate; tc.gone {
				w.remove(pod)
				ended.Reason = sondev1.ReasonTargetGone
			}
			w.agents(w.end(ended))
			w.settle()
			if e := entry(); e.Gate.Outcome != tc.want || e.Phase != tc.wantPhase {
				t.Errorf("gate %s, entry %s %s", e.Gate.Outcome, e.Phase, e.Reason)
			}
		})
	}
}

// TestGateAtTheEnd checks that a trace that ends just after its probe has opened a gate ends with the gate's result, although the kubelet
// reports it later. If the kubelet reports nothing for a while, the trace ends without it.
func TestGateAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reported bool
		before   sondev1.Phase
	}{
		"reported":                    {true, sondev1.PhaseCapturing},
		"not reported":                {false, sondev1.PhaseCapturing},
		"attached between two passes": {true, sondev1.PhasePending},
	} {
		t.Run(name, func(t *testing.T) {
			reported := tc.reported
			w := newWorld(t, newTrace(), append(deployment(), webPod("web-1", gated(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})))...)
			w.settle()
			w.agents(w.attach)
			if tc.before == sondev1.PhaseCapturing {
				w.settle()
			}
			ended := done(sondev1.ReasonDuration)
			ended.Gate = gateID
			w.agents(w.end(ended))
			entry := func() sondev1.PodResult { return w.trace().Status.Pods[0] }
			if res := w.pass(); entry().Phase != tc.before || entry().Job == "" || res.RequeueAfter > proofAgain {
				t.Fatalf("entry %+v, next pass after %v; want that the gate's result is awaited", entry(), res.RequeueAfter)
			}
			if reported {
				w.update(webPod("web-1", gated(gateMessage(gateconfig.Opened)), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }))
			} else {
				w.clock.Step(time.Hour)
			}
			w.settle()
			if e := entry(); e.Phase != sondev1.PhaseCompleted || (e.Gate != nil) != reported {
				t.Errorf("entry %+v, gate %+v", e, e.Gate)
			}
		})
	}
}

// TestGateAfterThePodsTrace checks that a sandbox that is started again after the trace of its Pod does not change the result.
func TestGateAfterThePodsTrace(t *testing.T) {
	t.Parallel()
	running := func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }
	w := newWorld(t, newTrace(), append(deployment(), webPod("web-1", gated(gateMessage(gateconfig.Opened)), running))...)
	w.settle()
	w.agents(w.attach)
	w.progress = account.Account{State: account.StateCapturing, Gate: gateID}
	w.settle()
	ended := done(sondev1.ReasonEventLimit)
	ended.Gate = gateID
	w.agents(w.end(ended))
	w.settle()
	w.update(webPod("web-1", gated(gateMessage(gateconfig.Untraced)), running))
	w.settle()
	if e := w.trace().Status.Pods[0]; e.Phase != sondev1.PhaseCompleted || e.Gate.Outcome != sondev1.GateOpened || w.trace().Status.Phase.Final() {
		t.Errorf("entry %+v, gate %+v", e, e.Gate)
	}
}

func TestGateIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newTrace(), append(deployment(), webPod("web-1", gated(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})))...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.progress = account.Account{State: account.StateCapturing, Gate: gateID}
	w.update(webPod("web-1", gated(gateMessage(gateconfig.Opened)), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }))
	w.settle()
	want := &sondev1.GateResult{Outcome: sondev1.GateOpened, WaitedMilliseconds: 1234}
	if e := w.trace().Status.Pods[0]; !cmp.Equal(want, e.Gate) || e.Phase != sondev1.PhaseCapturing {
		t.Errorf("entry %+v, gate %+v", e, e.Gate)
	}
	if strings.Contains(w.sent(), sondev1.ReasonGateNotStarted) {
		t.Error("there is an Event for a gate that opened")
	}
}

// TestGateOfDeletedPod checks that the end of a gate is written before its Pod is gone, although counts are delayed.
func TestGateOfDeletedPod(t *testing.T) {
	t.Parallel()
	kept := func(p *corev1.Pod) { p.Finalizers = []string{"example.test/kept"} }
	objects := deployment()
	for i := range 3 * freePods {
		objects = append(objects, webPod(fmt.Sprintf("web-%d", i), kept, gated(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})))
	}
	w := newWorld(t, newTrace(), objects...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.progress = account.Account{State: account.StateCapturing, Gate: gateID}
	gateOf := func(name string) *sondev1.GateResult {
		pods := w.trace().Status.Pods
		return pods[slices.IndexFunc(pods, func(e sondev1.PodResult) bool { return e.Name == name })].Gate
	}
	pod := webPod("web-7", kept, gated(gateMessage(gateconfig.Opened)))
	w.update(pod)
	w.pass()
	if got := gateOf("web-7"); got != nil {
		t.Errorf("gate %+v, want none before the status is due", got)
	}
	if err := w.client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if got := gateOf("web-7"); got == nil || got.Outcome != sondev1.GateOpened {
		t.Errorf("gate of a Pod being deleted: %+v", got)
	}
}

// TestPodWhoseGateCannotStart checks that the status first says that no more Pods are gated, and then the Pod is evicted. A Pod
// without an owner stays, and so does a Pod that must not start untraced.
func TestPodWhoseGateCannotStart(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		trace       func(*sondev1.Trace)
		pod         func(*corev1.Pod)
		wantStays   bool
		wantGating  string
		wantNoEvent bool
	}{
		"replaced": {wantGating: "False GateNotStarted"},
		"without an owner": {pod: func(p *corev1.Pod) { p.OwnerReferences = nil }, trace: func(t *sondev1.Trace) {
			t.Spec.TargetDeployment = ""
			t.Spec.TargetRef = &sondev1.TargetReference{Kind: "Pod", Name: "web-1"}
		}, wantStays: true, wantGating: "False GateNotStarted"},
		"required":          {pod: func(p *corev1.Pod) { p.Labels = map[string]string{sondev1.LabelTraceRequired: "true"} }, wantStays: true, wantGating: "False GateNotStarted"},
		"Fail":              {trace: func(t *sondev1.Trace) { t.Spec.Gate.OnTimeout = sondev1.GateFail }, wantStays: true, wantGating: "True Gating"},
		"of another Trace":  {pod: func(p *corev1.Pod) { p.Annotations[sondev1.AnnotationGatedByUID] = "another" }, wantStays: true, wantGating: "True Gating", wantNoEvent: true},
		"it runs meanwhile": {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, wantStays: true, wantGating: "False GateNotStarted"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			trace, pod := newTrace(), webPod("web-1", gated(awaits("ErrImagePull")))
			if tc.trace != nil {
				tc.trace(trace)
			}
			if tc.pod != nil {
				tc.pod(pod)
			}
			w := newWorld(t, trace, append(deployment(), pod)...)
			res := w.settle()
			if res.RequeueAfter > 30*time.Second && !tc.wantNoEvent {
				t.Errorf("next pass only after %v", res.RequeueAfter)
			}
			w.clock.Step(30 * time.Second)
			w.writes = nil
			w.pass()
			if slices.Contains(w.writes, "eviction web-1") {
				t.Error("evicted before the status says why")
			}
			w.writes = nil
			w.pass()
			if evicted := slices.Contains(w.writes, "eviction web-1"); evicted == tc.wantStays {
				t.Errorf("evicted: %t; %v", evicted, w.writes)
			}
			w.settle()
			if got := w.gating(); got != tc.wantGating {
				t.Errorf("Gating is %q, want %q", got, tc.wantGating)
			}
			if sent := strings.Count(w.sent(), sondev1.ReasonGateNotStarted); (sent == 0) != tc.wantNoEvent || sent > 1 {
				t.Errorf("%d Events about the gate", sent)
			}
		})
	}
}

func TestGatingCondition(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*world, *sondev1.Trace)
		step   time.Duration
		want   string
	}{
		"it gates":       {want: "True Gating"},
		"no gate":        {change: func(_ *world, t *sondev1.Trace) { t.Spec.Gate = nil }},
		"disabled":       {change: func(_ *world, t *sondev1.Trace) { t.Spec.Gate.Enabled = false }},
		"stopped":        {change: func(_ *world, t *sondev1.Trace) { t.Spec.Stop = true }, want: "False Ended"},
		"not admitted":   {change: func(w *world, _ *sondev1.Trace) { w.deny["shop"] = "no" }, want: "False Ended"},
		"no follower":    {change: func(_ *world, t *sondev1.Trace) { t.Spec.FollowPods = new(false) }, want: "False NotFollowed"},
		"no target":      {change: func(_ *world, t *sondev1.Trace) { t.Spec.TargetDeployment = "none" }, want: "True Gating"},
		"and none comes": {change: func(_ *world, t *sondev1.Trace) { t.Spec.TargetDeployment = "none" }, step: targetTimeout, want: "False Ended"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			trace := newTrace()
			w := newWorld(t, trace, deployment("web-1")...)
			if tc.change != nil {
				tc.change(w, trace)
				if err := w.client.Delete(t.Context(), trace.DeepCopy()); err != nil {
					t.Fatal(err)
				}
				trace.ResourceVersion = ""
				w.add(trace)
			}
			w.openGate()
			w.clock.Step(tc.step)
			w.settle()
			w.clock.Step(gateTail)
			w.settle()
			if got := w.gating(); got != tc.want {
				t.Errorf("Gating is %q, want %q", got, tc.want)
			}
		})
	}
}

// TestTraceWithoutRoomForJobsGatesNothing checks that no Pod waits for a trace that can get no more Jobs.
func TestTraceWithoutRoomForJobsGatesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newTrace(), deployment("web-1")...)
	w.r.Ceilings = ceiling.Limits{PodsPerCapture: 1}
	w.openGate()
	if got := w.gating(); got != "True Gating" || len(w.jobs()) != 1 {
		t.Fatalf("Gating is %q, Jobs %v", got, w.jobNames())
	}
	full := other("a", time.Minute, begun, func(pc *sondev1.PacketCapture) { pc.Status.Totals.Pods = jobsFactor })
	w.add(full)
	if res := w.settle(); w.gating() != "False CeilingPods" || res.RequeueAfter > queueDelay {
		t.Errorf("Gating is %q, next pass after %s", w.gating(), res.RequeueAfter)
	}
	w.remove(full)
	w.clock.Step(queueDelay)
	w.openGate()
	if got := w.gating(); got != "True Gating" {
		t.Errorf("Gating is %q when there is room again", got)
	}
}

// TestQueuedTraceGatesNothing checks that no Pod waits for a trace that is queued itself.
func TestQueuedTraceGatesNothing(t *testing.T) {
	t.Parallel()
	first := newTrace(func(t *sondev1.Trace) {
		t.Name, t.UID, t.Spec.JobID, t.CreationTimestamp = "first", "first", "aaaa", metav1.NewTime(dawn.Add(-time.Minute))
		t.Status.StartTime, t.Status.Phase = &t.CreationTimestamp, sondev1.PhaseCapturing
	})
	w := newWorld(t, newTrace(), append(deployment("web-1"), first)...)
	w.r.Ceilings = ceiling.Limits{CapturesPerNamespace: 1}
	w.settle()
	if got := w.gating(); got != "False Queued" {
		t.Errorf("Gating is %q", got)
	}
}
