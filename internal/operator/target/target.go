// Package target finds the Pods of a workload by the UIDs of their owners. A selector would also find other Pods with the
// same labels, and a name would also find the next object with that name.
package target

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/slim"
)

// Timeout is how long a capture waits for its target to have a Pod that can be captured.
const Timeout = 10 * time.Minute

// Workload is the current object of a TargetReference.
type Workload struct {
	// Found says that it exists. It may have no Pods yet.
	Found bool
	UID   types.UID
	// Pods that can be captured, by name. There may be thousands.
	Pods []*slim.Pod
	// Former Pods are its live Pods whose ReplicaSet is gone, or which remain of a workload that is gone: they are being deleted.
	Former []*slim.Pod
}

// Live reports whether a Pod can be captured: it has a node and has not ended. The probe waits for its network namespace
// and its first process.
func Live(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && (pod.Status.Phase == corev1.PodPending || pod.Status.Phase == corev1.PodRunning)
}

// resolving is held while the Pods of a target are copied from the cache. There may be thousands, and a copy takes ten times as much
// memory as the cache, so only one exists at a time.
var resolving sync.Mutex

// ResolveCached is Resolve with the cache as reader. Calls wait for each other.
func ResolveCached(ctx context.Context, cached client.Reader, namespace string, ref sondev1.TargetReference) (Workload, error) {
	resolving.Lock()
	defer resolving.Unlock()
	return Resolve(ctx, cached, namespace, ref)
}

// Resolve reads ref in namespace and follows owner UIDs down to its live Pods. The reader needs the indexes of IndexFields.
// The cost grows with the Pods of the workload, not of the namespace.
func Resolve(ctx context.Context, reader client.Reader, namespace string, ref sondev1.TargetReference) (Workload, error) {
	if ref.Kind == sondev1.TargetPod {
		return resolvePod(ctx, reader, client.ObjectKey{Namespace: namespace, Name: ref.Name})
	}
	owner := Metadata(ref.Kind)
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, owner)
	switch {
	case gone.Is(err):
		former, err := formerPods(ctx, reader, namespace, ref, nil)
		return Workload{Former: former}, err
	case err != nil:
		return Workload{}, fmt.Errorf("get target %s %s: %w", ref.Kind, ref.Name, err)
	}
	owners := []types.UID{owner.UID}
	if ref.Kind == sondev1.TargetDeployment {
		if owners, err = replicaSets(ctx, reader, namespace, owner.UID); err != nil {
			return Workload{}, err
		}
	}
	found := Workload{Found: true, UID: owner.UID}
	for _, uid := range owners {
		var pods corev1.PodList
		if err := reader.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFields{IndexOwnerUID: string(uid)}); err != nil {
			return Workload{}, fmt.Errorf("list pods of target %s %s: %w", ref.Kind, ref.Name, err)
		}
		found.Pods = slices.Grow(found.Pods, len(pods.Items))
		for i := range pods.Items {
			if p := &pods.Items[i]; Live(p) {
				found.Pods = append(found.Pods, SlimPod(p))
			}
		}
	}
	slices.SortFunc(found.Pods, func(a, b *slim.Pod) int { return cmp.Compare(a.GetName(), b.GetName()) })
	found.Former, err = formerPods(ctx, reader, namespace, ref, owners)
	return found, err
}

// formerPods returns the live Pods of a workload that none of its owners of Pods has any more: a ReplicaSet may be gone before its last
// Pod, for example with revisionHistoryLimit 0, and so may the workload. They belong to it as in FormerNames.
func formerPods(ctx context.Context, reader client.Reader, namespace string, ref sondev1.TargetReference, owners []types.UID) ([]*slim.Pod, error) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFields{IndexFormer: formerKey(ref)}); err != nil {
		return nil, fmt.Errorf("list former pods of target %s %s: %w", ref.Kind, ref.Name, err)
	}
	var former []*slim.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if owner := metav1.GetControllerOfNoCopy(p); owner == nil || slices.Contains(owners, owner.UID) || !Live(p) {
			continue
		}
		if slices.Contains(FormerNames(ctx, reader, namespace, p), ref) {
			former = append(former, SlimPod(p))
		}
	}
	return former, nil
}

func resolvePod(ctx context.Context, reader client.Reader, key client.ObjectKey) (Workload, error) {
	var pod corev1.Pod
	err := reader.Get(ctx, key, &pod)
	switch {
	case gone.Is(err):
		return Workload{}, nil
	case err != nil:
		return Workload{}, fmt.Errorf("get target Pod %s: %w", key.Name, err)
	}
	found := Workload{Found: true, UID: pod.UID}
	if Live(&pod) {
		found.Pods = []*slim.Pod{SlimPod(&pod)}
	}
	return found, nil
}

// replicaSets returns all ReplicaSets of a Deployment: during a rollout the Pods of several are the target.
func replicaSets(ctx context.Context, reader client.Reader, namespace string, deployment types.UID) ([]types.UID, error) {
	var sets metav1.PartialObjectMetadataList
	sets.SetGroupVersionKind(apps("ReplicaSetList"))
	if err := reader.List(ctx, &sets, client.InNamespace(namespace), client.MatchingFields{IndexOwnerUID: string(deployment)}); err != nil {
		return nil, fmt.Errorf("list replica sets of target: %w", err)
	}
	uids := make([]types.UID, 0, len(sets.Items))
	for i := range sets.Items {
		uids = append(uids, sets.Items[i].UID)
	}
	return uids, nil
}

// Metadata returns an empty object for reading the metadata of a workload of this kind.
func Metadata(kind sondev1.TargetKind) *metav1.PartialObjectMetadata {
	var o metav1.PartialObjectMetadata
	o.SetGroupVersionKind(apps(string(kind)))
	return &o
}

// ReplicaSetMetadata returns an empty object for reading the metadata of a ReplicaSet.
func ReplicaSetMetadata() *metav1.PartialObjectMetadata { return Metadata("ReplicaSet") }

func apps(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}
}
