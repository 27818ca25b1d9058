package gate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// copied are the resources that LimitRanges and the class of service look at. Devices are not: the gate needs none.
var copied = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// minMemory in bytes is what a limit must leave to the gate, which was seen to use 6 MiB.
const minMemory = 16 << 20

// resources returns those of the one of the Pod's main containers that may use the most memory. Figures of the gate's
// own could be refused by a LimitRange or a ResourceQuota, and would take a Pod from its class of service (one without
// any is BestEffort, one with limits only is Guaranteed). As an init container it runs before the others, so the Pod as
// a whole needs no more by it.
func resources(spec *corev1.PodSpec) corev1.ResourceRequirements {
	var from corev1.ResourceRequirements
	for i, c := range spec.Containers {
		if i == 0 || roomier(c.Resources.Limits, from.Limits) {
			from = c.Resources
		}
	}
	r := corev1.ResourceRequirements{Requests: pick(from.Requests), Limits: pick(from.Limits)}
	// Pod-level figures bound the containers': nothing is raised there.
	if limit, ok := r.Limits[corev1.ResourceMemory]; ok && spec.Resources == nil && limit.Value() < minMemory {
		floor := *resource.NewQuantity(minMemory, resource.BinarySI)
		if request, ok := r.Requests[corev1.ResourceMemory]; ok && request.Cmp(limit) == 0 {
			r.Requests[corev1.ResourceMemory] = floor // Guaranteed stays Guaranteed
		}
		r.Limits[corev1.ResourceMemory] = floor
	}
	return r
}

// roomier reports whether a allows more memory than b. No limit is the most.
func roomier(a, b corev1.ResourceList) bool {
	there, bounded := b[corev1.ResourceMemory]
	here, ok := a[corev1.ResourceMemory]
	return bounded && (!ok || here.Cmp(there) > 0)
}

func pick(from corev1.ResourceList) corev1.ResourceList {
	var to corev1.ResourceList
	for _, name := range copied {
		if q, ok := from[name]; ok {
			if to == nil {
				to = corev1.ResourceList{}
			}
			to[name] = q.DeepCopy()
		}
	}
	return to
}
