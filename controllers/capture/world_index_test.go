package capture

import (
	"context"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/internal/operator/target"
)

// indexedValues are the values of the cache's indexes that any object has had. A list by another value is empty. The fake client
// would find that out by a copy of all objects through JSON, several times in each pass and twice for each new Job.
type indexedValues struct {
	scheme *runtime.Scheme
	mu     sync.Mutex
	had    map[indexedValue]bool
}

type indexedValue struct{ kind, field, value string }

// kindOf returns the kind of an object or of a list's items; empty if the scheme does not have it.
func (v *indexedValues) kindOf(o runtime.Object) string {
	gvk, err := apiutil.GVKForObject(o, v.scheme)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(gvk.Kind, "List")
}

// add records the values of an object that was written.
func (v *indexedValues) add(o client.Object) {
	kind := v.kindOf(o)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, i := range target.Indexes {
		if v.kindOf(i.Object) != kind {
			continue
		}
		for _, value := range i.Extract(o) {
			v.had[indexedValue{kind, i.Field, value}] = true
		}
	}
}

// foundNone reports whether a list selects by a value of an index that no object has had.
func (v *indexedValues) foundNone(list client.ObjectList, opts []client.ListOption) bool {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.FieldSelector == nil {
		return false
	}
	kind := v.kindOf(list)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range o.FieldSelector.Requirements() {
		for _, i := range target.Indexes {
			if i.Field == r.Field && v.kindOf(i.Object) == kind && !v.had[indexedValue{kind, r.Field, r.Value}] {
				return true
			}
		}
	}
	return false
}

// recordWrites adds all written objects to the indexed values.
func (w *world) recordWrites(f interceptor.Funcs) interceptor.Funcs {
	patchStatus := f.SubResourcePatch
	f.SubResourcePatch = func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
		defer w.indexed.add(o)
		return patchStatus(ctx, c, sub, o, p, opts...)
	}
	f.SubResourceUpdate = func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
		defer w.indexed.add(o)
		return c.SubResource(sub).Update(ctx, o, opts...)
	}
	f.Update = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
		defer w.indexed.add(o)
		return c.Update(ctx, o, opts...)
	}
	f.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		defer w.indexed.add(o)
		return c.Patch(ctx, o, p, opts...)
	}
	create := f.Create
	f.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		defer w.indexed.add(o)
		return create(ctx, c, o, opts...)
	}
	return f
}
