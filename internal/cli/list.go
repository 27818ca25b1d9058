package cli

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// mergedList returns items as one object: first if it has them all, or else a List, as kubectl prints objects of
// several kinds. Both have the items under .items.
func mergedList(first v1alpha1.CaptureList, items []v1alpha1.Capture) (runtime.Object, error) {
	if len(items) == len(first.Captures()) {
		return first, nil
	}
	all := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}}}
	for _, item := range items {
		b, err := json.Marshal(item)
		if err != nil {
			return nil, fmt.Errorf("print the list: %w", err)
		}
		var u unstructured.Unstructured
		if err := u.UnmarshalJSON(b); err != nil {
			return nil, fmt.Errorf("print the list: %w", err)
		}
		all.Items = append(all.Items, u)
	}
	return all, nil
}
