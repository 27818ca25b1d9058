// Package platform keeps objects of APIs that only some clusters have: what they are is built
// elsewhere, here is which of them this cluster can hold, who owns them, and whether they are as built.
package platform

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/naming"
)

// New returns an object of one of these kinds with the labels of what the operator makes for itself; without a
// namespace it is the cluster's. content is all but apiVersion, kind and metadata.
func New(kind schema.GroupVersionKind, namespace, name string, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetLabels(naming.Own())
	return u
}

// Present returns those of objects whose API the cluster has. It asks once, at start: an API that comes
// later is seen by the next start of the operator. An error is one of the API server.
func Present(mapper apimeta.RESTMapper, objects ...*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var present []*unstructured.Unstructured
	for _, o := range objects {
		kind := o.GroupVersionKind()
		_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case apimeta.IsNoMatchError(err):
		case err != nil:
			return nil, fmt.Errorf("find out whether the cluster has %s: %w", kind, err)
		default:
			present = append(present, o)
		}
	}
	return present, nil
}

// RestartsContainers reports whether a cluster of this version starts one container of a Pod again although the Pod's
// others are not to be (KEP-5307, Kubernetes 1.35; an earlier API server refuses a Pod that asks for it).
func RestartsContainers(version string) (bool, error) {
	v, err := utilversion.ParseGeneric(version)
	if err != nil {
		return false, fmt.Errorf("read the cluster's version: %w", err)
	}
	return v.AtLeast(utilversion.MajorMinor(1, 35)), nil
}

// CacheByObject restricts the manager's cache to these objects by their names, so that no other is held
// in memory and the right to list by name suffices. Of a kind there can be one.
func CacheByObject(objects []*unstructured.Unstructured) map[client.Object]cache.ByObject {
	by := map[client.Object]cache.ByObject{}
	for _, o := range objects {
		kind := &unstructured.Unstructured{}
		kind.SetGroupVersionKind(o.GroupVersionKind())
		only := fields.OneTermEqualSelector(metav1.ObjectNameField, o.GetName())
		if ns := o.GetNamespace(); ns != "" {
			by[kind] = cache.ByObject{Namespaces: map[string]cache.Config{ns: {FieldSelector: only}}}
			continue
		}
		by[kind] = cache.ByObject{Field: only}
	}
	return by
}
