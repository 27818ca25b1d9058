package gate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// copied are the resources that LimitRanges and the QoS class depend on. The gate needs no devices.
var copied = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// minMemory in bytes is the smallest limit of the gate, which was measured to use 6 MiB.
const minMemory = 16 << 20

// resources returns the resources of the main container with the highest memory limit. A LimitRange or a ResourceQuota could
// refuse other figures, and they could change the Pod's QoS class. The gate is an init container and runs before the main ones, so
// the Pod as a whole needs no more.
func resources(spec *corev1.PodSpec) corev1.ResourceRequirements {
	var from corev1.ResourceRequirements
	for i, c := range spec.Containers {
		if i == 0 || allowsMoreMemory(c.Resources.Limits, from.Limits) {
			from = c.Resources
		}
	}
	r := corev1.ResourceRequirements{Requests: pick(from.Requests), Limits: pick(from.Limits)}
	// Pod-level resources bound all containers, so the gate must not raise its own.
	if limit, ok := r.Limits[corev1.ResourceMemory]; ok && spec.Resources == nil && limit.Value() < minMemory {
		floor := *resource.NewQuantity(minMemory, resource.BinarySI)
		if request, ok := r.Requests[corev1.ResourceMemory]; ok && request.Cmp(limit) == 0 {
			r.Requests[corev1.ResourceMemory] = floor // Guaranteed stays Guaranteed
		}
		r.Limits[corev1.ResourceMemory] = floor
	}
	return r
}

// allowsMoreMemory reports whether limits a allow more memory than b. No limit allows the most.
func allowsMoreMemory(a, b corev1.ResourceList) bool {
	limitB, bounded := b[corev1.ResourceMemory]
	limitA, ok := a[corev1.ResourceMemory]
	return bounded && (!ok || limitA.Cmp(limitB) > 0)
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
