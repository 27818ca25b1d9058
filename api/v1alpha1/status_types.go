package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phase of a capture, or of one Pod's part of it.
//
// +kubebuilder:validation:Enum=Pending;Capturing;Ending;Completed;Incomplete;Failed
type Phase string

// Phases. Completed, Incomplete and Failed are final.
const (
	// PhasePending: not captured yet.
	PhasePending Phase = "Pending"
	// PhaseCapturing: the probe of the Pod (of a capture: of every Pod) is attached.
	PhaseCapturing Phase = "Capturing"
	// PhaseEnding: endTime of the capture has passed. No Pod joins any more, and the last probes end. No Pod has this phase.
	PhaseEnding Phase = "Ending"
	// PhaseCompleted: ended as requested, with a complete account.
	PhaseCompleted Phase = "Completed"
	// PhaseIncomplete: there is, or was, a result, but it or its account is not complete; the reason says why.
	PhaseIncomplete Phase = "Incomplete"
	// PhaseFailed: there is no result; the reason says why.
	PhaseFailed Phase = "Failed"
)

// Final reports whether nothing more will happen in this phase.
func (p Phase) Final() bool {
	return p == PhaseCompleted || p == PhaseIncomplete || p == PhaseFailed
}

// Condition types of a capture. Every condition is written on every pass.
const (
	// ConditionAdmitted: the requester is known and has the right at this moment.
	ConditionAdmitted = "Admitted"
	// ConditionTargetFound: the target exists and has Pods.
	ConditionTargetFound = "TargetFound"
	// ConditionProbesAllowed: the cluster allows the probes' Pods. False quotes the whole refusal,
	// and says what to do.
	ConditionProbesAllowed = "ProbesAllowed"
	// ConditionCapturing: a probe is attached to every Pod of the target.
	ConditionCapturing = "Capturing"
	// ConditionComplete is the summary: True when all Pods are Completed, False with the first
	// reason when something is missing, Unknown while the capture lasts.
	ConditionComplete = "Complete"
	// ConditionEnded: the capture is over, however it ended; False as long as it is not.
	ConditionEnded = "Ended"
	// ConditionGating: new Pods of the target wait for their tracer. Only captures with a gate have it.
	ConditionGating = "Gating"
)

