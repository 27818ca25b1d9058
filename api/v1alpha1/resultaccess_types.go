package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResultAccessSpec asks for the results of one capture. It is immutable.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a ResultAccess is immutable: create a new one"
type ResultAccessSpec struct {
	// captureRef names the capture, in the same namespace.
	// +required
	CaptureRef CaptureReference `json:"captureRef,omitzero"`

	// tokenHash is the SHA-256, in lower-case hex, of a token that the client chose and sends with
	// each request; the token itself is never in the API. A hash that another ResultAccess has is refused.
	// +required
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	TokenHash string `json:"tokenHash,omitempty"`

	// expirationSeconds is how long the access lasts, in seconds.
	// +optional
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600
	ExpirationSeconds int32 `json:"expirationSeconds,omitempty"`
}

// CaptureKind names a kind that has results.
//
// +kubebuilder:validation:Enum=PacketCapture;Trace
type CaptureKind string

// Kinds that have results.
const (
	CapturePacketCapture CaptureKind = "PacketCapture"
	CaptureTrace         CaptureKind = "Trace"
)

// CaptureReference names a capture in the same namespace.
type CaptureReference struct {
	// kind of the capture.
	// +required
	Kind CaptureKind `json:"kind,omitempty"`
	// name of the capture.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// ResultAccess lets the holder of its token read the results of one capture, for a short time. The
// webhook admits it only for a user who may capture the target's Pods at that moment. The manager
// checks the right again on each request, and deletes the ResultAccess when it has expired.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=resultaccesses,singular=resultaccess,categories=sonde
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.captureRef.kind`
// +kubebuilder:printcolumn:name="Capture",type=string,JSONPath=`.spec.captureRef.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResultAccess struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec ResultAccessSpec `json:"spec,omitzero"`
}

// ResultAccessList is a list of ResultAccesses.
//
// +kubebuilder:object:root=true
type ResultAccessList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResultAccess `json:"items"`
}
