package target

import (
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/claim"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// maxText bounds the texts of users that the API does not bound, such as owners and annotations of Pods, in bytes. Names
// have at most 253 bytes.
const maxText = 512

// ownLabels of Sonde's kinds are kept because naming.Labels copies them.
var ownLabels = []string{
	sondev1.LabelAppName, sondev1.LabelAppInstance, sondev1.LabelAppPartOf, sondev1.LabelAppManagedBy, sondev1.LabelAppCreatedBy,
}

// agentLabels of Jobs and agents' Pods are those that the operator reads.
var agentLabels = []string{sondev1.LabelUID, sondev1.LabelKind, sondev1.LabelTargetPodUID, sondev1.LabelKeeperUser, sondev1.LabelStowaway}

// Strip is the transform of the cache (cache.Options.DefaultTransform). Users may write 256 KiB of annotations on each of any
// number of objects that the operator watches. Without Strip, any user with a namespace could fill the manager's memory
// with data that it never reads.
func Strip(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Pod:
		kept := stripped(o)
		return &kept, nil
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
		if status := o.CaptureStatus(); status.Phase.Final() || !o.GetDeletionTimestamp().IsZero() { // a finalizer may keep a deleted one
			*status = ended(status)
		} else {
			status.Pods = slices.Clone(status.Pods) // decoding leaves room for more
			share(status.Pods)
		}
	case *sondev1.ResultAccess:
		stripOwn(o)
	case *sondev1.InterceptRequest:
		stripOwn(o)
		// Users may keep any number that the webhook admits: those that have ended, and, by a finalizer, those that were deleted. No
		// pass looks at either.
		if o.Ended() || !o.DeletionTimestamp.IsZero() {
			o.Spec, o.Status = sondev1.InterceptRequestSpec{}, sondev1.InterceptRequestStatus{Phase: o.Status.Phase}
		} else {
			o.Status.Pods = slices.Clone(o.Status.Pods) // decoding leaves room for more
			shareIntercepted(o.Status.Pods)
		}
	case *sondev1.Collector:
		stripCollector(o)
	}
	return cache.TransformStripManagedFields()(o)
}

// stripCollector keeps which release a Collector has, and the state of it. A pass reads its own Collector from the API server, because its
// values have up to 512 KiB.
func stripCollector(c *sondev1.Collector) {
	c.SetLabels(nil)
	kept := pick(c.GetAnnotations(), sondev1.AnnotationStamp, sondev1.AnnotationRetry) // a change of them wakes
	if retry, ok := kept[sondev1.AnnotationRetry]; ok {
		kept[sondev1.AnnotationRetry] = shorten(retry) // pass.RetryRequested compares less
	}
	c.SetAnnotations(short(kept))
	c.SetOwnerReferences(nil)
	c.SetFinalizers(nil)
	c.Spec = sondev1.CollectorSpec{Collector: sondev1.CollectorRelease{Name: c.Spec.Collector.Name}, Tenant: c.Spec.Tenant}
	c.Status.History = nil
	for i := range c.Status.Conditions {
		c.Status.Conditions[i].Message = ""
	}
}

// stripOwn keeps the fields of Sonde's objects that their controller reads. Package stamp bounds the requester annotation.
func stripOwn(o metav1.Object) {
	o.SetLabels(pick(o.GetLabels(), ownLabels...))
	kept := pick(o.GetAnnotations(), sondev1.AnnotationRequester, sondev1.AnnotationStamp, sondev1.AnnotationStoppedBy)
	if len(kept[sondev1.AnnotationStoppedBy]) > stamp.MaxStopBytes {
		delete(kept, sondev1.AnnotationStoppedBy) // written by a user
	}
	o.SetAnnotations(kept)
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
}

