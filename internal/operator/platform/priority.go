package platform

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sonde-operator/sonde/internal/agentjob"
)

// probePriority is above ordinary workloads, which have 0, and below the cluster's own. The API does not allow changing
// the value of a PriorityClass: another value needs another name.
const probePriority = 1_000_000

// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,resourceNames=sonde-probe,verbs=create;get;list;watch;patch;delete

// PriorityClass returns the class of Sonde's probes, which wait for room and never preempt a workload. The operator
// makes it rather than the bundle, because OLM v0 leaves cluster-scoped objects without an owner behind.
func PriorityClass() *unstructured.Unstructured {
	return content(schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), &schedulingv1.PriorityClass{
		ObjectMeta:       meta("", agentjob.PriorityClass),
		Value:            probePriority,
		PreemptionPolicy: new(corev1.PreemptNever),
		Description:      "Sonde's probes. Above ordinary workloads in eviction order, never preempting them.",
	})
}
