package compact

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// GetNamespace implements metav1.Object.
func (m *Meta) GetNamespace() string { return m.namespace.String() }

// GetName implements metav1.Object.
func (m *Meta) GetName() string { return m.name }

// GetUID implements metav1.Object.
func (m *Meta) GetUID() types.UID { return m.uid }

// GetResourceVersion implements metav1.Object.
func (m *Meta) GetResourceVersion() string { return m.version }

// GetCreationTimestamp implements metav1.Object.
func (m *Meta) GetCreationTimestamp() metav1.Time { return m.created.whole() }

// GetDeletionTimestamp implements metav1.Object.
func (m *Meta) GetDeletionTimestamp() *metav1.Time {
	return m.deleted.pointer()
}

// GetLabels implements metav1.Object.
func (m *Meta) GetLabels() map[string]string { return m.labels.whole() }

// GetAnnotations implements metav1.Object.
func (m *Meta) GetAnnotations() map[string]string { return m.annotations.whole() }

// GetOwnerReferences implements metav1.Object.
func (m *Meta) GetOwnerReferences() []metav1.OwnerReference {
	if m.owner == (owner{}) {
		return nil
	}
	o := metav1.OwnerReference{
		APIVersion: m.owner.version.String(), Kind: m.owner.kind.String(), Name: m.owner.name.String(), UID: types.UID(m.owner.uid.String()),
		Controller: new(true),
	}
	switch {
	case m.owner.flags&ownerBlocks != 0:
		o.BlockOwnerDeletion = new(true)
	case m.owner.flags&ownerBlocksNot != 0:
		o.BlockOwnerDeletion = new(false)
	}
	return []metav1.OwnerReference{o}
}

// What is never kept.

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

// GetObjectKind implements runtime.Object; the cache knows the kind by where it keeps the object.
func (*Meta) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// What is in the cache is not changed.

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
