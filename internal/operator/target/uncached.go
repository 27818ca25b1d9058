package target

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/paging"
)

// Uncached is a reader for Resolve of one target. It reads Pods and ReplicaSets from the API server, and the workload itself from
// the cache. The API server has no index of owners, but the workload's selector, which never changes, finds its Pods.
func Uncached(cached, live client.Reader, namespace string, ref sondev1.TargetReference) client.Reader {
	return uncached{cached, live, client.ObjectKey{Namespace: namespace, Name: ref.Name}, ref.Kind}
}

type uncached struct {
	client.Reader
	live client.Reader
	key  client.ObjectKey
	kind sondev1.TargetKind
}

// Get reads a Pod live.
func (u uncached) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*corev1.Pod); ok {
		return u.live.Get(ctx, key, o, opts...)
	}
	return u.Reader.Get(ctx, key, o, opts...)
}

// List reads live the objects that IndexOwnerUID or IndexFormer selects. The cache may not know yet that a Pod is being deleted, so
// IndexFormer also selects Pods that are not.
func (u uncached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	value, values, absent := "", ownerUID, labels.Nothing()
	ok := false
	if o.FieldSelector != nil {
		if value, ok = o.FieldSelector.RequiresExactMatch(IndexOwnerUID); !ok {
			value, ok = o.FieldSelector.RequiresExactMatch(IndexFormer)
			values, absent = workloadByName, labels.Everything() // of the namespace, when a capture outlasts its target
		}
	}
	if !ok {
		return u.Reader.List(ctx, list, opts...)
	}
	selected, err := u.selector(ctx, absent)
	if err != nil {
		return err
	}
	var owned []runtime.Object
	fresh := func() client.ObjectList {
		page, _ := list.DeepCopyObject().(client.ObjectList)
		return page
	}
	err = paging.Each(ctx, u.live, fresh, func(page client.ObjectList) {
		_ = apimeta.EachListItem(page, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok && slices.Contains(values(object), value) {
				owned = append(owned, light(item))
			}
			return nil
		})
	}, client.InNamespace(o.Namespace), client.MatchingLabelsSelector{Selector: selected})
	if err != nil {
		return err
	}
	if err := apimeta.SetList(list, owned); err != nil {
		return fmt.Errorf("set items: %w", err)
	}
	return nil
}

// selector reads the workload's selector; absent if the workload is gone.
func (u uncached) selector(ctx context.Context, absent labels.Selector) (labels.Selector, error) {
	var from client.Object
	var selector func() *metav1.LabelSelector
	switch u.kind {
	case sondev1.TargetStatefulSet:
		o := &appsv1.StatefulSet{}
		from, selector = o, func() *metav1.LabelSelector { return o.Spec.Selector }
	case sondev1.TargetDaemonSet:
		o := &appsv1.DaemonSet{}
		from, selector = o, func() *metav1.LabelSelector { return o.Spec.Selector }
	default:
		o := &appsv1.Deployment{}
		from, selector = o, func() *metav1.LabelSelector { return o.Spec.Selector }
	}
	err := u.live.Get(ctx, u.key, from)
	switch {
	case gone.Is(err):
		return absent, nil
	case err != nil:
		return nil, fmt.Errorf("get target %s %s: %w", u.kind, u.key, err)
	case selector() == nil:
		return labels.Everything(), nil
	}
	selected, err := metav1.LabelSelectorAsSelector(selector())
	if err != nil {
		return nil, fmt.Errorf("read selector of target %s %s: %w", u.kind, u.key, err)
	}
	return selected, nil
}

// light drops the fields that the operator does not read: there may be thousands of objects. It copies the rest, so that the page
// can be freed.
func light(o runtime.Object) runtime.Object {
	kept, err := Strip(o)
	if object, ok := kept.(runtime.Object); ok && err == nil {
		return object.DeepCopyObject()
	}
	return o
}