// Reasons of conditions and of Pods' entries.
const (
	ReasonAdmitted            = "Admitted"
	ReasonNotAdmitted         = "NotAdmitted"         // no valid stamp: created without the webhook, or changed since
	ReasonAccessRevoked       = "AccessRevoked"       // the requester lost the right
	ReasonHubNotAllowed       = "HubNotAllowed"       // a foreign target from a namespace that is not a hub
	ReasonNamespaceReplaced   = "NamespaceReplaced"   // the target namespace was deleted, and perhaps created again
	ReasonOptedOut            = "OptedOut"            // a cluster admin has closed the target namespace to captures
	ReasonNamespaceShared     = "NamespaceShared"     // the operator shares its namespace with another
	ReasonPaused              = "Paused"              // a cluster admin has paused the operator
	ReasonQueued              = "Queued"              // waits for captures of its namespace to end
	ReasonCeilingPods         = "CeilingPods"         // waits: the capture has as many Pods at a time as it may, or the captures of its namespace have as many Jobs as they may
	ReasonCeilingNode         = "CeilingNode"         // waits: the node has as many probes as it may
	ReasonCeilingTracers      = "CeilingTracers"      // waits: the node has as many probes that slow all its processes as it may
	ReasonCeilingResults      = "CeilingResults"      // waits: the node keeps as many results as it may
	ReasonCeilingBytes        = "CeilingBytes"        // waits: the namespace's results on the node may grow to as many bytes as they may take
	ReasonTargetFound         = "TargetFound"         //
	ReasonTargetNotFound      = "TargetNotFound"      // no such workload
	ReasonNoPods              = "NoPods"              // the workload has no running Pod
	ReasonPending             = "Pending"             // Jobs are not all started
	ReasonCapturing           = "Capturing"           //
	ReasonEnding              = "Ending"              // the capture's end has passed, and its last probes end
	ReasonEnded               = "Ended"               // the capture is over
	ReasonDuration            = "Duration"            // ended after its duration
	ReasonStopped             = "Stopped"             // ended by spec.stop
	ReasonPacketLimit         = "PacketLimit"         // ended at maxPackets
	ReasonByteLimit           = "ByteLimit"           // ended at maxBytes
	ReasonEventLimit          = "EventLimit"          // ended at maxEvents
	ReasonTargetGone          = "TargetGone"          // the Pod left; its file is complete
	ReasonStopNotRequested    = "StopNotRequested"    // the keeper ended the capture, and the operator had not asked it to
	ReasonTargetNotGone       = "TargetNotGone"       // the probe ended as if the Pod had left, and the Pod still exists
	ReasonKilled              = "Killed"              // the probe was killed
	ReasonEvicted             = "Evicted"             // the agent's Pod was evicted
	ReasonDrained             = "Drained"             // the agent's Pod was deleted, as by a drain
	ReasonNodeLost            = "NodeLost"            // the node does not answer
	ReasonDiskFull            = "DiskFull"            // no space left for the file
	ReasonDeadlineExceeded    = "DeadlineExceeded"    // the Job did not end in time
	ReasonProbeError          = "ProbeError"          // the probe ended with an error; the message says which
	ReasonNotStarted          = "NotStarted"          // the agent's Pod did not start in time
	ReasonJobRefused          = "JobRefused"          // the API server refused the Job or its Pod
	ReasonNameConflict        = "NameConflict"        // no free name for an object
	ReasonHostNetworkDenied   = "HostNetworkDenied"   // a hostNetwork Pod, and the requester may not capture on nodes
	ReasonSandboxedRuntime    = "SandboxedRuntime"    // a runtime class whose network the host kernel does not see
	ReasonInterfaceNotFound   = "InterfaceNotFound"   // the Pod lacks one of the interfaces that are to be captured
	ReasonInterfaceMissed     = "InterfaceMissed"     // an interface was not captured the whole time
	ReasonInterfaceUnknown    = "InterfaceUnknown"    // the keeper did not say yet whether the Pod has the interfaces
	ReasonStartMissed         = "StartMissed"         // the Pod was to wait at a gate, and started before it was traced
	ReasonContainerNotFound   = "ContainerNotFound"   // the Pod has none of the containers that are to be traced
	ReasonReconcileError      = "ReconcileError"      // the operator met an error, and tries again; the message says which
	ReasonSomePodsIncomplete  = "SomePodsIncomplete"  // the results of some Pods are incomplete; their entries say why
	ReasonFilterNotCompilable = "FilterNotCompilable" // the filter does not compile for a link type
	ReasonGating              = "Gating"              // new Pods wait for their tracer
	ReasonGatePreparing       = "GatePreparing"       // the webhook for new Pods is being configured
	ReasonGateSettling        = "GateSettling"        // API servers load the webhook for new Pods
	ReasonNamespaceProtected  = "NamespaceProtected"  // no Pod of the namespace ever waits: it is the cluster's or the operator's
	ReasonGateNotStarted      = "GateNotStarted"      // a Pod's gate could not start: no Pod is gated any more
	ReasonNotFollowed         = "NotFollowed"         // no Pod that joins is captured, so none waits
)

// MaxPodEntries bounds status.pods.
const MaxPodEntries = 200

// MaxUnwatched bounds status.unwatched.
const MaxUnwatched = 8

// Timespan is a time with a beginning and an end.
type Timespan struct {
	// from is the beginning.
	// +required
	From metav1.Time `json:"from,omitzero"`
	// to is the end.
	// +required
	To metav1.Time `json:"to,omitzero"`
}

