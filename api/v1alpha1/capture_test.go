package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

var (
	_ sondev1.Capture     = &sondev1.PacketCapture{}
	_ sondev1.CaptureList = &sondev1.PacketCaptureList{}
	_ sondev1.Capture     = &sondev1.Trace{}
	_ sondev1.CaptureList = &sondev1.TraceList{}
)

// TestCommon checks the defaults of absent fields.
func TestCommon(t *testing.T) {
	for name, tc := range map[string]struct {
		spec sondev1.PacketCaptureSpec
		want sondev1.Common
	}{
		"a Deployment here": {
			spec: sondev1.PacketCaptureSpec{TargetDeployment: "web", Duration: "30s", RetainFor: "1h", MaxBytes: 65536, Engine: sondev1.EngineBPF},
			want: sondev1.Common{
				Engine: sondev1.EngineBPF, TargetNamespace: "own", Target: sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: "web"},
				Duration: "30s", RetainFor: "1h", MaxBytes: 65536, FollowPods: true,
			},
		},
		"a Pod elsewhere": {
			spec: sondev1.PacketCaptureSpec{
				JobID: "qwer", TargetNamespace: "shop", TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: "p"},
				FollowPods: new(false), Stop: true,
			},
			want: sondev1.Common{
				JobID: "qwer", TargetNamespace: "shop", Target: sondev1.TargetReference{Kind: sondev1.TargetPod, Name: "p"}, Stop: true,
			},
		},
		"names of processes": {
			spec: sondev1.PacketCaptureSpec{TargetDeployment: "web", Processes: true},
			want: sondev1.Common{
				TargetNamespace: "own", Target: sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: "web"}, FollowPods: true, SlowsNode: true,
			},
		},
		"followPods is true": {
			spec: sondev1.PacketCaptureSpec{TargetDeployment: "web", FollowPods: new(true)},
			want: sondev1.Common{
				TargetNamespace: "own", Target: sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: "web"}, FollowPods: true,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pc := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{Namespace: "own"}, Spec: tc.spec}
			if diff := cmp.Diff(tc.want, pc.Common()); diff != "" {
				t.Errorf("Common() (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCommonOfATrace checks that a trace has no default duration, and otherwise the defaults of a PacketCapture.
func TestCommonOfATrace(t *testing.T) {
	for name, tc := range map[string]struct {
		spec sondev1.TraceSpec
		want sondev1.Common
	}{
		"until the Pod is gone": {
			spec: sondev1.TraceSpec{TargetDeployment: "web", RetainFor: "1h", MaxBytes: 65536},
			want: sondev1.Common{
				TargetNamespace: "own", Target: sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: "web"},
				RetainFor: "1h", MaxBytes: 65536, FollowPods: true, SlowsNode: true,
			},
		},
		"some containers and a gate": {
			spec: sondev1.TraceSpec{
				TargetDeployment: "web", Containers: []string{"web"}, Command: "nginx", Gate: &sondev1.TraceGate{Enabled: true},
			},
			want: sondev1.Common{
				TargetNamespace: "own", Target: sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: "web"}, FollowPods: true,
				Containers: []string{"web"}, Command: "nginx", Gate: &sondev1.TraceGate{Enabled: true}, SlowsNode: true,
			},
		},
		"a gate that is switched off": {
			spec: sondev1.TraceSpec{TargetDeployment: "web", Gate: &sondev1.TraceGate{}},
			want: sondev1.Common{
				TargetNamespace: "own", Target: sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: "web"}, FollowPods: true, SlowsNode: true,
			},
		},
		"a Pod elsewhere": {
			spec: sondev1.TraceSpec{
				JobID: "qwer", TargetNamespace: "shop", TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: "p"},
				Duration: "30s", FollowPods: new(false), Stop: true,
			},
			want: sondev1.Common{
				JobID: "qwer", TargetNamespace: "shop", Target: sondev1.TargetReference{Kind: sondev1.TargetPod, Name: "p"},
				Duration: "30s", Stop: true, SlowsNode: true,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &sondev1.Trace{ObjectMeta: metav1.ObjectMeta{Namespace: "own"}, Spec: tc.spec}
			if diff := cmp.Diff(tc.want, tr.Common()); diff != "" {
				t.Errorf("Common() (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLostEvents checks that all places count.
func TestLostEvents(t *testing.T) {
	if n := (sondev1.PodResult{Lost: map[string]int64{"ring": 3, "writer": 4}}).LostEvents(); n != 7 {
		t.Errorf("%d lost, want 7", n)
	}
}

// TestCaptures checks that CaptureStatus points to the object itself.
func TestCaptures(t *testing.T) {
	list := &sondev1.PacketCaptureList{Items: make([]sondev1.PacketCapture, 2)}
	for _, capture := range list.Captures() {
		capture.CaptureStatus().Phase = sondev1.PhaseFailed
	}
	for i := range list.Items {
		if list.Items[i].Status.Phase != sondev1.PhaseFailed {
			t.Errorf("item %d is %q", i, list.Items[i].Status.Phase)
		}
	}
	traces := &sondev1.TraceList{Items: make([]sondev1.Trace, 2)}
	for _, capture := range traces.Captures() {
		capture.CaptureStatus().Phase = sondev1.PhaseFailed
	}
	for i := range traces.Items {
		if traces.Items[i].Status.Phase != sondev1.PhaseFailed {
			t.Errorf("trace %d is %q", i, traces.Items[i].Status.Phase)
		}
	}
}
