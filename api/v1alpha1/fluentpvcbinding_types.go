package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BindingPhase is the state of one Pod's volume. docs/fluentpvc.md draws the transitions.
//
// +kubebuilder:validation:Enum=Pending;Ready;OutOfUse;FinalizerJobApplied;FinalizerJobSucceeded;FinalizerJobFailed;Discarded;Unknown;DataLost
type BindingPhase string

// Phases of a binding.
const (
	// BindingPending: the volume's claim does not exist yet. The Pod waits for it.
	BindingPending BindingPhase = "Pending"
	// BindingReady: the claim exists, and the Pod has not ended.
	BindingReady BindingPhase = "Ready"
	// BindingOutOfUse: the Pod has ended, and no finalizer Job exists.
	BindingOutOfUse BindingPhase = "OutOfUse"
	// BindingFinalizerJobApplied: a finalizer Job exists and has not ended.
	BindingFinalizerJobApplied BindingPhase = "FinalizerJobApplied"
	// BindingFinalizerJobSucceeded: the data is processed. The claim is deleted after its retention.
	BindingFinalizerJobSucceeded BindingPhase = "FinalizerJobSucceeded"
	// BindingFinalizerJobFailed: all attempts have failed. The claim is kept until someone retries or discards it.
	BindingFinalizerJobFailed BindingPhase = "FinalizerJobFailed"
	// BindingDiscarded: a user gave the data up, or the claim never had a volume. The claim is deleted.
	BindingDiscarded BindingPhase = "Discarded"
	// BindingUnknown: the claim is missing, or has lost its volume.
	BindingUnknown BindingPhase = "Unknown"
	// BindingDataLost: the claim has gone before its data was processed.
	BindingDataLost BindingPhase = "DataLost"
)

// Condition types of a binding. Every condition is written on every pass.
const (
	// ConditionClaimCreated: the PersistentVolumeClaim exists.
	ConditionClaimCreated = "ClaimCreated"
	// ConditionSidecarHealthy: the sidecar runs, or its Pod has ended.
	ConditionSidecarHealthy = "SidecarHealthy"
	// ConditionFinalized: a finalizer Job has processed the data.
	ConditionFinalized = "Finalized"
)

// Reasons of a binding's conditions.
const (
	ReasonClaimCreated        = "ClaimCreated"        //
	ReasonClaimPending        = "ClaimPending"        // not created yet
	ReasonClaimRefused        = "ClaimRefused"        // the API server refused it, for example because of a quota
	ReasonClaimConflict       = "ClaimConflict"       // a claim that the operator did not make has the name
	ReasonClaimLost           = "ClaimLost"           // the claim, or its volume, is gone
	ReasonClaimDeleted        = "ClaimDeleted"        // deleted after its data was processed or discarded
	ReasonNotPermitted        = "NotPermitted"        // the namespace's admin has withdrawn the operator's right
	ReasonNamespaceEnding     = "NamespaceEnding"     // the namespace is being deleted
	ReasonPodRunning          = "PodRunning"          //
	ReasonPodEnded            = "PodEnded"            //
	ReasonSidecarEnded        = "SidecarEnded"        // the sidecar ended or restarted while another container ran
	ReasonEvictionBlocked     = "EvictionBlocked"     // a PodDisruptionBudget keeps the Pod
	ReasonClaimInUse          = "ClaimInUse"          // another Pod uses the claim
	ReasonJobRunning          = "JobRunning"          //
	ReasonJobSucceeded        = "JobSucceeded"        //
	ReasonJobFailed           = "JobFailed"           // an attempt failed, and another follows
	ReasonAttemptsExhausted   = "AttemptsExhausted"   // the last attempt failed
	ReasonFinalizerRefused    = "FinalizerRefused"    // the API server refused the finalizer Job
	ReasonDiscarded           = "Discarded"           // a user gave the data up
	ReasonSidecarUnsupervised = "SidecarUnsupervised" // the FluentPVC does not ask for evictions
)

// Annotations with which users act on a binding. Their values do not matter.
const (
	// AnnotationRetry makes the operator try again after all attempts have failed.
	AnnotationRetry = "monitoring.openshift.tpg/retry"
	// AnnotationDiscard gives the volume's data up: the claim is deleted.
	AnnotationDiscard = "monitoring.openshift.tpg/discard"
)

// ObjectReference names an object by name and UID.
type ObjectReference struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// uid of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
}

// FluentPVCBindingSpec has everything that is needed to finish a Pod's data, so that the FluentPVC may change or go at any time.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a FluentPVCBinding is immutable"
type FluentPVCBindingSpec struct {
	// fluentPVC that the Pod named when it was created.
	// +required
	FluentPVC ObjectReference `json:"fluentPVC,omitzero"`

	// pod that has the volume.
	// +required
	Pod ObjectReference `json:"pod,omitzero"`

	// template is the spec of the FluentPVC when the Pod was created.
	// +required
	Template FluentPVCSpec `json:"template,omitzero"`
}

// FluentPVCBindingStatus is what the operator last observed.
type FluentPVCBindingStatus struct {
	// phase of the volume.
	// +optional
	Phase BindingPhase `json:"phase,omitempty"`

	// attempt is the number of the current or last finalizer Job, from 1.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`

	// failures counts the finalizer Jobs that failed since the last retry.
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// phaseTime is when the phase began.
	// +optional
	PhaseTime *metav1.Time `json:"phaseTime,omitempty"`

	// retried is the value of the retry annotation that was acted on last.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Retried string `json:"retried,omitempty"`

	// conditions of the binding.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FluentPVCBinding follows the volume of one Pod from its creation until its data is processed and the volume is deleted. It has
// the name of its PersistentVolumeClaim. Only the operator creates, changes and deletes bindings.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=fluentpvcbindings,singular=fluentpvcbinding,categories=sonde
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="FluentPVC",type=string,JSONPath=`.spec.fluentPVC.name`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.pod.name`
// +kubebuilder:printcolumn:name="PVC",type=string,JSONPath=`.metadata.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type FluentPVCBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec FluentPVCBindingSpec `json:"spec,omitzero"`
	// +optional
	Status FluentPVCBindingStatus `json:"status,omitzero"`
}

// FluentPVCBindingList is a list of FluentPVCBindings.
//
// +kubebuilder:object:root=true
type FluentPVCBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FluentPVCBinding `json:"items"`
}
