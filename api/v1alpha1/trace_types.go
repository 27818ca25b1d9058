package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TraceGroup is a group of events: system calls, and other actions of processes.
//
// +kubebuilder:validation:Enum=process;file;io;network;memory;signal
type TraceGroup string

// Groups of events.
const (
	// TraceProcess has exec with its arguments, fork, exit, and signals that end a process.
	TraceProcess TraceGroup = "process"
	// TraceFile has opening, closing, naming and removing of files.
	TraceFile TraceGroup = "file"
	// TraceIO has reading and writing.
	TraceIO TraceGroup = "io"
	// TraceNetwork has sockets, and the connections, retransmits and resets of TCP.
	TraceNetwork TraceGroup = "network"
	// TraceMemory has mapping and unmapping, and page faults.
	TraceMemory TraceGroup = "memory"
	// TraceSignal has signals with their senders, the calls that send them, and processes that the kernel kills because memory is short.
	TraceSignal TraceGroup = "signal"
)

// TraceFormat is how a trace is written.
//
// +kubebuilder:validation:Enum=ndjson;flap
type TraceFormat string

// Formats of traces.
const (
	// TraceNDJSON has one JSON object a line, one line an event.
	TraceNDJSON TraceFormat = "ndjson"
	// TraceFlap has the lines of FLAP, one for the enter and one for the exit of each call, in a file for each source.
	TraceFlap TraceFormat = "flap"
)

// GateOnTimeout is the action for a Pod whose tracer does not come in time.
//
// +kubebuilder:validation:Enum=Proceed;Fail
type GateOnTimeout string

// Actions after the timeout.
const (
	// GateProceed lets the Pod start untraced.
	GateProceed GateOnTimeout = "Proceed"
	// GateFail keeps the Pod from starting while the trace may last: its init container sonde-gate fails.
	GateFail GateOnTimeout = "Fail"
)

// TraceGate delays the start of the target's new Pods until they are traced.
type TraceGate struct {
	// enabled puts the init container sonde-gate first into new Pods of the target, for as long as the trace lasts.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// timeout is how long a Pod waits for its tracer: seconds or a duration; 1 s to 10 m, by default 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="gate.timeout must be seconds, like \"30\", or minutes and seconds, like \"90s\" or \"5m\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? (int(self) >= 1 && int(self) <= 600) : (duration(self) >= duration('1s') && duration(self) <= duration('10m')))",message="gate.timeout must lie between 1s and 10m"
	Timeout string `json:"timeout,omitempty"`

	// onTimeout is the action for a Pod whose tracer does not come: Proceed, the default, lets it start untraced; Fail keeps it
	// from starting while the trace may last.
	// +optional
	// +kubebuilder:default=Proceed
	OnTimeout GateOnTimeout `json:"onTimeout,omitempty"`
}

