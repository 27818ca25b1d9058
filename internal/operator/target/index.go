package target

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// Field indexes of the cache.
const (
	// IndexOwnerUID indexes Pods and ReplicaSets by the UID of the controlling owner.
	IndexOwnerUID = "ownerUID"
	// IndexFormer indexes Pods that are being deleted by the kind and the name of their workload, as their owner's name has it
	// (formerKey): the owner may be gone.
	IndexFormer = "former"
	// IndexCapture indexes the ConfigMap and the Secret of a capture by its UID.
	IndexCapture = "capture"
	// IndexPart indexes the Jobs and agents' Pods of a capture by Part.
	IndexPart = "part"
	// IndexServing indexes the agents' Pods of a capture whose keeper runs by Part.
	IndexServing = "serving"
	// IndexOwner indexes the objects of a capture by its namespace and name.
	IndexOwner = "owner"
	// IndexNode indexes Jobs by the node of their target, and agents' Pods by their node, but for those that have ended. A capture keeps
	// thousands of these, if its Pods end all the time.
	IndexNode = "node"
	// IndexKeeperUser indexes Jobs and agents' Pods by the user of their keeper.
	IndexKeeperUser = "keeperUser"
	// IndexTargetNamespace indexes captures that are not final by the namespace of their target.
	IndexTargetNamespace = "targetNamespace"
	// IndexTokenHash indexes ResultAccesses by the hash of their token.
	IndexTokenHash = "tokenHash"
	// IndexAccessTo indexes ResultAccesses by their capture: its kind, a slash, and its name.
	IndexAccessTo = "accessTo"
	// IndexAccessTarget indexes ResultAccesses by the UID of the target's namespace, as their stamp has it.
	IndexAccessTarget = "accessTarget"
)

// Index is one field index, as the arguments of IndexField.
type Index struct {
	Object  client.Object
	Field   string
	Extract client.IndexerFunc
}

// Indexes that Resolve and Wakes need, for captures of all kinds.
var Indexes = slices.Concat(captureIndexes(), []Index{
	{&corev1.Pod{}, IndexOwnerUID, ownerUID},
	{ReplicaSetMetadata(), IndexOwnerUID, ownerUID},
	{&corev1.Pod{}, IndexFormer, formerWorkload},
	{&corev1.Pod{}, IndexPart, capturePart},
	{&corev1.Pod{}, IndexServing, servingPart},
	{&batchv1.Job{}, IndexPart, capturePart},
	{&batchv1.Job{}, IndexOwner, captureName},
	{&batchv1.Job{}, IndexNode, targetNode},
	{&corev1.Pod{}, IndexNode, agentNode},
	{&batchv1.Job{}, IndexKeeperUser, keeperUser},
	{&corev1.Pod{}, IndexKeeperUser, keeperUser},
	{coreMetadata("ConfigMap"), IndexCapture, captureUID},
	{coreMetadata("ConfigMap"), IndexOwner, captureName},
	{coreMetadata("Secret"), IndexCapture, captureUID},
	{coreMetadata("Secret"), IndexOwner, captureName},
	{&sondev1.ResultAccess{}, IndexTokenHash, tokenHash},
	{&sondev1.ResultAccess{}, IndexAccessTo, accessTo},
	{&sondev1.ResultAccess{}, IndexAccessTarget, accessTarget},
	{&sondev1.InterceptRequest{}, IndexTargetNamespace, interceptIn},
})

func captureIndexes() []Index {
	var indexes []Index
	for _, k := range kind.Captures {
		indexes = append(indexes, Index{k.New(), IndexTargetNamespace, liveIn})
	}
	return indexes
}

// IndexFields adds all Indexes to a cache. A cache accepts each only once.
func IndexFields(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range Indexes {
		if err := indexer.IndexField(ctx, i.Object, i.Field, i.Extract); err != nil {
			return fmt.Errorf("index %T by %s: %w", i.Object, i.Field, err)
		}
	}
	return nil
}

// interceptIn has no value for a request that has ended: no pass looks at it.
func interceptIn(o client.Object) []string {
	q, ok := o.(*sondev1.InterceptRequest)
	if !ok || q.Ended() {
		return nil
	}
	namespace, _ := q.AgentTarget()
	return []string{namespace}
}

