package v1alpha1

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SidecarMode is how the sidecar is put into a Pod.
//
// +kubebuilder:validation:Enum=Container;Native
type SidecarMode string

// Modes of the sidecar.
const (
	// SidecarContainer makes the sidecar one of the Pod's containers: a Job's Pod ends only after its sidecar has ended.
	SidecarContainer SidecarMode = "Container"
	// SidecarNative makes it the first init container, with restartPolicy Always: it starts before all other containers, and
	// the kubelet ends it after them.
	SidecarNative SidecarMode = "Native"
)

// Bounds and defaults of a FluentPVC.
const (
	// DefaultFinalizerAttempts is how many finalizer Jobs may fail before an administrator has to act.
	DefaultFinalizerAttempts = 3
	// DefaultFinalizerBackoff is the delay before the second attempt. It doubles with each further one.
	DefaultFinalizerBackoff = "10s"
)

// FinalizerPolicy bounds the attempts to process the data of one volume.
type FinalizerPolicy struct {
	// maxAttempts is how many finalizer Jobs may fail, one after the other, before the volume waits for an administrator;
	// by default 3. The Job's own backoffLimit counts within each.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	MaxAttempts int32 `json:"maxAttempts,omitempty"`

	// backoff before the second attempt: seconds or a duration; 1 s to 1 h, by default 10s. It doubles with each further
	// attempt, up to 1 h.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="finalizer.backoff must be seconds, like \"30\", or hours, minutes and seconds, like \"90s\" or \"5m\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? (int(self) >= 1 && int(self) <= 3600) : (duration(self) >= duration('1s') && duration(self) <= duration('1h')))",message="finalizer.backoff must lie between 1s and 1h"
	Backoff string `json:"backoff,omitempty"`

	// failedRetention is how long a volume whose attempts have all failed is kept before it is deleted with its data: seconds
	// or a duration; 1 m to 8760 h. By default it is kept until someone retries or discards it.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,8}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="finalizer.failedRetention must be seconds, like \"86400\", or hours, minutes and seconds, like \"72h\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,8}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? (int(self) >= 60 && int(self) <= 31536000) : (duration(self) >= duration('1m') && duration(self) <= duration('8760h')))",message="finalizer.failedRetention must lie between 1m and 8760h; leave it out to keep failed volumes"
	FailedRetention string `json:"failedRetention,omitempty"`
}

// FluentPVCSpec describes the volume and the sidecar that each Pod gets, and the Job that processes the volume after the Pod has
// ended. A change applies to Pods that are created later.
//
// The templates are fields of Kubernetes: their schema is left out here, and the API server checks them when the FluentPVC is
// created.
type FluentPVCSpec struct {
	// pvcSpecTemplate is the spec of each PersistentVolumeClaim (PersistentVolumeClaimSpec of v1).
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	PVCSpecTemplate corev1.PersistentVolumeClaimSpec `json:"pvcSpecTemplate"`

	// pvcFinalizerJobSpecTemplate is the spec of the Job that processes a volume after its Pod has ended (JobSpec of batch/v1).
	// The volume, commonVolumes, commonVolumeMounts and commonEnvs are added to each of its containers.
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	PVCFinalizerJobSpecTemplate batchv1.JobSpec `json:"pvcFinalizerJobSpecTemplate"`

	// pvcVolumeName is the name of the volume in the Pod. No volume of the Pod may have it.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="pvcVolumeName must be a DNS label of up to 63 of [a-z0-9-], like fluent-pvc"
	PVCVolumeName string `json:"pvcVolumeName,omitempty"`

	// pvcVolumeMountPath is where each container has the volume, without a colon.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && self != '/' && !self.contains(':')",message="pvcVolumeMountPath must be an absolute path without a colon, like /mnt/fluent-pvc"
	PVCVolumeMountPath string `json:"pvcVolumeMountPath,omitempty"`

	// sidecarContainerTemplate is the container that each Pod gets (Container of v1).
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	SidecarContainerTemplate corev1.Container `json:"sidecarContainerTemplate"`

	// commonEnvs are environment variables of all containers (EnvVar of v1). A variable that a container sets itself wins.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XPreserveUnknownFields
	CommonEnvs []corev1.EnvVar `json:"commonEnvs,omitempty"`

	// commonVolumes are further volumes of the Pod (Volume of v1).
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XPreserveUnknownFields
	CommonVolumes []corev1.Volume `json:"commonVolumes,omitempty"`

	// commonVolumeMounts are further mounts of all containers (VolumeMount of v1).
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XPreserveUnknownFields
	CommonVolumeMounts []corev1.VolumeMount `json:"commonVolumeMounts,omitempty"`

	// deletePodIfSidecarContainerTerminationDetected evicts a Pod whose sidecar has ended or restarted while another of its
	// containers runs; by default true.
	// +optional
	// +kubebuilder:default=true
	DeletePodIfSidecarContainerTerminationDetected *bool `json:"deletePodIfSidecarContainerTerminationDetected,omitempty"`

	// sidecarMode is Container, the default, or Native for a sidecar of Kubernetes: an init container that restarts.
	// +optional
	// +kubebuilder:default=Container
	SidecarMode SidecarMode `json:"sidecarMode,omitempty"`

	// retention is how long a volume is kept after its finalizer Job has succeeded: seconds or a duration; 0 s to 720 h, by
	// default 0s.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="retention must be seconds, like \"600\", or hours, minutes and seconds, like \"10m\" or \"24h\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,7}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? int(self) <= 2592000 : duration(self) <= duration('720h'))",message="retention must be at most 720h"
	Retention string `json:"retention,omitempty"`

	// finalizer bounds the attempts to process a volume.
	// +optional
	// +kubebuilder:default={}
	Finalizer FinalizerPolicy `json:"finalizer,omitzero"`

	// maxBindings is how many volumes of this FluentPVC may exist in one namespace; a further Pod is refused. By default 500.
	// +optional
	// +kubebuilder:default=500
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxBindings int32 `json:"maxBindings,omitempty"`
}

// ConditionReady of a FluentPVC: new Pods that name it get a volume and the sidecar.
const ConditionReady = "Ready"

// Reasons of the condition Ready. ReasonNotAdmitted is one too.
const (
	ReasonConfigured      = "Configured"      //
	ReasonWebhookMissing  = "WebhookMissing"  // the webhook configuration has no webhook for Pods yet
	ReasonWebhookSettling = "WebhookSettling" // the API servers read the webhook configuration
)

// FluentPVCStatus is what the operator last observed.
type FluentPVCStatus struct {
	// conditions has Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FluentPVC gives each Pod that names it a volume of its own and a sidecar. After the Pod has ended, a Job processes the volume,
// and the volume is deleted.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=fluentpvcs,singular=fluentpvc,scope=Cluster,categories=sonde
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.sidecarMode`
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.pvcVolumeMountPath`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a FluentPVC has at most 63 characters, because Pods may carry it as a label"
type FluentPVC struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec FluentPVCSpec `json:"spec,omitzero"`
	// +optional
	Status FluentPVCStatus `json:"status,omitzero"`
}

// FluentPVCList is a list of FluentPVCs.
//
// +kubebuilder:object:root=true
type FluentPVCList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FluentPVC `json:"items"`
}
