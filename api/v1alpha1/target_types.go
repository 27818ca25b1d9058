package v1alpha1

// TargetKind names a kind of workload.
//
// +kubebuilder:validation:Enum=Deployment;StatefulSet;DaemonSet;Pod
type TargetKind string

// Kinds of workload that can be a target.
const (
	TargetDeployment  TargetKind = "Deployment"
	TargetStatefulSet TargetKind = "StatefulSet"
	TargetDaemonSet   TargetKind = "DaemonSet"
	TargetPod         TargetKind = "Pod"
)

// TargetReference names a workload in the target namespace.
type TargetReference struct {
	// kind of the workload.
	// +required
	Kind TargetKind `json:"kind,omitempty"`

	// name of the workload.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// String returns Kind/name.
func (t TargetReference) String() string { return string(t.Kind) + "/" + t.Name }