// ended keeps what the operator reads again and again of a capture that has ended: users may keep as many as a namespace may have,
// for ever. Of the Pods it keeps how many had Jobs, and when the last file is deleted. The rest is in the API server, for the few passes
// and requests that need it.
func ended(status *sondev1.CaptureStatus) sondev1.CaptureStatus {
	kept := sondev1.CaptureStatus{
		Phase: status.Phase, JobID: status.JobID, ObservedGeneration: status.ObservedGeneration, Totals: sondev1.Totals{Pods: status.Totals.Pods},
	}
	if status.PodsOmitted > 0 { // when their files are deleted is in no entry
		kept.PodsOmitted, kept.CompletionTime = status.PodsOmitted, status.CompletionTime
	}
	for i := range status.Pods {
		e := &status.Pods[i]
		if e.AvailableUntil != nil && (kept.Pods == nil || kept.Pods[0].AvailableUntil.Before(e.AvailableUntil)) {
			kept.Pods = []sondev1.PodResult{{UID: e.UID, Phase: e.Phase, AvailableUntil: e.AvailableUntil}}
		}
	}
	return kept
}

// share keeps equal texts and equal lists of entries once. A user can fill each of 200 entries with 16 long names of containers
// that the Pods lack. Readers of the cache get copies, or must not change it.
func share(entries []sondev1.PodResult) {
	once, lists := sharer(), map[string][]string{}
	for i := range entries {
		e := &entries[i]
		for _, s := range []*string{&e.Node, (*string)(&e.Phase), &e.Reason, &e.Message, &e.Engine, &e.EngineMessage} {
			once(s)
		}
		names := strings.Join(e.ContainersNotFound, ",")
		if shared := lists[names]; slices.Equal(shared, e.ContainersNotFound) {
			e.ContainersNotFound = shared
			continue
		}
		for k := range e.ContainersNotFound {
			once(&e.ContainersNotFound[k])
		}
		lists[names] = e.ContainersNotFound
	}
}

// sharer returns a function that replaces a text by an equal one that it got before.
func sharer() func(*string) {
	texts := map[string]string{}
	return func(s *string) {
		if shared, ok := texts[*s]; ok {
			*s = shared
		} else {
			texts[*s] = *s
		}
	}
}

// shareIntercepted does for the Pods of an InterceptRequest what share does for those of a capture: many have one node, and wait for the
// same.
func shareIntercepted(entries []sondev1.InterceptPod) {
	once := sharer()
	for i := range entries {
		once(&entries[i].Node)
		once(&entries[i].Message)
	}
}

// controller keeps the controlling owner.
func controller(o metav1.Object) []metav1.OwnerReference {
	owner := metav1.GetControllerOf(o)
	if owner == nil || len(owner.APIVersion)+len(owner.Kind)+len(owner.Name)+len(owner.UID) > maxText {
		return nil
	}
	return []metav1.OwnerReference{*owner}
}

// workload keeps the controlling owner of a Pod unless it is a Job, which cannot be a target. Few Pods share a Job, so the
// references to Jobs would take more memory than the rest of the Pods. Evictions of a Pod with a claim back off by its owner.
func workload(pod *corev1.Pod) []metav1.OwnerReference {
	owners := controller(pod)
	if named := pod.Annotations[sondev1.AnnotationClaim]; len(owners) > 0 && owners[0].Kind == "Job" && (named == "" || len(named) > maxText) {
		return nil
	}
	return owners
}

// short drops values that are too long to be the operator's own.
func short(m map[string]string) map[string]string {
	maps.DeleteFunc(m, func(_, v string) bool { return len(v) > maxText })
	return m
}

// Slim returns the transform of the caches of Pods and of Jobs (cache.ByObject.Transform). The operator watches all Pods of the
// cluster and keeps of each only the fields that it reads: some hundred bytes instead of some ten thousand. Only Pods of the
// operator's namespace can be agents'.
func Slim(operatorNamespace string) func(o any) (any, error) {
	return func(o any) (any, error) {
		switch o := o.(type) {
		case *corev1.Pod:
			if o.Namespace == operatorNamespace {
				return SlimAgent(o), nil
			}
			return SlimPod(o), nil
		case *batchv1.Job:
			return SlimJob(o), nil
		default:
			return o, nil // a tombstone of the informer, or already slim
		}
	}
}

