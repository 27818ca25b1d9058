package slim

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// GetNamespace implements metav1.Object.
func (m *Meta) GetNamespace() string { return m.common.Value().namespace }

// GetName implements metav1.Object.
func (m *Meta) GetName() string { return m.name }

// GetUID implements metav1.Object.
func (m *Meta) GetUID() types.UID { return types.UID(m.uid.String()) }

// GetResourceVersion implements metav1.Object.
func (m *Meta) GetResourceVersion() string { return m.version }

// GetCreationTimestamp implements metav1.Object.
func (m *Meta) GetCreationTimestamp() metav1.Time { return m.created.expand() }

// GetDeletionTimestamp implements metav1.Object.
func (m *Meta) GetDeletionTimestamp() *metav1.Time {
	return m.deleted.pointer()
}

// GetLabels implements metav1.Object.
func (m *Meta) GetLabels() map[string]string {
	if m.target == nil {
		return m.common.Value().labels.expand()
	}
	own := []pair{{sondev1.LabelTargetPodUID, m.target.uid.String()}}
	if m.target.user != 0 {
		own = append(own, pair{sondev1.LabelKeeperUser, strconv.FormatUint(uint64(m.target.user), 10)})
	}
	return m.common.Value().labels.expand(own...)
}

// GetAnnotations implements metav1.Object.
func (m *Meta) GetAnnotations() map[string]string {
	if m.target == nil {
		return m.common.Value().annotations.expand()
	}
	return m.common.Value().annotations.expand(pair{sondev1.AnnotationTargetPod, m.target.pod}, pair{sondev1.AnnotationTargetNode, m.target.node.String()})
}

// GetOwnerReferences implements metav1.Object.
func (m *Meta) GetOwnerReferences() []metav1.OwnerReference {
	kept := m.common.Value().owner
	if kept == (owner{}) {
		return nil
	}
	o := metav1.OwnerReference{APIVersion: kept.version, Kind: kept.kind, Name: kept.name, UID: types.UID(kept.uid), Controller: new(true)}
	switch {
	case kept.flags&ownerBlocks != 0:
		o.BlockOwnerDeletion = new(true)
	case kept.flags&ownerBlocksNot != 0:
		o.BlockOwnerDeletion = new(false)
	}
	return []metav1.OwnerReference{o}
}

// Target is the Pod that a Job captures, from the labels and annotations of the Job or of its Pod.
type Target struct {
	UID        types.UID
	Name, Node string
}

// Target of a Job or its Pod. It is empty for other objects.
func (m *Meta) Target() Target {
	if m.target == nil {
		return Target{}
	}
	return Target{types.UID(m.target.uid.String()), m.target.pod, m.target.node.String()}
}

// Fields that are not kept.

// GetGenerateName implements metav1.Object.
func (*Meta) GetGenerateName() string { return "" }

// GetGeneration implements metav1.Object.
func (*Meta) GetGeneration() int64 { return 0 }

// GetSelfLink implements metav1.Object.
func (*Meta) GetSelfLink() string { return "" }

// GetDeletionGracePeriodSeconds implements metav1.Object.
func (*Meta) GetDeletionGracePeriodSeconds() *int64 { return nil }

// GetFinalizers implements metav1.Object.
func (*Meta) GetFinalizers() []string { return nil }

// GetManagedFields implements metav1.Object.
func (*Meta) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }

// GetObjectKind implements runtime.Object. The cache does not need the kind: it has one store for each.
func (*Meta) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// Setters do nothing, because objects in the cache are never changed.

// SetNamespace implements metav1.Object.
func (*Meta) SetNamespace(string) {}

// SetName implements metav1.Object.
func (*Meta) SetName(string) {}

// SetGenerateName implements metav1.Object.
func (*Meta) SetGenerateName(string) {}

// SetUID implements metav1.Object.
func (*Meta) SetUID(types.UID) {}

// SetResourceVersion implements metav1.Object.
func (*Meta) SetResourceVersion(string) {}

// SetGeneration implements metav1.Object.
func (*Meta) SetGeneration(int64) {}

// SetSelfLink implements metav1.Object.
func (*Meta) SetSelfLink(string) {}

// SetCreationTimestamp implements metav1.Object.
func (*Meta) SetCreationTimestamp(metav1.Time) {}

// SetDeletionTimestamp implements metav1.Object.
func (*Meta) SetDeletionTimestamp(*metav1.Time) {}

// SetDeletionGracePeriodSeconds implements metav1.Object.
func (*Meta) SetDeletionGracePeriodSeconds(*int64) {}

// SetLabels implements metav1.Object.
func (*Meta) SetLabels(map[string]string) {}

// SetAnnotations implements metav1.Object.
func (*Meta) SetAnnotations(map[string]string) {}

// SetFinalizers implements metav1.Object.
func (*Meta) SetFinalizers([]string) {}

// SetOwnerReferences implements metav1.Object.
func (*Meta) SetOwnerReferences([]metav1.OwnerReference) {}

// SetManagedFields implements metav1.Object.
func (*Meta) SetManagedFields([]metav1.ManagedFieldsEntry) {}
