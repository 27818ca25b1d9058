// Package slim has the forms in which the cache keeps Pods and Jobs. An empty corev1.Pod takes 1,240 bytes. The operator
// reads a dozen of its fields, watches all Pods of the cluster, and has a Job and a Pod for each captured Pod. A slim Pod
// takes about 260 bytes (docs/adr/0013-own-code-or-library.md). Readers of the cache do not notice: the cache hands out
// copies, and the copy of a slim Pod is a corev1.Pod (DeepCopyObject).
//
// Never list slim objects with client.UnsafeDisableDeepCopy, which makes no copies.
package slim

import (
	"strconv"
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

// Meta is the part of an object's metadata that the operator reads. It implements metav1.Object for readers: its setters do
// nothing.
type Meta struct {
	common           unique.Handle[common]
	name, version    string
	uid              uid
	created, deleted instant
	// target is set for the Jobs and the agents' Pods of captures.
	target *targetPod
}

// common has the fields that are equal for many objects: all Pods of a ReplicaSet, all Jobs of a capture.
type common struct {
	namespace           string
	owner               owner
	labels, annotations pairs
}

// targetPod is the Pod that a Job and its agent's Pod capture.
type targetPod struct {
	pod  string
	uid  uid
	node name
	// user of the Job's keeper; 0 if the label has no number.
	user uint32
}

// owner is the controlling owner.
type owner struct {
	version, kind, name, uid string
	flags                    uint8
}

const (
	ownerController uint8 = 1 << iota
	ownerBlocks
	ownerBlocksNot
)

// instant is a time in seconds, the resolution of the API server. 0 is no time.
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
	user, ownLabels := uint32(0), []string{sondev1.LabelTargetPodUID}
	if text := m.Labels[sondev1.LabelKeeperUser]; text != "" {
		if n, err := strconv.ParseUint(text, 10, 32); err == nil && strconv.FormatUint(n, 10) == text && n > 0 {
			user, ownLabels = uint32(n), append(ownLabels, sondev1.LabelKeeperUser)
		}
	}
	kept := Meta{
		name: strings.Clone(m.Name), version: strings.Clone(m.ResourceVersion), uid: uidOf(string(m.UID)), created: instantOf(m.CreationTimestamp),
		common: unique.Make(common{
			namespace: m.Namespace, owner: ownerOf(metav1.GetControllerOfNoCopy(m)),
			labels:      pairsOf(m.Labels, ownLabels...),
			annotations: pairsOf(m.Annotations, sondev1.AnnotationTargetPod, sondev1.AnnotationTargetNode),
		}),
	}
	if m.DeletionTimestamp != nil {
		kept.deleted = instantOf(*m.DeletionTimestamp)
	}
	captured := targetPod{
		pod: strings.Clone(m.Annotations[sondev1.AnnotationTargetPod]), uid: uidOf(m.Labels[sondev1.LabelTargetPodUID]),
		node: nameOf(m.Annotations[sondev1.AnnotationTargetNode]), user: user,
	}
	if captured != (targetPod{}) {
		kept.target = &captured
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
	if (m.target == nil) != (o.target == nil) || m.target != nil && *m.target != *o.target {
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
