package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Capture is a resource for which one agent Job runs per Pod of its target. What serves one such kind serves all of
// them by this.
//
// +kubebuilder:object:generate=false
type Capture interface {
	metav1.Object
	runtime.Object
	// CaptureKind is the name of the kind. An object that was read says nothing of it in its TypeMeta.
	CaptureKind() string
	// CaptureSpec points to the spec, as it is stamped.
	CaptureSpec() any
	// Common is what all kinds have in their specs.
	Common() Common
	// CaptureStatus is the status itself, not a copy.
	CaptureStatus() *CaptureStatus
}

// CaptureList is a list of one kind of Capture.
//
// +kubebuilder:object:generate=false
type CaptureList interface {
	metav1.ListInterface
	runtime.Object
	// Captures are the items themselves, not copies.
	Captures() []Capture
}

// Common is what the specs of all kinds say.
//
// +kubebuilder:object:generate=false
type Common struct {
	JobID string
	// TargetNamespace is where the target runs: the capture's own namespace, if the spec names none.
	TargetNamespace string
	// Target of the spec, also where it is given by targetDeployment.
	Target TargetReference
	// Duration of the capture of each Pod; empty is until the Pod is gone.
	Duration string
	// RetainFor is how long a result is kept.
	RetainFor string
	// MaxBytes of one Pod's result.
	MaxBytes int64
	// FollowPods gives Pods that join a Job.
	FollowPods bool
	// Stop ends the capture now.
	Stop bool
}

// CaptureKind implements Capture.
func (*PacketCapture) CaptureKind() string { return string(CapturePacketCapture) }

// CaptureSpec implements Capture.
func (pc *PacketCapture) CaptureSpec() any { return &pc.Spec }

// CaptureStatus implements Capture.
func (pc *PacketCapture) CaptureStatus() *CaptureStatus { return &pc.Status }

// Common implements Capture.
func (pc *PacketCapture) Common() Common {
	s := &pc.Spec
	return Common{
		JobID: s.JobID, TargetNamespace: cmp.Or(s.TargetNamespace, pc.Namespace), Target: targetOf(s.TargetDeployment, s.TargetRef),
		Duration: s.Duration, RetainFor: s.RetainFor, MaxBytes: s.MaxBytes,
		FollowPods: s.FollowPods == nil || *s.FollowPods, Stop: s.Stop,
	}
}

// Captures implements CaptureList.
func (l *PacketCaptureList) Captures() []Capture {
	captures := make([]Capture, len(l.Items))
	for i := range l.Items {
		captures[i] = &l.Items[i]
	}
	return captures
}

// CaptureKind implements Capture.
func (*Trace) CaptureKind() string { return string(CaptureTrace) }

// CaptureSpec implements Capture.
func (t *Trace) CaptureSpec() any { return &t.Spec }

// CaptureStatus implements Capture.
func (t *Trace) CaptureStatus() *CaptureStatus { return &t.Status }

// Common implements Capture.
func (t *Trace) Common() Common {
	s := &t.Spec
	return Common{
		JobID: s.JobID, TargetNamespace: cmp.Or(s.TargetNamespace, t.Namespace), Target: targetOf(s.TargetDeployment, s.TargetRef),
		Duration: s.Duration, RetainFor: s.RetainFor, MaxBytes: s.MaxBytes,
		FollowPods: s.FollowPods == nil || *s.FollowPods, Stop: s.Stop,
	}
}

// Captures implements CaptureList.
func (l *TraceList) Captures() []Capture {
	captures := make([]Capture, len(l.Items))
	for i := range l.Items {
		captures[i] = &l.Items[i]
	}
	return captures
}

// targetOf the two fields that can name one.
func targetOf(deployment string, ref *TargetReference) TargetReference {
	if ref != nil {
		return *ref
	}
	return TargetReference{Kind: TargetDeployment, Name: deployment}
}
