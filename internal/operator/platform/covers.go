package platform

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Covers reports whether live has every value of desired. Fields that desired leaves out may have any value: the API
// server sets defaults, and others may add labels. An empty list or map equals a missing one.
func Covers(desired, live *unstructured.Unstructured) bool {
	d, l := desired.DeepCopy(), live
	for _, o := range d.GetOwnerReferences() {
		if !owned(l, o.UID) {
			return false
		}
	}
	d.SetOwnerReferences(nil) // others may own live too
	return covers(d.Object, l.Object)
}

func covers(desired, live any) bool {
	switch d := desired.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		for k, v := range d {
			if !covers(v, l[k]) { // a nil map has no keys
				return false
			}
		}
		return ok || live == nil && len(d) == 0
	case []any:
		l, ok := live.([]any)
		if len(d) != len(l) || !ok && live != nil {
			return false
		}
		for i := range d {
			if !covers(d[i], l[i]) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(desired, live)
	}
}
