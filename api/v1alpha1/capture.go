package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AgentJobOwner is a resource for which the operator runs one agent Job per Pod of a target. The code that builds,
// labels, pauses and sweeps these Jobs knows a resource only by this interface.
//
// +kubebuilder:object:generate=false
type AgentJobOwner interface {
	metav1.Object
	runtime.Object
	// KindName is the name of the kind. The TypeMeta of an object that was read is empty.
	KindName() string
	// AgentTarget is the workload whose Pods get agent Jobs, and the namespace that it runs in.
	AgentTarget() (namespace string, target TargetReference)
	// Ended reports whether no agent Job will start or stop for the resource any more.
	Ended() bool
}

// Capture is an AgentJobOwner whose Jobs record packets or events of each Pod.
//
// +kubebuilder:object:generate=false
type Capture interface {
	AgentJobOwner
	// CaptureSpec points to the spec, as it is stamped.
	CaptureSpec() any
	// Common returns the part of the spec that all kinds have.
	Common() Common
	// CaptureStatus points to the status of the object itself, not to a copy.
	CaptureStatus() *CaptureStatus
}

// CaptureList is a list of one kind of Capture.
//
// +kubebuilder:object:generate=false
type CaptureList interface {
	metav1.ListInterface
	runtime.Object
	// Captures returns pointers to the items, not to copies.
	Captures() []Capture
}

// Common is the part of a spec that all kinds of captures have.
//
// +kubebuilder:object:generate=false
type Common struct {
	JobID string
	// TargetNamespace is the namespace of the target: by default the capture's own.
	TargetNamespace string
	// Target is targetRef, or the Deployment that targetDeployment names.
	Target TargetReference
	// Duration of the capture of each Pod; empty means until the Pod is gone.
	Duration string
	// RetainFor is how long a result is kept.
	RetainFor string
	// MaxBytes of one Pod's result.
	MaxBytes int64
	// FollowPods gives a Job to Pods that join the target later.
	FollowPods bool
	// Stop ends the capture now.
	Stop bool
	// Engine that was requested; empty if the kind has only one.
	Engine CaptureEngine
	// Containers and Command that are recorded; empty means all of the Pod.
	Containers []string
	Command    string
	// Gate at which new Pods of the target wait for their probe; nil without one.
	Gate *TraceGate
	// SlowsNode says that each probe attaches programs that run for all processes of its node.
	SlowsNode bool
}

// KindName implements AgentJobOwner.
func (*PacketCapture) KindName() string { return string(CapturePacketCapture) }

// AgentTarget implements AgentJobOwner.
func (pc *PacketCapture) AgentTarget() (string, TargetReference) {
	common := pc.Common()
	return common.TargetNamespace, common.Target
}

// Ended implements AgentJobOwner.
func (pc *PacketCapture) Ended() bool { return pc.Status.Phase.Final() }

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
		FollowPods: s.FollowPods == nil || *s.FollowPods, Stop: s.Stop, Engine: s.Engine, SlowsNode: s.Processes,
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

// KindName implements AgentJobOwner.
func (*Trace) KindName() string { return string(CaptureTrace) }

// AgentTarget implements AgentJobOwner.
func (t *Trace) AgentTarget() (string, TargetReference) {
	common := t.Common()
	return common.TargetNamespace, common.Target
}

// Ended implements AgentJobOwner.
func (t *Trace) Ended() bool { return t.Status.Phase.Final() }

// CaptureSpec implements Capture.
func (t *Trace) CaptureSpec() any { return &t.Spec }

// CaptureStatus implements Capture.
func (t *Trace) CaptureStatus() *CaptureStatus { return &t.Status }

// Common implements Capture.
func (t *Trace) Common() Common {
	s := &t.Spec
	gate := s.Gate
	if gate != nil && !gate.Enabled {
		gate = nil
	}
	return Common{
		JobID: s.JobID, TargetNamespace: cmp.Or(s.TargetNamespace, t.Namespace), Target: targetOf(s.TargetDeployment, s.TargetRef),
		Duration: s.Duration, RetainFor: s.RetainFor, MaxBytes: s.MaxBytes,
		FollowPods: s.FollowPods == nil || *s.FollowPods, Stop: s.Stop,
		Containers: s.Containers, Command: s.Command, Gate: gate, SlowsNode: true,
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

// targetOf returns the target by the two fields that can name it.
func targetOf(deployment string, ref *TargetReference) TargetReference {
	if ref != nil {
		return *ref
	}
	return TargetReference{Kind: TargetDeployment, Name: deployment}
}
