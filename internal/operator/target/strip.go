package target

import (
	"maps"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// maxText bounds what is kept of a text that anybody may have written and that the API does not bound
// for us: the owner and the annotations of Pods. Names have at most 253 bytes.
const maxText = 512

// labels of Sonde's kinds that are read: naming.Labels copies them.
var ownLabels = []string{
	sondev1.LabelAppName, sondev1.LabelAppInstance, sondev1.LabelAppPartOf, sondev1.LabelAppManagedBy, sondev1.LabelAppCreatedBy,
}

// Strip is the transform of the cache (cache.Options.DefaultTransform). Users may write 256 KiB of
// annotations on each of any number of objects that the operator watches; what it does not read must
// not be in its memory, or anybody with a namespace could fill that.
func Strip(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Pod:
		return StripPod(o)
	case *metav1.PartialObjectMetadata:
		o.ObjectMeta = metav1.ObjectMeta{
			Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion,
			CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp,
			OwnerReferences: controller(o),
			Labels:          pick(o.Labels, sondev1.LabelHub, sondev1.LabelOptOut, sondev1.LabelUID, sondev1.LabelKind, sondev1.LabelTargetPodUID),
			Annotations:     short(pick(o.Annotations, sondev1.AnnotationOwner)),
		}
	case sondev1.Capture:
		stripOwn(o)
	case *sondev1.ResultAccess:
		stripOwn(o)
	}
	return cache.TransformStripManagedFields()(o)
}

// stripOwn keeps of a resource of ours what its controller reads. The stamp bounds the claim.
func stripOwn(o metav1.Object) {
	o.SetLabels(pick(o.GetLabels(), ownLabels...))
	o.SetAnnotations(pick(o.GetAnnotations(), sondev1.AnnotationRequester, sondev1.AnnotationStamp))
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
}

// controller keeps the one owner that says what an object is a part of.
func controller(o metav1.Object) []metav1.OwnerReference {
	owner := metav1.GetControllerOf(o)
	if owner == nil || len(owner.APIVersion)+len(owner.Kind)+len(owner.Name)+len(owner.UID) > maxText {
		return nil
	}
	return []metav1.OwnerReference{*owner}
}

// workload keeps the controlling owner of a Pod that may be a target by it. Others' Pods, as all of Jobs, have owners
// of their own, each of which would take more room than the rest of the Pod.
func workload(pod *corev1.Pod) []metav1.OwnerReference {
	owners := controller(pod)
	if len(owners) > 0 && owners[0].Kind == "Job" {
		return nil
	}
	return owners
}

// short drops what is too long to be the operator's own.
func short(m map[string]string) map[string]string {
	maps.DeleteFunc(m, func(_, v string) bool { return len(v) > maxText })
	return m
}

// Slim is the transform of the cache of Pods and of that of Jobs (cache.ByObject.Transform): the operator watches
// all Pods of the cluster and keeps of each only what it reads, some hundred bytes instead of some ten thousand.
func Slim(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Pod:
		return SlimPod(o), nil
	case *batchv1.Job:
		return SlimJob(o), nil
	default:
		return o, nil // a tombstone of the informer, or what is compact
	}
}

// SlimPod returns what Slim makes of a Pod.
func SlimPod(pod *corev1.Pod) *slim.Pod {
	kept := stripped(pod)
	return slim.FromPod(&kept)
}

// SlimJob returns what Slim makes of a Job.
func SlimJob(job *batchv1.Job) *slim.Job {
	return slim.FromJob(&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: job.Name, Namespace: job.Namespace, UID: job.UID, ResourceVersion: job.ResourceVersion,
			CreationTimestamp: job.CreationTimestamp, DeletionTimestamp: job.DeletionTimestamp,
			Labels:      pick(job.Labels, sondev1.LabelUID, sondev1.LabelKind, sondev1.LabelTargetPodUID),
			Annotations: pick(job.Annotations, sondev1.AnnotationOwner, sondev1.AnnotationTargetPod, sondev1.AnnotationTargetNode),
		},
		Status: job.Status,
	})
}

// StripPod keeps of a Pod what the operator reads.
func StripPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil // a tombstone of the informer
	}
	kept := stripped(pod)
	return &kept, nil
}

// stripped is what is kept of a Pod. Containers' states are kept for agents' Pods alone, and of a gated Pod that of its
// gate.
func stripped(pod *corev1.Pod) corev1.Pod {
	kept := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			OwnerReferences: workload(pod),
			Labels:          pick(pod.Labels, sondev1.LabelUID, sondev1.LabelKind, sondev1.LabelTargetPodUID),
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork, HostPID: pod.Spec.HostPID,
			RuntimeClassName: pod.Spec.RuntimeClassName,
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, StartTime: pod.Status.StartTime},
	}
	if pod.Labels[sondev1.LabelUID] != "" {
		kept.Annotations = short(pick(pod.Annotations, sondev1.AnnotationOwner, sondev1.AnnotationTargetPod))
		kept.Status.Reason, kept.Status.Message = pod.Status.Reason, pod.Status.Message
		kept.Status.ContainerStatuses = pod.Status.ContainerStatuses
		kept.Status.Conditions = scheduling(pod.Status.Conditions)
		kept.Spec.Containers = restarted(pod.Spec.Containers)
	}
	if pod.Annotations[sondev1.AnnotationGatedByUID] != "" {
		stripGated(&kept, pod)
	}
	return kept
}

// stripGated keeps by whom a Pod is gated, and how its gate is. Anybody can write both: they are kept short.
func stripGated(kept, pod *corev1.Pod) {
	gatedBy := short(pick(pod.Annotations, sondev1.AnnotationGatedByUID))
	if len(gatedBy) == 0 {
		return
	}
	if kept.Annotations == nil {
		kept.Annotations = gatedBy
	} else {
		maps.Copy(kept.Annotations, gatedBy)
	}
	if pod.Labels[sondev1.LabelTraceRequired] == "true" {
		if kept.Labels == nil {
			kept.Labels = map[string]string{}
		}
		kept.Labels[sondev1.LabelTraceRequired] = "true"
	}
	for i := range pod.Status.InitContainerStatuses {
		of := &pod.Status.InitContainerStatuses[i]
		if of.Name != gateconfig.ContainerName {
			continue
		}
		state := *of.State.DeepCopy()
		if last := of.LastTerminationState.Terminated; state.Waiting != nil && last != nil {
			// It waits to be started again: why it ended is what counts.
			state = corev1.ContainerState{Terminated: last.DeepCopy()}
		}
		if w := state.Waiting; w != nil {
			w.Message = shorten(w.Message)
		}
		if t := state.Terminated; t != nil {
			t.Message = shorten(t.Message)
		}
		kept.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: of.Name, State: state}}
		return
	}
}

// shorten cuts a text of which the beginning says enough.
func shorten(s string) string {
	return strings.Clone(text.Truncate(s, maxText))
}

// restarted keeps, of the containers that are started again when they fail, their names and when that is.
func restarted(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for i := range containers {
		if c := &containers[i]; len(c.RestartPolicyRules) > 0 {
			kept = append(kept, corev1.Container{Name: c.Name, RestartPolicyRules: c.RestartPolicyRules})
		}
	}
	return kept
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