func ownerUID(o client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// formerWorkload has no value for the many Pods that are not being deleted.
func formerWorkload(o client.Object) []string {
	if o.GetDeletionTimestamp() == nil {
		return nil
	}
	return workloadByName(o)
}

// workloadByName returns the value of IndexFormer for a Pod, whether or not it is being deleted.
func workloadByName(o client.Object) []string {
	if ref, ok := formerName(metav1.GetControllerOfNoCopy(o)); ok {
		return value(formerKey(ref))
	}
	return nil
}

// formerKey returns the value of IndexFormer.
func formerKey(ref sondev1.TargetReference) string { return string(ref.Kind) + "/" + ref.Name }

func captureUID(o client.Object) []string { return value(o.GetLabels()[sondev1.LabelUID]) }

func capturePart(o client.Object) []string {
	labels := o.GetLabels()
	if labels[sondev1.LabelUID] == "" {
		return nil
	}
	return []string{Part(types.UID(labels[sondev1.LabelUID]), types.UID(labels[sondev1.LabelTargetPodUID]))}
}

// parts is the number of parts into which IndexPart divides the Jobs and agents of a capture. There may be thousands, and
// the cache returns copies that are ten times as large as its own form. A reader that lists part by part, and keeps the
// slim form of each, never holds all of these copies.
const parts = 4

// Part returns the part of a capture that holds the Job and the agent of one of its Pods.
func Part(capture, pod types.UID) string {
	last := 0
	if len(pod) > 0 {
		last = int(pod[len(pod)-1]) % parts
	}
	return string(capture) + "/" + strconv.Itoa(last)
}

// Parts returns a list option for each part of a capture's Jobs and agents.
func Parts(capture types.UID) []client.ListOption { return partsIn(IndexPart, capture) }

// ServingParts is Parts for the agents whose keeper runs.
func ServingParts(capture types.UID) []client.ListOption { return partsIn(IndexServing, capture) }

func partsIn(index string, capture types.UID) []client.ListOption {
	all := make([]client.ListOption, parts)
	for i := range all {
		all[i] = client.MatchingFields{index: string(capture) + "/" + strconv.Itoa(i)}
	}
	return all
}

func servingPart(o client.Object) []string {
	part := capturePart(o)
	if len(part) == 0 {
		return nil
	}
	if pod := expanded(o); pod == nil || !Serving(pod) {
		return nil
	}
	return part
}

// Serving reports whether the keeper of an agent's Pod runs.
func Serving(pod *corev1.Pod) bool {
	return pod.Status.PodIP != "" && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == captureconfig.ContainerKeeper && s.State.Running != nil
	})
}

// expanded returns a Pod of the cache, or nil if o is none.
func expanded(o client.Object) *corev1.Pod {
	switch pod := o.(type) {
	case *slim.Pod:
		return pod.Expand()
	case *corev1.Pod:
		return pod
	default:
		return nil
	}
}

func captureName(o client.Object) []string { return value(o.GetAnnotations()[sondev1.AnnotationOwner]) }

func targetNode(o client.Object) []string {
	if job := expandedJob(o); job != nil && JobEnded(job) {
		return nil
	}
	return value(o.GetAnnotations()[sondev1.AnnotationTargetNode])
}

func expandedJob(o client.Object) *batchv1.Job {
	switch job := o.(type) {
	case *slim.Job:
		return job.Expand()
	case *batchv1.Job:
		return job
	default:
		return nil
	}
}

// JobEnded reports whether a Job is complete or has failed.
func JobEnded(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// agentNode has no value for an agent that has ended. Until its Job has, too, the Job counts as one with a probe.
func agentNode(o client.Object) []string {
	if o.GetLabels()[sondev1.LabelUID] == "" {
		return nil
	}
	pod := expanded(o)
	if pod == nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	return value(pod.Spec.NodeName)
}

func keeperUser(o client.Object) []string { return value(o.GetLabels()[sondev1.LabelKeeperUser]) }

func value(v string) []string {
	if v == "" {
		return nil
	}
	return []string{v}
}

func coreMetadata(kind string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return o
}

// AccessTo returns the value of IndexAccessTo.
func AccessTo(capture sondev1.CaptureReference) string {
	return string(capture.Kind) + "/" + capture.Name
}

func tokenHash(o client.Object) []string {
	if ra, ok := o.(*sondev1.ResultAccess); ok {
		return value(ra.Spec.TokenHash)
	}
	return nil
}

func accessTo(o client.Object) []string {
	if ra, ok := o.(*sondev1.ResultAccess); ok {
		return []string{AccessTo(ra.Spec.CaptureRef)}
	}
	return nil
}

func accessTarget(o client.Object) []string {
	claim, err := stamp.ParseClaim(o.GetAnnotations()[sondev1.AnnotationRequester])
	if err != nil {
		return nil // never admitted
	}
	return value(claim.TargetNamespaceUID)
}

func liveIn(o client.Object) []string {
	capture, ok := o.(sondev1.Capture)
	if !ok || capture.CaptureStatus().Phase.Final() {
		return nil
	}
	return []string{capture.Common().TargetNamespace}
}
