package target

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// StripPod is the transform of the cache of Pods (cache.ByObject.Transform): the operator watches
// all Pods of the cluster and keeps of each only what it reads, some hundred bytes instead of some
// ten thousand. Containers' states are kept for agents' Pods alone.
func StripPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil // a tombstone of the informer
	}
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			OwnerReferences: pod.OwnerReferences,
			Labels:          pick(pod.Labels, sondev1.LabelUID, sondev1.LabelKind, sondev1.LabelTargetPodUID),
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork, HostPID: pod.Spec.HostPID,
			RuntimeClassName: pod.Spec.RuntimeClassName,
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, StartTime: pod.Status.StartTime},
	}
	if pod.Labels[sondev1.LabelUID] != "" {
		kept.Annotations = pick(pod.Annotations, sondev1.AnnotationOwner, sondev1.AnnotationTargetPod)
		kept.Status.Reason, kept.Status.Message = pod.Status.Reason, pod.Status.Message
		kept.Status.ContainerStatuses = pod.Status.ContainerStatuses
		kept.Status.Conditions = scheduling(pod.Status.Conditions)
	}
	return kept, nil
}

// pick copies the named entries, so that the rest of the map can be freed.
func pick(from map[string]string, keys ...string) map[string]string {
	var kept map[string]string
	for _, k := range keys {
		if v, ok := from[k]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[k] = v
		}
	}
	return kept
}

// scheduling keeps the condition that says why an agent's Pod does not start.
func scheduling(conditions []corev1.PodCondition) []corev1.PodCondition {
	for _, c := range conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return []corev1.PodCondition{c}
		}
	}
	return nil
}