// SlimPod is Slim for a Pod that may be a target.
func SlimPod(pod *corev1.Pod) *slim.Pod {
	kept := stripped(pod)
	return slim.FromPod(&kept)
}

// SlimAgent is Slim for a Pod of the operator's namespace. It keeps more of an agent's Pod.
func SlimAgent(pod *corev1.Pod) *slim.Pod { return slim.FromPod(StripAgent(pod)) }

// SlimJob is Slim for a Job.
func SlimJob(job *batchv1.Job) *slim.Job {
	return slim.FromJob(&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: job.Name, Namespace: job.Namespace, UID: job.UID, ResourceVersion: job.ResourceVersion,
			CreationTimestamp: job.CreationTimestamp, DeletionTimestamp: job.DeletionTimestamp,
			Labels: pick(job.Labels, agentLabels...),
			Annotations: pick(job.Annotations, sondev1.AnnotationOwner, sondev1.AnnotationTargetPod, sondev1.AnnotationTargetNode, sondev1.AnnotationCarrierKey,
				sondev1.AnnotationContainersNotFound),
		},
		Status: job.Status,
	})
}

// stripped keeps the fields of a Pod that the operator reads of a target, and the state of the gate if it is gated.
func stripped(pod *corev1.Pod) corev1.Pod {
	kept := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			OwnerReferences: workload(pod),
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork, HostPID: pod.Spec.HostPID,
			RuntimeClassName: pod.Spec.RuntimeClassName, Volumes: claims(pod.Spec.Volumes),
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, StartTime: pod.Status.StartTime},
	}
	if pod.Annotations[sondev1.AnnotationGatedByUID] != "" {
		stripGated(&kept, pod)
	}
	if named := short(pick(pod.Annotations, sondev1.AnnotationClaim)); len(named) > 0 {
		if kept.Annotations == nil {
			kept.Annotations = map[string]string{}
		}
		maps.Copy(kept.Annotations, named)
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed { // then nobody asks for the sidecar
			kept.Status.ContainerStatuses = states(&pod.Status)
		}
	}
	return kept
}

// maxClaims of a Pod in the cache. A Pod gets one from a FluentPVC; one that looks into several volumes may have some more. A Pod may
// have as many as it likes, so without a bound a few Pods could fill the manager's memory.
const maxClaims = 8

// claims keeps the names of a Pod's first PersistentVolumeClaims that the webhook for FluentPVCs may have made up.
func claims(volumes []corev1.Volume) []corev1.Volume {
	var kept []corev1.Volume
	for i := range volumes {
		if c := volumes[i].PersistentVolumeClaim; c != nil && len(kept) < maxClaims && claim.IsName(c.ClaimName) {
			kept = append(kept, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.ClaimName},
			}})
		}
	}
	return kept
}

// maxStates of a Pod's containers in the cache. A Pod may have thousands, and any Pod may have the annotation of a claim.
const maxStates = 64

// states keeps of a Pod with a FluentPVC which containers have ended or restarted, for one of them may be the sidecar, and the two that
// have run for the longest time: one more than the sidecar. It keeps none of their texts. A Native sidecar is an init container, so these
// are kept as containers too. Whether they run is left out: they are not the application that a sidecar must not leave alone.
func states(status *corev1.PodStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	oldest := longest(status.ContainerStatuses)
	for list, all := range [][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range all {
			c := &all[i]
			runs := c.State.Running != nil && list == 0
			down := c.State.Terminated != nil || c.RestartCount > 0
			if !down && (!runs || !slices.Contains(oldest, i)) || len(kept) == maxStates {
				continue
			}
			state := corev1.ContainerStatus{Name: c.Name, RestartCount: c.RestartCount}
			if last := c.LastTerminationState.Terminated; last != nil {
				state.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: last.FinishedAt}
			}
			switch {
			case runs:
				state.State.Running = &corev1.ContainerStateRunning{StartedAt: c.State.Running.StartedAt}
			case c.State.Terminated != nil:
				state.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: c.State.Terminated.ExitCode}
			}
			kept = append(kept, state)
		}
	}
	return kept
}

