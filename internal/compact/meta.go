// Package compact is how the cache keeps Pods and Jobs. A corev1.Pod takes 1,240 bytes before anything is in it, and
// what it points to comes on top; the operator reads a dozen of its fields, watches all Pods of the cluster, and has a
// Job and a Pod for each captured one. The forms here take a third of that. Who reads the cache sees none of it: the
// cache hands out copies, and the copy of a compact Pod is a corev1.Pod (DeepCopyObject).
//
// A list of them must not be asked for with client.UnsafeDisableDeepCopy.
package compact

import (
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	namespace        name
	name             string
	uid              types.UID
	version          string
	created, deleted instant
	owner            owner
	labels           pairs
	annotations      pairs
}

// owner is the controlling one.
type owner struct {
	version, kind, name, uid name
	flags                    uint8
}

const (
	ownerController uint8 = 1 << iota
	ownerBlocks
	ownerBlocksNot
)

// pairs of keys and values, of which there are few: a map of three takes 400 bytes.
type pairs []pair

// pair holds its value as a text of its own where no other object has the same.
type pair struct {
	key, shared name
	own         string
}

func (p pair) value() string {
	if p.own != "" {
		return p.own
	}
	return p.shared.String()
}

// unshared are the keys whose values differ from object to object.
var unshared = map[string]bool{sondev1.LabelTargetPodUID: true, sondev1.AnnotationTargetPod: true}

// instant is a time in seconds, as the API server has it; 0 is none.
type instant int64

func instantOf(t metav1.Time) instant {
	if t.IsZero() {
		return 0
	}
	return instant(t.Unix())
}

func (i instant) whole() metav1.Time {
	if i == 0 {
		return metav1.Time{}
	}
	return metav1.Unix(int64(i), 0)
}

func (i instant) pointer() *metav1.Time {
	if i == 0 {
		return nil
	}
	return new(i.whole())
}

func metaOf(m *metav1.ObjectMeta) Meta {
	kept := Meta{
		namespace: nameOf(m.Namespace), name: strings.Clone(m.Name), uid: types.UID(strings.Clone(string(m.UID))), version: strings.Clone(m.ResourceVersion),
		created: instantOf(m.CreationTimestamp), labels: pairsOf(m.Labels), annotations: pairsOf(m.Annotations),
	}
	if m.DeletionTimestamp != nil {
		kept.deleted = instantOf(*m.DeletionTimestamp)
	}
	if o := metav1.GetControllerOfNoCopy(m); o != nil {
		kept.owner = owner{version: nameOf(o.APIVersion), kind: nameOf(o.Kind), name: nameOf(o.Name), uid: nameOf(string(o.UID)), flags: ownerController}
		switch {
		case o.BlockOwnerDeletion == nil:
		case *o.BlockOwnerDeletion:
			kept.owner.flags |= ownerBlocks
		default:
			kept.owner.flags |= ownerBlocksNot
		}
	}
	return kept
}

func pairsOf(m map[string]string) pairs {
	if len(m) == 0 {
		return nil
	}
	kept := make(pairs, 0, len(m))
	for k, v := range m {
		p := pair{key: nameOf(k)}
		if unshared[k] {
			p.own = strings.Clone(v)
		} else {
			p.shared = nameOf(v)
		}
		kept = append(kept, p)
	}
	return kept
}

func (p pairs) whole() map[string]string {
	if len(p) == 0 {
		return nil
	}
	m := make(map[string]string, len(p))
	for _, kv := range p {
		m[kv.key.String()] = kv.value()
	}
	return m
}

func (p pairs) get(key string) string {
	for _, kv := range p {
		if kv.key.String() == key {
			return kv.value()
		}
	}
	return ""
}

func (p pairs) same(q pairs) bool {
	for _, kv := range p {
		if q.get(kv.key.String()) != kv.value() {
			return false
		}
	}
	return len(p) == len(q)
}

func (m *Meta) same(o *Meta) bool {
	return m.namespace == o.namespace && m.name == o.name && m.uid == o.uid && m.created == o.created && m.deleted == o.deleted &&
		m.owner == o.owner && m.labels.same(o.labels) && m.annotations.same(o.annotations)
}

func (m *Meta) whole() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.namespace.String(), Name: m.name, UID: m.uid, ResourceVersion: m.version,
		CreationTimestamp: m.created.whole(), DeletionTimestamp: m.deleted.pointer(),
		OwnerReferences: m.GetOwnerReferences(), Labels: m.GetLabels(), Annotations: m.GetAnnotations(),
	}
}

// Label returns one label without making a map of them.
func (m *Meta) Label(key string) string { return m.labels.get(key) }

// Annotation returns one annotation without making a map of them.
func (m *Meta) Annotation(key string) string { return m.annotations.get(key) }
