// Package platform builds the objects that the operator creates for itself, most of them of APIs that not every cluster
// has. It finds out which of these APIs the cluster has, who owns the objects, and whether a live object is as built.
package platform

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/naming"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: naming.Own()}
}

// content converts a typed object for server-side apply. It leaves out the empty objects that the encoding has for
// structs that are not set: the operator would own those fields.
func content(kind schema.GroupVersionKind, typed client.Object) *unstructured.Unstructured {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		panic(fmt.Sprintf("convert %s: %v", kind, err)) // cannot happen: the golden tests convert every object
	}
	removeEmpty(object)
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(kind)
	return u
}

func removeEmpty(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			removeEmpty(inner)
			if object, ok := inner.(map[string]any); ok && len(object) == 0 {
				delete(v, key)
			}
		}
	case []any:
		for _, inner := range v {
			removeEmpty(inner)
		}
	}
}

// Present returns the objects whose API the cluster has. The operator calls it at its start, and notices an API that is
// installed later at its next start. An error comes from the API server.
func Present(mapper apimeta.RESTMapper, objects ...*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var present []*unstructured.Unstructured
	for _, o := range objects {
		kind := o.GroupVersionKind()
		_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case apimeta.IsNoMatchError(err):
		case err != nil:
			return nil, fmt.Errorf("look up the API of %s: %w", kind, err)
		default:
			present = append(present, o)
		}
	}
	return present, nil
}

// RestartsContainers reports whether a cluster of this version supports restart rules for single containers (KEP-5307,
// Kubernetes 1.35). An earlier API server refuses Pods that have them.
func RestartsContainers(version string) (bool, error) {
	v, err := utilversion.ParseGeneric(version)
	if err != nil {
		return false, fmt.Errorf("parse the cluster's version: %w", err)
	}
	return v.AtLeast(utilversion.MajorMinor(1, 35)), nil
}

// CacheOnly restricts a cache to one object of its kind, so that the right to list by name suffices.
func CacheOnly(o *unstructured.Unstructured) map[client.Object]cache.ByObject {
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(o.GroupVersionKind())
	only := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, o.GetName())}
	if ns := o.GetNamespace(); ns != "" {
		only = cache.ByObject{Namespaces: map[string]cache.Config{ns: {FieldSelector: only.Field}}}
	}
	return map[client.Object]cache.ByObject{kind: only}
}
