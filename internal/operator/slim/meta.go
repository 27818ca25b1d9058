// Package slim is how the cache keeps Pods and Jobs. A corev1.Pod takes 1,240 bytes before anything is in it, and
// what it points to comes on top; the operator reads a dozen of its fields, watches all Pods of the cluster, and has a
// Job and a Pod for each captured one. The forms here take less than a quarter of that. Who reads the cache sees none of it: the
// cache hands out copies, and the copy of a compact Pod is a corev1.Pod (DeepCopyObject).
//
// A list of them must not be asked for with client.UnsafeDisableDeepCopy.
package slim

import (
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// name is a text that many objects share: a namespace, a node, an owner.
type name struct{ handle unique.Handle[string] }

func nameOf(s string) name {
	if s == "" {
		return name{}
	}
	return name{unique.Make(strings.Clone(s))}
}

// String returns the text.
func (n name) String() string {
	if n == (name{}) {
		return ""
	}
	return n.handle.Value()
}

// Meta is an object's metadata, as far as the operator reads it. It implements metav1.Object for readers: what would
// change it does nothing.
type Meta struct {
	common           unique.Handle[common]
	name, version    string
	uid              uid
	created, deleted instant
	// part is nil for any object but the Jobs and the Pods of captures.
	part *part
}

// common is what many objects have alike: all Pods of a ReplicaSet, all Jobs of a capture.
type common struct {
	namespace           string
	owner               owner
	labels, annotations pairs
}

// part names the Pod that a Job, or its Pod, captures. Each has one of its own.
type part struct {
	pod  string
	uid  uid
	node name
}

// owner is the controlling one.
type owner struct {
	version, kind, name, uid string
	flags                    uint8
}

const (
	ownerController uint8 = 1 << iota
	ownerBlocks
	ownerBlocksNot
)

// instant is a time in seconds, as the API server has it; 0 is none.
type instant int64

func instantOf(t metav1.Time) instant {
	if t.IsZero() {
		return 0
	}
	return instant(t.Unix())
}

func (i instant) expand() metav1.Time {
	if i == 0 {
		return metav1.Time{}
	}
	return metav1.Unix(int64(i), 0)
}

func (i instant) pointer() *metav1.Time {
	if i == 0 {
		return nil
	}
	return new(i.expand())
}

func metaOf(m *metav1.ObjectMeta) Meta {
	kept := Meta{
		name: strings.Clone(m.Name), version: strings.Clone(m.ResourceVersion), uid: uidOf(string(m.UID)), created: instantOf(m.CreationTimestamp),
		common: unique.Make(common{
			namespace: m.Namespace, owner: ownerOf(metav1.GetControllerOfNoCopy(m)),
			labels:      pairsOf(m.Labels, sondev1.LabelTargetPodUID),
			annotations: pairsOf(m.Annotations, sondev1.AnnotationTargetPod, sondev1.AnnotationTargetNode),
		}),
	}
	if m.DeletionTimestamp != nil {
		kept.deleted = instantOf(*m.DeletionTimestamp)
	}
	of := part{
		pod: strings.Clone(m.Annotations[sondev1.AnnotationTargetPod]), uid: uidOf(m.Labels[sondev1.LabelTargetPodUID]),
		node: nameOf(m.Annotations[sondev1.AnnotationTargetNode]),
	}
	if of != (part{}) {
		kept.part = &of
	}
	return kept
}

func ownerOf(o *metav1.OwnerReference) owner {
	if o == nil {
		return owner{}
	}
	kept := owner{version: o.APIVersion, kind: o.Kind, name: o.Name, uid: string(o.UID), flags: ownerController}
	switch {
	case o.BlockOwnerDeletion == nil:
	case *o.BlockOwnerDeletion:
		kept.flags |= ownerBlocks
	default:
		kept.flags |= ownerBlocksNot
	}
	return kept
}

func (m *Meta) equal(o *Meta) bool {
	if (m.part == nil) != (o.part == nil) || m.part != nil && *m.part != *o.part {
		return false
	}
	return m.common == o.common && m.name == o.name && m.uid == o.uid && m.created == o.created && m.deleted == o.deleted
}

func (m *Meta) expand() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.GetNamespace(), Name: m.name, UID: m.GetUID(), ResourceVersion: m.version,
		CreationTimestamp: m.created.expand(), DeletionTimestamp: m.deleted.pointer(),
		OwnerReferences: m.GetOwnerReferences(), Labels: m.GetLabels(), Annotations: m.GetAnnotations(),
	}
}