// TraceSpec selects the Pods whose system calls are traced, the calls, and the duration.
// It is immutable except for stop.
//
// +kubebuilder:validation:XValidation:rule="has(self.targetDeployment) || has(self.targetRef)",message="name a target: set targetDeployment: NAME, or targetRef: {kind: Deployment|StatefulSet|DaemonSet|Pod, name: NAME}"
// +kubebuilder:validation:XValidation:rule="!(has(self.targetDeployment) && has(self.targetRef))",message="two targets at once: set either targetDeployment or targetRef, and make a second Trace for the other"
// +kubebuilder:validation:XValidation:rule="has(self.jobId) == has(oldSelf.jobId) && (!has(self.jobId) || self.jobId == oldSelf.jobId)",message="jobId is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="has(self.targetNamespace) == has(oldSelf.targetNamespace) && (!has(self.targetNamespace) || self.targetNamespace == oldSelf.targetNamespace)",message="targetNamespace is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="has(self.targetDeployment) == has(oldSelf.targetDeployment) && (!has(self.targetDeployment) || self.targetDeployment == oldSelf.targetDeployment)",message="targetDeployment is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="has(self.targetRef) == has(oldSelf.targetRef) && (!has(self.targetRef) || self.targetRef == oldSelf.targetRef)",message="targetRef is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="has(self.duration) == has(oldSelf.duration) && (!has(self.duration) || self.duration == oldSelf.duration)",message="duration is immutable: set stop: true to end early, or create a new Trace"
// +kubebuilder:validation:XValidation:rule="self.events == oldSelf.events",message="events is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="has(self.minLatency) == has(oldSelf.minLatency) && (!has(self.minLatency) || self.minLatency == oldSelf.minLatency)",message="minLatency is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="self.format == oldSelf.format",message="format is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="self.maxBytes == oldSelf.maxBytes",message="maxBytes is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="has(self.maxEvents) == has(oldSelf.maxEvents) && (!has(self.maxEvents) || self.maxEvents == oldSelf.maxEvents)",message="maxEvents is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="self.followPods == oldSelf.followPods",message="followPods is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="self.retainFor == oldSelf.retainFor",message="retainFor is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="has(self.gate) == has(oldSelf.gate) && (!has(self.gate) || self.gate == oldSelf.gate)",message="gate is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="has(self.containers) == has(oldSelf.containers) && (!has(self.containers) || self.containers == oldSelf.containers)",message="containers is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="has(self.command) == has(oldSelf.command) && (!has(self.command) || self.command == oldSelf.command)",message="command is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="(has(self.children) && self.children) == (has(oldSelf.children) && oldSelf.children)",message="children is immutable: create a new Trace"
// +kubebuilder:validation:XValidation:rule="!(has(self.children) && self.children) || has(self.command)",message="children are those of a command: set command too, or leave children out, as all processes are traced anyway"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.stop) && oldSelf.stop) || (has(self.stop) && self.stop)",message="a stopped trace cannot be started again: create a new Trace"
type TraceSpec struct {
	// jobId is the last part of the Jobs' names: four of [a-z0-9]. The operator chooses one if it is
	// absent (see status.jobId). It must differ between the running captures of one workload in a namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]{4}$')",message="jobId must be four characters of [a-z0-9], like qwer; leave it out to let the operator choose one"
	JobID string `json:"jobId,omitempty"`

	// targetNamespace is where the target runs; by default the trace's own namespace. Another
	// one is allowed only in a namespace labelled monitoring.openshift.tpg/hub=true.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="targetNamespace must be the name of a namespace, like shop; leave it out for the trace's own"
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// targetDeployment names the Deployment whose Pods are traced; it is short for a targetRef of that kind.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$')",message="targetDeployment must be the name of a Deployment, like web"
	TargetDeployment string `json:"targetDeployment,omitempty"`

	// targetRef names the workload whose Pods are traced.
	// +optional
	TargetRef *TargetReference `json:"targetRef,omitempty"`

	// duration of the trace of each Pod: seconds ("30") or a duration ("90s", "5m", "1h30m"); 1 s to 24 h. Without it a
	// trace lasts until its Pod is gone, or for as long as the cluster's ceiling allows.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="duration must be seconds, like \"30\", or hours, minutes and seconds, like \"90s\", \"5m\" or \"1h30m\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? (int(self) >= 1 && int(self) <= 86400) : (duration(self) >= duration('1s') && duration(self) <= duration('24h')))",message="duration must lie between 1s and 24h (the operator may allow less)"
	Duration string `json:"duration,omitempty"`

	// containers whose processes are recorded, by name: also init containers, and ephemeral ones (kubectl debug). By default
	// all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'))",message="containers must be names of containers, like web or istio-proxy: up to 63 of [a-z0-9-]"
	Containers []string `json:"containers,omitempty"`

	// command whose processes are recorded: a name, like nginx, of a process (comm) or of its executable, or the path of an
	// executable, like /usr/sbin/nginx. By default all.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self != '' && !self.contains('\\u0000') && size(bytes(self)) <= 255",message="command must be a name, like nginx, or a path, like /usr/sbin/nginx, of 1 to 255 bytes, none of them zero; leave it out to trace all"
	// +kubebuilder:validation:XValidation:rule="!self.contains('/') || (self.matches('^(/[^/]+){1,32}$') && !self.matches('/[.]{1,2}(/|$)'))",message="command with a slash must be the whole path of an executable, as \"readlink /proc/PID/exe\" shows it, like /usr/sbin/nginx, in at most 31 directories"
	Command string `json:"command,omitempty"`

	// children also records all descendants of the command's processes, even after they execute another program.
	// +optional
	Children bool `json:"children,omitempty"`

	// events are the groups that are recorded; by default process, file and network.
	// +optional
	// +listType=set
	// +kubebuilder:default={process,file,network}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Events []TraceGroup `json:"events,omitempty"`

	// minLatency leaves out calls that took less time: "500us", "10ms", "1s"; at most 1h. By default all calls are recorded.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,9}(ns|us|ms|s)$')",message="minLatency must be a number with ns, us, ms or s, like \"500us\" or \"10ms\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9]{1,9}(ns|us|ms|s)$') || (duration(self) > duration('0s') && duration(self) <= duration('1h'))",message="minLatency must lie between 1ns and 1h; leave it out to record all calls"
	MinLatency string `json:"minLatency,omitempty"`

	// format of the files: ndjson, or flap for the lines of FLAP.
	// +optional
	// +kubebuilder:default=ndjson
	Format TraceFormat `json:"format,omitempty"`

	// maxBytes is the largest size of one Pod's files together, in bytes, by default 1073741824 (1 GiB); the
	// trace of that Pod ends before it would be exceeded.
	// +optional
	// +kubebuilder:default=1073741824
	// +kubebuilder:validation:Minimum=65536
	// +kubebuilder:validation:Maximum=1099511627776
	MaxBytes int64 `json:"maxBytes,omitempty"`

	// maxEvents ends the trace of a Pod after exactly this many events; by default there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxEvents *int64 `json:"maxEvents,omitempty"`

	// followPods gives a Pod that joins the target during the trace a Job of its own; by default true.
	// +optional
	// +kubebuilder:default=true
	FollowPods *bool `json:"followPods,omitempty"`

	// retainFor is how long a Pod's files can be downloaded after its trace ended: seconds or a
	// duration; 10 s to 168 h, by default 1h.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="retainFor must be seconds, like \"600\", or hours, minutes and seconds, like \"10m\" or \"1h\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? (int(self) >= 10 && int(self) <= 604800) : (duration(self) >= duration('10s') && duration(self) <= duration('168h')))",message="retainFor must lie between 10s and 168h"
	RetainFor string `json:"retainFor,omitempty"`

	// gate makes each new Pod of the target wait, before its first container starts, until its tracer is attached. By
	// default no Pod waits, and its first events may be missing.
	// +optional
	Gate *TraceGate `json:"gate,omitempty"`

	// stop ends the trace now; what was recorded so far is kept. It cannot be undone.
	// +optional
	Stop bool `json:"stop,omitempty"`
}

// Trace records what the processes of every Pod of one workload do: one file of events per Pod.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=sonde
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.target`
// +kubebuilder:printcolumn:name="JobID",type=string,JSONPath=`.status.jobId`
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.totals.pods`
// +kubebuilder:printcolumn:name="Events",type=integer,JSONPath=`.status.totals.events`
// +kubebuilder:printcolumn:name="Lost",type=integer,JSONPath=`.status.totals.lost`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Trace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec TraceSpec `json:"spec,omitzero"`
	// +optional
	Status CaptureStatus `json:"status,omitzero"`
}

// TraceList is a list of Traces.
//
// +kubebuilder:object:root=true
type TraceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Trace `json:"items"`
}