// CaptureStatus is what the controller last saw. It is shared by the kinds that run one Job per Pod.
type CaptureStatus struct {
	// phase of the whole capture.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// jobId in use: spec.jobId, or the one that the operator chose.
	// +optional
	// +kubebuilder:validation:MaxLength=4
	JobID string `json:"jobId,omitempty"`

	// target as Kind/name, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=320
	Target string `json:"target,omitempty"`

	// startTime is when the first Jobs were created.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// endTime is when the capture ends: a Pod that is created before it is captured, or has an entry that says why not.
	// It is set when a probe is attached to each Pod that existed at startTime and neither waits for a ceiling nor is being
	// deleted: that moment plus duration. A capture that is stopped ends then.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`

	// completionTime is when the last Pod's capture ended.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// observedGeneration is the spec generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// totals over all Pods, also those that pods does not list.
	// +optional
	Totals Totals `json:"totals,omitzero"`

	// pods holds one entry per Pod, at most 200: those with trouble first, then by name.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=200
	Pods []PodResult `json:"pods,omitempty"`

	// podsOmitted counts Pods that pods does not list.
	// +optional
	PodsOmitted int32 `json:"podsOmitted,omitempty"`

	// unwatched are times of the capture in which the operator did not watch Pods: no manager ran, or its watch was interrupted.
	// A Pod that was created and gone again within one of them may have no entry.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Unwatched []Timespan `json:"unwatched,omitempty"`

	// gatedFrom is when the condition Gating first became True. Only Traces with a gate have it.
	// +optional
	GatedFrom *metav1.Time `json:"gatedFrom,omitempty"`

	// conditions: Admitted, TargetFound, ProbesAllowed, Capturing, Ended, Complete.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Totals add up the Pods' results: seen = packets + dropped + overwritten, of a trace events + lost. A count of zero is
// written, because kubectl leaves the column of an absent field blank.
type Totals struct {
	// pods counts the Pods with a Job.
	// +optional
	Pods int32 `json:"pods"`
	// completed, incomplete and failed count Pods in that phase.
	// +optional
	Completed int32 `json:"completed"`
	// +optional
	Incomplete int32 `json:"incomplete"`
	// +optional
	Failed int32 `json:"failed"`
	// packets written to files.
	// +optional
	Packets int64 `json:"packets"`
	// bytes of those packets as captured.
	// +optional
	Bytes int64 `json:"bytes"`
	// dropped packets: matched the filter and are in no file.
	// +optional
	Dropped int64 `json:"dropped"`
	// truncated packets: in a file, cut by snapLength.
	// +optional
	Truncated int64 `json:"truncated"`
	// overwritten packets: were in a file that rotate removed for a newer one.
	// +optional
	Overwritten int64 `json:"overwritten"`
	// events of a trace that are in files.
	// +optional
	Events int64 `json:"events"`
	// lost events of a trace: are in no file.
	// +optional
	Lost int64 `json:"lost"`
}

// ProcessCounts counts packets by whether they name their process.
type ProcessCounts struct {
	// named packets name their process.
	// +optional
	Named int64 `json:"named,omitempty"`

	// none counts packets that belong to no process of the Pod.
	// +optional
	None int64 `json:"none,omitempty"`

	// unknown counts packets whose process is not known, by reason.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Unknown map[string]int64 `json:"unknown,omitempty"`

	// message says why no packet names its process, or not all that could; absent otherwise.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// PodResult is one Pod's part of a capture.
type PodResult struct {
	// uid of the target Pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`

	// name of the target Pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// node that the Pod runs on.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// job that captures it, in the operator's namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Job string `json:"job,omitempty"`

	// phase of this Pod's capture.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// reason why the phase is what it is: how the capture ended, or what is missing.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says more, where there is more to say.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	// packets in the file.
	// +optional
	Packets int64 `json:"packets,omitempty"`

	// bytes of those packets as captured.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`

	// dropped says how many packets matched the filter and are not in the file, and where they were lost.
	// +optional
	Dropped Dropped `json:"dropped,omitzero"`

	// truncated packets: in the file, cut by snapLength.
	// +optional
	Truncated int64 `json:"truncated,omitempty"`

	// overwritten packets: were in a file that rotate removed for a newer one.
	// +optional
	Overwritten int64 `json:"overwritten,omitempty"`

	// events of a trace that are in the files.
	// +optional
	Events int64 `json:"events,omitempty"`

	// lost events of a trace, by where they were lost; they are in no file.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	Lost map[string]int64 `json:"lost,omitempty"`

	// gate of the Pod, once it is known how it ended; absent where the Pod had none.
	// +optional
	Gate *GateResult `json:"gate,omitempty"`

	// containersNotFound are those of spec.containers that the Pod does not have.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	ContainersNotFound []string `json:"containersNotFound,omitempty"`

	// files of the result, of a ring the oldest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Files []ResultFile `json:"files,omitempty"`

	// engine that captured: tcx, clsact or afpacket; of a trace, tracepoints.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Engine string `json:"engine,omitempty"`

	// engineMessage says why the preferred engine tcx was not used; absent if it was used or not wanted.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	EngineMessage string `json:"engineMessage,omitempty"`

	// processes counts the captured packets by their process; absent unless spec.processes is set.
	// +optional
	Processes *ProcessCounts `json:"processes,omitempty"`

	// availableUntil is when the files are deleted.
	// +optional
	AvailableUntil *metav1.Time `json:"availableUntil,omitempty"`
}

// GateOutcome is how the gate of a Pod ended.
//
// +kubebuilder:validation:Enum=Opened;Untraced;Refused;Over;Ended;NotStarted
type GateOutcome string

// Outcomes of gates. All but the last equal the outcomes of internal/wire/gateconfig.
const (
	// GateOpened: the Pod is traced from its first instruction.
	GateOpened GateOutcome = "Opened"
	// GateUntraced: no tracer came in time, and the Pod has started.
	GateUntraced GateOutcome = "Untraced"
	// GateRefused: no tracer came in time, and the Pod has not started.
	GateRefused GateOutcome = "Refused"
	// GateOver: the trace was over, and the Pod has started.
	GateOver GateOutcome = "Over"
	// GateEnded: the Pod was stopped while it waited.
	GateEnded GateOutcome = "Ended"
	// GateNotStarted: the gate itself could not start, as without its image.
	GateNotStarted GateOutcome = "NotStarted"
)

// GateResult is how the gate of one Pod ended.
type GateResult struct {
	// outcome: Opened, Untraced, Refused, Over, Ended or NotStarted.
	// +required
	Outcome GateOutcome `json:"outcome"`
	// waitedMilliseconds is how long the Pod waited at its gate; absent where the gate could not say.
	// +optional
	WaitedMilliseconds int64 `json:"waitedMilliseconds,omitempty"`
}

// LostEvents is the sum over all places.
func (p PodResult) LostEvents() int64 {
	var n int64
	for _, lost := range p.Lost {
		n += lost
	}
	return n
}

// Dropped counts lost packets by the place where they were lost.
type Dropped struct {
	// kernel: before the ring, because memory was short.
	// +optional
	Kernel int64 `json:"kernel,omitempty"`
	// ring: the ring was full.
	// +optional
	Ring int64 `json:"ring,omitempty"`
	// writer: read from the ring, and could not be written.
	// +optional
	Writer int64 `json:"writer,omitempty"`
}

// Total of all places.
func (d Dropped) Total() int64 { return d.Kernel + d.Ring + d.Writer }

// ResultFile is one file of a result.
type ResultFile struct {
	// name to ask for it by.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name,omitempty"`
	// bytes is its size.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
}
