package target

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Field indexes of the cache.
const (
	// IndexOwnerUID, of Pods and ReplicaSets: the UID of the controlling owner.
	IndexOwnerUID = "ownerUID"
	// IndexTargetNamespace, of PacketCaptures that are not final: where their target runs.
	IndexTargetNamespace = "targetNamespace"
)

// Indexes that Resolve and Wakes need, as the arguments of IndexField.
var Indexes = []struct {
	Object  client.Object
	Field   string
	Extract client.IndexerFunc
}{
	{&corev1.Pod{}, IndexOwnerUID, ownerUID},
	{ReplicaSetMetadata(), IndexOwnerUID, ownerUID},
	{&sondev1.PacketCapture{}, IndexTargetNamespace, liveIn},
}

// IndexFields adds all Indexes to a cache.
func IndexFields(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range Indexes {
		if err := indexer.IndexField(ctx, i.Object, i.Field, i.Extract); err != nil {
			return fmt.Errorf("index %T by %s: %w", i.Object, i.Field, err)
		}
	}
	return nil
}

func ownerUID(o client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

func liveIn(o client.Object) []string {
	pc, ok := o.(*sondev1.PacketCapture)
	if !ok || pc.Status.Phase.Final() {
		return nil
	}
	return []string{Namespace(pc)}
}
