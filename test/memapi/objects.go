package memapi

import (
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Objects are what a reader sees, from the API server or from a cache.
type Objects map[Key]client.Object

// FieldValues returns the values of an object for a field selector.
type FieldValues func(o client.Object, field string) []string

// Of returns all objects of a kind, sorted by name.
func Of[T client.Object](objects Objects, kind string) []T {
	var keys []Key
	for k := range objects {
		if k.Kind == kind {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, Key.compare)
	found := make([]T, 0, len(keys))
	for _, k := range keys {
		if o, ok := objects[k].(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// Get reads one object into o, whole or its metadata.
func (s Objects) Get(scheme *runtime.Scheme, name client.ObjectKey, o client.Object) error {
	o.SetNamespace(name.Namespace)
	o.SetName(name.Name)
	key := KeyOf(scheme, o)
	there := s[key]
	if there == nil {
		return apierrors.NewNotFound(Resource(key.Kind), key.Name)
	}
	copyObject(there, o)
	return nil
}

// copyObject copies an object into one of its type, or its metadata.
func copyObject(from, to client.Object) {
	if partial, ok := to.(*metav1.PartialObjectMetadata); ok {
		gvk := partial.GroupVersionKind()
		*partial = *Metadata(from)
		partial.SetGroupVersionKind(gvk)
		return
	}
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
}

// Metadata returns the metadata of an object, as a watch of metadata sends it.
func Metadata(o client.Object) *metav1.PartialObjectMetadata {
	if partial, ok := o.(*metav1.PartialObjectMetadata); ok {
		return partial.DeepCopy()
	}
	m := reflect.ValueOf(o.DeepCopyObject()).Elem().FieldByName("ObjectMeta").Interface().(metav1.ObjectMeta)
	return &metav1.PartialObjectMetadata{ObjectMeta: m}
}

// List reads a list of objects, whole or their metadata.
func (s Objects) List(scheme *runtime.Scheme, values FieldValues, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, scheme)
	if err != nil {
		return err
	}
	kind := gvk.Kind[:len(gvk.Kind)-len("List")]
	o := (&client.ListOptions{}).ApplyOptions(opts)
	partial, _ := list.(*metav1.PartialObjectMetadataList)
	var items []runtime.Object
	for _, there := range Of[client.Object](s, kind) {
		if o.Namespace != "" && there.GetNamespace() != o.Namespace || o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(there.GetLabels())) || !selected(there, o.FieldSelector, values) {
			continue
		}
		if partial != nil {
			partial.Items = append(partial.Items, *Metadata(there))
			continue
		}
		items = append(items, there.DeepCopyObject())
	}
	if partial != nil {
		return nil
	}
	return apimeta.SetList(list, items)
}

// selected applies the field selectors of the cache's indexes and of Events.
func selected(o client.Object, selector fields.Selector, values FieldValues) bool {
	if selector == nil {
		return true
	}
	for _, r := range selector.Requirements() {
		if !slices.Contains(values(o, r.Field), r.Value) {
			return false
		}
	}
	return true
}
