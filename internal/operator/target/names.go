package target

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// replicaSet is the kind between a Deployment and its Pods.
const replicaSet = "ReplicaSet"

// ReplicaSets reads the metadata of one ReplicaSet. If there is none, it returns a NotFound error of the API server.
type ReplicaSets func(ctx context.Context, key client.ObjectKey) (*metav1.PartialObjectMetadata, error)

// CachedSets reads from a cache, which may not have a ReplicaSet that was created a moment ago.
func CachedSets(reader client.Reader) ReplicaSets {
	return func(ctx context.Context, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
		set := ReplicaSetMetadata()
		return set, reader.Get(ctx, key, set)
	}
}

// ListedSets reads from the API server by a list of one, because the operator has the right to list ReplicaSets and not to
// get them.
func ListedSets(live client.Reader) ReplicaSets {
	return func(ctx context.Context, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
		var sets metav1.PartialObjectMetadataList
		sets.SetGroupVersionKind(apps("ReplicaSetList"))
		err := live.List(ctx, &sets, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name})
		if err != nil {
			return nil, fmt.Errorf("list replica set %s: %w", key, err)
		}
		if len(sets.Items) == 0 {
			return nil, apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "replicasets"}, key.Name)
		}
		return &sets.Items[0], nil
	}
}

// Names returns the references that have a Pod of namespace as a target: its own name, if it has one yet, and the name of
// its workload. If the Pod's ReplicaSet cannot be read, the workload is absent and the error says why.
func Names(ctx context.Context, sets ReplicaSets, namespace string, pod metav1.Object) ([]sondev1.TargetReference, error) {
	var names []sondev1.TargetReference
	if name := pod.GetName(); name != "" {
		names = append(names, sondev1.TargetReference{Kind: sondev1.TargetPod, Name: name})
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || !isApps(owner) { // other groups have kinds of these names, too
		return names, nil
	}
	switch owner.Kind {
	case replicaSet:
		set, err := sets(ctx, client.ObjectKey{Namespace: namespace, Name: owner.Name})
		if err != nil {
			return names, err
		}
		if d := metav1.GetControllerOfNoCopy(set); d != nil && d.Kind == string(sondev1.TargetDeployment) && isApps(d) {
			names = append(names, sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: d.Name})
		}
	case string(sondev1.TargetStatefulSet), string(sondev1.TargetDaemonSet):
		names = append(names, sondev1.TargetReference{Kind: sondev1.TargetKind(owner.Kind), Name: owner.Name})
	}
	return names, nil
}

// FormerNames returns the references that had a Pod as a target that is gone: its own name, and the name of its workload. Whoever may
// create Pods can make up an owner, so an owner counts only if the cache has no other object of its name. One that the cache does not
// have may be gone, too. Then its name decides: a ReplicaSet has its Deployment's name, a dash and a hash. If a ReplicaSet is deleted,
// its Deployment makes another of its name, so the Pods that are being deleted with it are that Deployment's.
func FormerNames(ctx context.Context, cached client.Reader, namespace string, pod metav1.Object) []sondev1.TargetReference {
	names := []sondev1.TargetReference{{Kind: sondev1.TargetPod, Name: pod.GetName()}}
	owner := metav1.GetControllerOfNoCopy(pod)
	byName, ok := formerName(owner)
	if !ok {
		return names
	}
	found, ok := former(ctx, cached, namespace, owner)
	if found == nil || owner.Kind != replicaSet {
		if ok && byName.Name != "" { // a ReplicaSet without a dash in its name is no Deployment's
			names = append(names, byName)
		}
		return names
	}
	ok = ok || pod.GetDeletionTimestamp() != nil
	if owner = metav1.GetControllerOfNoCopy(found); !ok || owner == nil || owner.Kind != string(sondev1.TargetDeployment) || !isApps(owner) {
		return names
	}
	if _, ok := former(ctx, cached, namespace, owner); ok {
		names = append(names, sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: owner.Name})
	}
	return names
}

// formerName returns the workload of a Pod with this owner, by names alone; false if the owner is of no kind that is a target.
func formerName(owner *metav1.OwnerReference) (sondev1.TargetReference, bool) {
	if owner == nil || !isApps(owner) {
		return sondev1.TargetReference{}, false
	}
	switch owner.Kind {
	case replicaSet:
		return sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: owner.Name[:max(strings.LastIndexByte(owner.Name, '-'), 0)]}, true
	case string(sondev1.TargetStatefulSet), string(sondev1.TargetDaemonSet):
		return sondev1.TargetReference{Kind: sondev1.TargetKind(owner.Kind), Name: owner.Name}, true
	default:
		return sondev1.TargetReference{}, false
	}
}

func isApps(owner *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == appsv1.GroupName
}

// former reads the metadata of an owner from the cache; nil if it does not have it. It reports false if the cache has another object of
// its name.
func former(ctx context.Context, cached client.Reader, namespace string, owner *metav1.OwnerReference) (*metav1.PartialObjectMetadata, bool) {
	found := Metadata(sondev1.TargetKind(owner.Kind))
	if cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: owner.Name}, found) != nil {
		return nil, true
	}
	return found, found.UID == owner.UID
}
