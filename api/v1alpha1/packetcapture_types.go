package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PacketCaptureSpec selects the Pods whose packets are captured, the packets, and the duration.
// It is immutable except for stop.
//
// +kubebuilder:validation:XValidation:rule="has(self.targetDeployment) || has(self.targetRef)",message="name a target: set targetDeployment: NAME, or targetRef: {kind: Deployment|StatefulSet|DaemonSet|Pod, name: NAME}"
// +kubebuilder:validation:XValidation:rule="!(has(self.targetDeployment) && has(self.targetRef))",message="two targets at once: set either targetDeployment or targetRef, and make a second PacketCapture for the other"
// +kubebuilder:validation:XValidation:rule="has(self.jobId) == has(oldSelf.jobId) && (!has(self.jobId) || self.jobId == oldSelf.jobId)",message="jobId is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="has(self.targetNamespace) == has(oldSelf.targetNamespace) && (!has(self.targetNamespace) || self.targetNamespace == oldSelf.targetNamespace)",message="targetNamespace is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="has(self.targetDeployment) == has(oldSelf.targetDeployment) && (!has(self.targetDeployment) || self.targetDeployment == oldSelf.targetDeployment)",message="targetDeployment is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="has(self.targetRef) == has(oldSelf.targetRef) && (!has(self.targetRef) || self.targetRef == oldSelf.targetRef)",message="targetRef is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="self.duration == oldSelf.duration",message="duration is immutable: set stop: true to end early, or create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="has(self.filter) == has(oldSelf.filter) && (!has(self.filter) || self.filter == oldSelf.filter)",message="filter is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="self.snapLength == oldSelf.snapLength",message="snapLength is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="has(self.interfaces) == has(oldSelf.interfaces) && (!has(self.interfaces) || self.interfaces == oldSelf.interfaces)",message="interfaces is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="self.maxBytes == oldSelf.maxBytes",message="maxBytes is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="has(self.maxPackets) == has(oldSelf.maxPackets) && (!has(self.maxPackets) || self.maxPackets == oldSelf.maxPackets)",message="maxPackets is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="has(self.rotate) == has(oldSelf.rotate) && (!has(self.rotate) || self.rotate == oldSelf.rotate)",message="rotate is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="!has(self.rotate) || self.rotate.maxBytes * self.rotate.files <= self.maxBytes",message="rotate.maxBytes times rotate.files must not be above maxBytes, which bounds all files of a Pod: write smaller or fewer files, or a larger maxBytes"
// +kubebuilder:validation:XValidation:rule="self.engine == oldSelf.engine",message="engine is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="(has(self.processes) && self.processes) == (has(oldSelf.processes) && oldSelf.processes)",message="processes is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="!(has(self.processes) && self.processes) || self.engine != 'afpacket'",message="engine afpacket cannot name processes: set engine to auto or bpf, or leave out processes"
// +kubebuilder:validation:XValidation:rule="self.followPods == oldSelf.followPods",message="followPods is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="self.retainFor == oldSelf.retainFor",message="retainFor is immutable: create a new PacketCapture"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.stop) && oldSelf.stop) || (has(self.stop) && self.stop)",message="a stopped capture cannot be started again: create a new PacketCapture"
type PacketCaptureSpec struct {
	// jobId is the last part of the Jobs' names: four of [a-z0-9]. The operator chooses one if it is
	// absent (see status.jobId). It must differ between the running captures of one workload in a namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]{4}$')",message="jobId must be four characters of [a-z0-9], like qwer; leave it out to let the operator choose one"
	JobID string `json:"jobId,omitempty"`

	// targetNamespace is where the target runs; by default the capture's own namespace. Another
	// one is allowed only in a namespace labelled monitoring.openshift.tpg/hub=true.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="targetNamespace must be the name of a namespace, like shop; leave it out for the capture's own"
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// targetDeployment names the Deployment whose Pods are captured; it is short for a targetRef of that kind.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$')",message="targetDeployment must be the name of a Deployment, like web"
	TargetDeployment string `json:"targetDeployment,omitempty"`

	// targetRef names the workload whose Pods are captured.
	// +optional
	TargetRef *TargetReference `json:"targetRef,omitempty"`

	// duration of the capture of each Pod: seconds ("30") or a duration ("90s", "5m", "1h30m"); 1 s to
	// 24 h, by default 60s.
	// +optional
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="duration must be seconds, like \"30\", or hours, minutes and seconds, like \"90s\", \"5m\" or \"1h30m\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? (int(self) >= 1 && int(self) <= 86400) : (duration(self) >= duration('1s') && duration(self) <= duration('24h')))",message="duration must lie between 1s and 24h (the operator may allow less)"
	Duration string `json:"duration,omitempty"`

	// filter is a pcap-filter(7) expression; empty captures everything. Host and service names are
	// refused: write addresses and port numbers.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Filter string `json:"filter,omitempty"`

	// snapLength is how many bytes of each packet are kept; by default 262144, which truncates no packet.
	// +optional
	// +kubebuilder:default=262144
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=262144
	SnapLength int32 `json:"snapLength,omitempty"`

	// interfaces of the Pod's network namespace to capture on; by default all, loopback too.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:Pattern=`^[!-.0-~]+$`
	Interfaces []string `json:"interfaces,omitempty"`

	// maxBytes is the largest size of one Pod's file, in bytes, by default 1073741824 (1 GiB); the
	// capture of that Pod ends before it would be exceeded.
	// +optional
	// +kubebuilder:default=1073741824
	// +kubebuilder:validation:Minimum=65536
	// +kubebuilder:validation:Maximum=1099511627776
	MaxBytes int64 `json:"maxBytes,omitempty"`

	// rotate keeps the newest packets of each Pod in a ring of files: the oldest file is removed before the next one
	// begins. maxBytes then does not end the capture; maxPackets counts all packets, including removed ones.
	// +optional
	Rotate *Rotate `json:"rotate,omitempty"`

	// maxPackets ends the capture of a Pod after exactly this many packets; by default there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPackets *int64 `json:"maxPackets,omitempty"`

	// engine reads the packets: bpf (programs at tcx, or at clsact below Linux 6.6), afpacket (packet sockets), or auto, which is bpf where
	// the node's kernel and the probe's rights allow it, and afpacket otherwise. By default auto.
	// +optional
	// +kubebuilder:default=auto
	Engine CaptureEngine `json:"engine,omitempty"`

	// processes makes each packet of the files name the process of the Pod that it belongs to, or say why that is not known. It needs
	// engine bpf or auto. Where auto falls back to packet sockets no process is named: the Pod's entry in the status says so. By
	// default false.
	// +optional
	Processes bool `json:"processes,omitempty"`

	// followPods gives a Pod that joins the target during the capture a Job of its own; by default true.
	// +optional
	// +kubebuilder:default=true
	FollowPods *bool `json:"followPods,omitempty"`

	// retainFor is how long a Pod's file can be downloaded after its capture ended: seconds or a
	// duration; 10 s to 168 h, by default 1h.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="retainFor must be seconds, like \"600\", or hours, minutes and seconds, like \"10m\" or \"1h\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? (int(self) >= 10 && int(self) <= 604800) : (duration(self) >= duration('10s') && duration(self) <= duration('168h')))",message="retainFor must lie between 10s and 168h"
	RetainFor string `json:"retainFor,omitempty"`

	// stop ends the capture now; what was captured so far is kept. It cannot be undone.
	// +optional
	Stop bool `json:"stop,omitempty"`
}