// longest returns the indexes of the two containers that have run for the longest time, or of fewer.
func longest(all []corev1.ContainerStatus) []int {
	var oldest []int
	for i := range all {
		if all[i].State.Running == nil {
			continue
		}
		at := len(oldest)
		for at > 0 && all[i].State.Running.StartedAt.Before(&all[oldest[at-1]].State.Running.StartedAt) {
			at--
		}
		oldest = slices.Insert(oldest, at, i)
		oldest = oldest[:min(len(oldest), 2)]
	}
	return oldest
}

// StripAgent keeps the fields of a Pod of the operator's namespace that the operator reads. If it is an agent's Pod, these include
// its labels, which others could write on Pods of theirs, and the states of its containers.
func StripAgent(pod *corev1.Pod) *corev1.Pod {
	kept := stripped(pod)
	if pod.Labels[sondev1.LabelUID] == "" {
		return &kept
	}
	gate := kept.Labels
	kept.Labels = pick(pod.Labels, agentLabels...)
	maps.Copy(kept.Labels, gate)
	if own := short(pick(pod.Annotations, sondev1.AnnotationOwner, sondev1.AnnotationTargetPod)); kept.Annotations == nil {
		kept.Annotations = own
	} else {
		maps.Copy(kept.Annotations, own)
	}
	kept.Status.Reason, kept.Status.Message = shorten(pod.Status.Reason), shorten(pod.Status.Message)
	kept.Status.ContainerStatuses = pod.Status.ContainerStatuses
	kept.Status.Conditions = scheduling(pod.Status.Conditions)
	kept.Spec.Containers = restarted(pod.Spec.Containers)
	return &kept
}

// stripGated keeps the UID of the Trace that gates a Pod, and the state of the gate. Users can write both, so they are
// bounded.
func stripGated(kept, pod *corev1.Pod) {
	gatedBy := short(pick(pod.Annotations, sondev1.AnnotationGatedByUID))
	if len(gatedBy) == 0 {
		return
	}
	kept.Annotations = gatedBy
	if pod.Labels[sondev1.LabelTraceRequired] == "true" {
		kept.Labels = map[string]string{sondev1.LabelTraceRequired: "true"}
	}
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if status.Name != gateconfig.ContainerName {
			continue
		}
		state := *status.State.DeepCopy()
		if last := status.LastTerminationState.Terminated; state.Waiting != nil && last != nil {
			// It waits for its restart. The reason why it ended matters.
			state = corev1.ContainerState{Terminated: last.DeepCopy()}
		}
		if w := state.Waiting; w != nil {
			w.Message = shorten(w.Message)
		}
		if t := state.Terminated; t != nil {
			t.Message, t.ContainerID = shorten(t.Message), shorten(t.ContainerID)
		}
		kept.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: status.Name, State: state}}
		return
	}
}

// shorten bounds a text, and copies it so that the rest can be freed.
func shorten(s string) string { return strings.Clone(text.Truncate(s, maxText)) }

// restarted keeps the names and the restart rules of containers that are restarted when they fail.
func restarted(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for i := range containers {
		if c := &containers[i]; len(c.RestartPolicyRules) > 0 {
			kept = append(kept, corev1.Container{Name: c.Name, RestartPolicyRules: c.RestartPolicyRules})
		}
	}
	return kept
}

// pick copies entries, so that the rest of the map can be freed.
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

// scheduling keeps the condition that says why an agent's Pod has no node.
func scheduling(conditions []corev1.PodCondition) []corev1.PodCondition {
	for _, c := range conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			c.Message = shorten(c.Message)
			return []corev1.PodCondition{c}
		}
	}
	return nil
}
