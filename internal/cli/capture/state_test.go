package capture

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func running(pods ...v1alpha1.PodResult) *v1alpha1.PacketCapture {
	pc := &v1alpha1.PacketCapture{}
	pc.Namespace, pc.Name = "shop", "web-x7k2p"
	target := web
	pc.Spec = v1alpha1.PacketCaptureSpec{TargetRef: &target, Duration: "30s"}
	start := metav1.NewTime(noon)
	pc.Status = v1alpha1.CaptureStatus{Phase: v1alpha1.PhaseCapturing, Target: "Deployment/web", StartTime: &start, Pods: pods}
	return pc
}

func packetsOf(s *State) *v1alpha1.PacketCapture {
	return s.Capture.(*v1alpha1.PacketCapture)
}

func counts(seen, packets int64) *account.Account {
	return &account.Account{State: account.StateCapturing, Counts: account.Counts{
		Seen: seen, Packets: packets, Bytes: 100 * packets, DroppedRing: seen - packets,
	}}
}

func TestPodsTakeTheNewerCounts(t *testing.T) {
	status := v1alpha1.PodResult{UID: "u1", Name: "web-1", Node: "n1", Phase: v1alpha1.PhaseCapturing}
	ended := v1alpha1.PodResult{
		UID: "u1", Name: "web-1", Node: "n1", Phase: v1alpha1.PhaseIncomplete, Reason: v1alpha1.ReasonKilled, Packets: 5,
		Files: []v1alpha1.ResultFile{{Name: "web-1-qwer.pcapng", Bytes: 500}},
	}
	live := results.Update{Pod: "web-1", UID: "u1", Node: "n1", Phase: v1alpha1.PhaseCapturing, Account: counts(10, 9)}
	unreachable := results.Update{Pod: "web-1", UID: "u1", Node: "n1", Phase: v1alpha1.PhaseCapturing, Error: "no answer"}
	done := results.Update{Pod: "web-0", UID: "u0", Node: "n1", Phase: v1alpha1.PhaseCompleted, Account: counts(3, 3)}
	done.Account.State, done.Account.Reason = account.StateDone, v1alpha1.ReasonDuration
	done.Account.Files = []account.File{{Name: "web-0-qwer.pcapng", Bytes: 300}}

	attaching := status
	attaching.Phase, attaching.Reason = v1alpha1.PhasePending, v1alpha1.ReasonPending

	withLive := status
	withLive.Packets, withLive.Bytes, withLive.Dropped.Ring = 9, 900, 1
	tests := map[string]struct {
		status  []v1alpha1.PodResult
		updates []results.Update
		want    []v1alpha1.PodResult
	}{
		"status alone":                        {status: []v1alpha1.PodResult{status}, want: []v1alpha1.PodResult{status}},
		"live counts over the status":         {status: []v1alpha1.PodResult{status}, updates: []results.Update{live}, want: []v1alpha1.PodResult{withLive}},
		"a reason of an old phase is dropped": {status: []v1alpha1.PodResult{attaching}, updates: []results.Update{live}, want: []v1alpha1.PodResult{withLive}},
		"the last counts stay":                {status: []v1alpha1.PodResult{status}, updates: []results.Update{live, unreachable}, want: []v1alpha1.PodResult{withLive}},
		"a status that is final is the truth": {status: []v1alpha1.PodResult{ended}, updates: []results.Update{live}, want: []v1alpha1.PodResult{ended}},
		"Pods that the status does not list": {status: []v1alpha1.PodResult{status}, updates: []results.Update{done}, want: []v1alpha1.PodResult{
			{
				UID: "u0", Name: "web-0", Node: "n1", Phase: v1alpha1.PhaseCompleted, Reason: v1alpha1.ReasonDuration, Packets: 3, Bytes: 300,
				Files: []v1alpha1.ResultFile{{Name: "web-0-qwer.pcapng", Bytes: 300}},
			},
			status,
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := NewState(running(tc.status...), noon)
			for _, u := range tc.updates {
				s.Update(u)
			}
			if diff := cmp.Diff(tc.want, s.Pods()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The counts of a trace are counts of events.
func TestStateOfATrace(t *testing.T) {
	target := web
	trace := &v1alpha1.Trace{Spec: v1alpha1.TraceSpec{TargetRef: &target}}
	trace.Namespace, trace.Name = "shop", "web-x7k2p"
	start := metav1.NewTime(noon)
	trace.Status = v1alpha1.CaptureStatus{Phase: v1alpha1.PhaseCapturing, StartTime: &start, Pods: []v1alpha1.PodResult{
		{UID: "u1", Name: "web-1", Node: "n1", Phase: v1alpha1.PhaseCapturing, Events: 3, Bytes: 300, Lost: map[string]int64{"ring": 1}},
	}}
	s := NewState(trace, noon)
	update := func(events, bytes int64, lost map[string]int64) {
		a := &account.Account{State: account.StateCapturing, Events: events, Lost: lost}
		a.Bytes, a.Seen = bytes, events+a.LostEvents()
		s.Update(results.Update{Pod: "web-1", UID: "u1", Node: "n1", Phase: v1alpha1.PhaseCapturing, Account: a})
	}
	row := live.Pod{Name: "web-1", Node: "n1", State: "Capturing"}
	for _, tc := range []struct {
		events, bytes, lost, wantEvents, wantBytes, wantLost int64
	}{
		{2, 200, 0, 3, 300, 1}, // older than the status
		{7, 700, 2, 7, 700, 2},
	} {
		update(tc.events, tc.bytes, map[string]int64{"writer": tc.lost})
		row.Count, row.Bytes, row.Lost = tc.wantEvents, tc.wantBytes, tc.wantLost
		// Without a duration there is no clock.
		want := live.View{Title: "shop/web-x7k2p (Deployment/web)", Status: "Capturing", Unit: live.Events, Pods: []live.Pod{row}}
		if diff := cmp.Diff(want, s.View(noon.Add(time.Minute))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func TestView(t *testing.T) {
	pod := v1alpha1.PodResult{UID: "u1", Name: "web-1", Node: "n1", Phase: v1alpha1.PhaseCapturing, Packets: 2, Bytes: 200}
	row := live.Pod{Name: "web-1", Node: "n1", State: "Capturing", Count: 2, Bytes: 200}
	tests := map[string]struct {
		change func(s *State)
		after  time.Duration
		want   live.View
	}{
		"capturing": {
			after: 12500 * time.Millisecond,
			want:  live.View{Title: "shop/web-x7k2p (Deployment/web)", Status: "Capturing", Clock: "12s of 30s", Pods: []live.Pod{row}},
		},
		"the clock starts when a probe is attached": {
			change: func(s *State) {
				packetsOf(s).Spec.Duration = "1h"
				a := counts(2, 2)
				a.Started = noon.Add(5 * time.Second)
				s.Update(results.Update{Pod: "web-1", UID: "u1", Phase: v1alpha1.PhaseCapturing, Account: a})
			},
			after: 65 * time.Second,
			want:  live.View{Title: "shop/web-x7k2p (Deployment/web)", Status: "Capturing", Clock: "1m of 1h", Pods: []live.Pod{row}},
		},
		"a slow clock": {
			after: -time.Hour,
			want:  live.View{Title: "shop/web-x7k2p (Deployment/web)", Status: "Capturing", Clock: "0s of 30s", Pods: []live.Pod{row}},
		},
		"stopping": {
			change: func(s *State) { packetsOf(s).Spec.Stop = true },
			after:  time.Hour,
			want:   live.View{Title: "shop/web-x7k2p (Deployment/web)", Status: "Stopping", Clock: "30s of 30s", Pods: []live.Pod{row}},
		},
		"the operator does not answer": {
			change: func(s *State) { packetsOf(s).Status = v1alpha1.CaptureStatus{} },
			after:  operatorTimeout,
			want: live.View{
				Title: "shop/web-x7k2p (Deployment/web)", Status: "Waiting for the operator",
				Notes: []string{"No answer from the operator yet: check that its Pod is running."},
			},
		},
		"no Pods yet": {
			change: func(s *State) {
				packetsOf(s).Status = v1alpha1.CaptureStatus{Phase: v1alpha1.PhasePending, Conditions: []metav1.Condition{
					condition(v1alpha1.ConditionAdmitted, metav1.ConditionTrue, v1alpha1.ReasonAdmitted, ""),
					condition(v1alpha1.ConditionTargetFound, metav1.ConditionFalse, v1alpha1.ReasonNoPods, "Deployment web has no Pod"),
				}}
			},
			want: live.View{
				Title: "shop/web-x7k2p (Deployment/web)", Status: "Waiting: NoPods", Notes: []string{"Deployment web has no Pod"},
			},
		},
		"starting": {
			change: func(s *State) { packetsOf(s).Status.Phase = v1alpha1.PhasePending },
			want:   live.View{Title: "shop/web-x7k2p (Deployment/web)", Status: "Starting", Pods: []live.Pod{row}},
		},
		"agents cannot start": {
			change: func(s *State) {
				packetsOf(s).Status.Phase = v1alpha1.PhasePending
				pending := func(name, message string) v1alpha1.PodResult {
					return v1alpha1.PodResult{Name: name, UID: name, Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonPending, Message: message}
				}
				packetsOf(s).Status.Pods = []v1alpha1.PodResult{
					pending("web-1", "Unschedulable: no memory"), pending("web-2", "Unschedulable: no memory"), pending("web-3", ""),
				}
			},
			want: live.View{
				Title: "shop/web-x7k2p (Deployment/web)", Status: "Starting",
				Pods:  []live.Pod{{Name: "web-1", State: "Pending"}, {Name: "web-2", State: "Pending"}, {Name: "web-3", State: "Pending"}},
				Notes: []string{"web-1 is Pending: Unschedulable: no memory"},
			},
		},
		"no live counts": {
			change: func(s *State) { s.ProgressError = "no way"; packetsOf(s).Status.PodsOmitted = 7 },
			want: live.View{
				Title: "shop/web-x7k2p (Deployment/web)", Status: "Capturing", Clock: "0s of 30s", Pods: []live.Pod{row},
				Notes: []string{"7 Pods of this capture do not fit into its status.", "Live counts are not available: no way"},
			},
		},
		"no live counts, and no secret": {
			change: func(s *State) { s.ProgressError = "Post https://sonde-webhook/mutate-resultaccess/0011aabb: refused" },
			want: live.View{
				Title: "shop/web-x7k2p (Deployment/web)", Status: "Capturing", Clock: "0s of 30s", Pods: []live.Pod{row},
				Notes: []string{"Live counts are not available: Post https://sonde-webhook/...: refused"},
			},
		},
		"no live counts of one Pod": {
			change: func(s *State) { s.Update(results.Update{Pod: "web-1", UID: "u1", Error: "the agent does not answer"}) },
			want: live.View{
				Title: "shop/web-x7k2p (Deployment/web)", Status: "Capturing", Clock: "0s of 30s", Pods: []live.Pod{row},
				Notes: []string{"Live counts are not available for web-1: the agent does not answer"},
			},
		},
		"ended": {
			change: func(s *State) {
				packetsOf(s).Status.Phase = v1alpha1.PhaseIncomplete
				packetsOf(s).Status.Conditions = []metav1.Condition{
					condition(v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonSomePodsIncomplete, ""),
				}
				packetsOf(s).Status.Pods[0].Phase, packetsOf(s).Status.Pods[0].Reason = v1alpha1.PhaseIncomplete, v1alpha1.ReasonKilled
			},
			want: live.View{Title: "shop/web-x7k2p (Deployment/web)", Status: "Incomplete: SomePodsIncomplete", Pods: []live.Pod{
				{Name: "web-1", Node: "n1", State: "Incomplete: Killed", Count: 2, Bytes: 200},
			}},
		},
		"downloading": {
			change: func(s *State) {
				packetsOf(s).Status.Phase = v1alpha1.PhaseCompleted
				s.Activity = "Downloading"
				s.Downloading("u1", 45, 100)
			},
			want: live.View{Title: "shop/web-x7k2p (Deployment/web)", Status: "Downloading", Pods: []live.Pod{
				{Name: "web-1", Node: "n1", State: "Downloading 45%", Count: 2, Bytes: 200},
			}},
		},
		"downloading, unknown size": {
			change: func(s *State) { s.Activity = "Downloading"; s.Downloading("u1", 2048, -1) },
			want: live.View{Title: "shop/web-x7k2p (Deployment/web)", Status: "Downloading", Pods: []live.Pod{
				{Name: "web-1", Node: "n1", State: "Downloading 2.0 KiB", Count: 2, Bytes: 200},
			}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := NewState(running(pod), noon)
			if tc.change != nil {
				tc.change(s)
			}
			if diff := cmp.Diff(tc.want, s.View(noon.Add(tc.after))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