// CaptureEngine is how probes read packets from a node's kernel.
//
// +kubebuilder:validation:Enum=auto;bpf;afpacket
type CaptureEngine string

// Engines.
const (
	// EngineAuto is EngineBPF where it is available, and EngineAFPacket elsewhere.
	EngineAuto CaptureEngine = "auto"
	// EngineBPF fails where it is not available.
	EngineBPF CaptureEngine = "bpf"
	// EngineAFPacket works on every kernel.
	EngineAFPacket CaptureEngine = "afpacket"
)

// Rotate is a ring of files.
type Rotate struct {
	// maxBytes is the largest size of one file of the ring, in bytes. At most half of it is kept of a single
	// packet.
	// +required
	// +kubebuilder:validation:Minimum=65536
	// +kubebuilder:validation:Maximum=1099511627776
	MaxBytes int64 `json:"maxBytes,omitempty"`

	// files is the largest number of files at any moment.
	// +required
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=16
	Files int32 `json:"files,omitempty"`
}

// PacketCapture records the packets of every Pod of one workload, into one pcapng file per Pod.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pcap,categories=sonde
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.target`
// +kubebuilder:printcolumn:name="JobID",type=string,JSONPath=`.status.jobId`
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.totals.pods`
// +kubebuilder:printcolumn:name="Packets",type=integer,JSONPath=`.status.totals.packets`
// +kubebuilder:printcolumn:name="Dropped",type=integer,JSONPath=`.status.totals.dropped`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PacketCapture struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PacketCaptureSpec `json:"spec,omitzero"`
	// +optional
	Status CaptureStatus `json:"status,omitzero"`
}

// PacketCaptureList is a list of PacketCaptures.
//
// +kubebuilder:object:root=true
type PacketCaptureList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PacketCapture `json:"items"`
}
