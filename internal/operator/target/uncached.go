package target

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/operator/paging"
)

// Uncached is a reader for Resolve. It reads Pods and ReplicaSets from the API server, and the workload itself from the cache.
// A list costs as much as the namespace has objects, so it is only for the moment when a capture ends.
func Uncached(cached, live client.Reader) client.Reader { return uncached{cached, live} }

type uncached struct {
	client.Reader
	live client.Reader
}

// Get reads a Pod live.
func (u uncached) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*corev1.Pod); ok {
		return u.live.Get(ctx, key, o, opts...)
	}
	return u.Reader.Get(ctx, key, o, opts...)
}

// List reads live the objects that IndexOwnerUID selects. The API server has no such index.
func (u uncached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	owner, ok := "", false
	if o.FieldSelector != nil {
		owner, ok = o.FieldSelector.RequiresExactMatch(IndexOwnerUID)
	}
	if !ok {
		return u.Reader.List(ctx, list, opts...)
	}
	var owned []runtime.Object
	fresh := func() client.ObjectList {
		page, _ := list.DeepCopyObject().(client.ObjectList)
		return page
	}
	err := paging.Each(ctx, u.live, fresh, func(page client.ObjectList) {
		_ = apimeta.EachListItem(page, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok && slices.Contains(ownerUID(object), owner) {
				owned = append(owned, light(item))
			}
			return nil
		})
	}, client.InNamespace(o.Namespace))
	if err != nil {
		return err
	}
	if err := apimeta.SetList(list, owned); err != nil {
		return fmt.Errorf("set items: %w", err)
	}
	return nil
}

// light drops the fields that the operator does not read: there may be thousands of objects.
func light(o runtime.Object) runtime.Object {
	kept, err := Strip(o.DeepCopyObject())
	if object, ok := kept.(runtime.Object); ok && err == nil {
		return object
	}
	return o
}
