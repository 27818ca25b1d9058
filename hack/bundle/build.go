package main

import (
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// build returns the contents of a bundle's files by path.
func build(stream []byte, r release) (map[string][]byte, error) {
	in, err := read(stream)
	if err != nil {
		return nil, err
	}
	csv, err := completeCSV(in, r)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(csv)
	if err != nil {
		return nil, fmt.Errorf("encode the ClusterServiceVersion: %w", err)
	}
	// OLM sets these. Zero values would only clutter the difference between two bundles.
	for _, zero := range []string{"status", "spec.cleanup", "spec.apiservicedefinitions"} {
		unstructured.RemoveNestedField(content, strings.Split(zero, ".")...)
	}
	content = withoutNulls(content).(map[string]any)
	labels := labels(in, r)
	files := map[string][]byte{
		"bundle.Dockerfile":                dockerfile(labels),
		"bundle/metadata/annotations.yaml": annotations(labels),
	}
	put := func(name string, object map[string]any) error {
		out, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
		files[name] = out
		return nil
	}
	if err := put("bundle/manifests/"+in.csv.Name+".clusterserviceversion.yaml", content); err != nil {
		return nil, err
	}
	if err := put("bundle/tests/scorecard/config.yaml", in.scorecard.Object); err != nil {
		return nil, err
	}
	objects, err := manifests(in, r)
	if err != nil {
		return nil, err
	}
	for _, u := range objects {
		if err := put(path.Join("bundle/manifests", fileName(u)), u.Object); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// fileName returns the name that operator-sdk gives the object's file.
func fileName(u *unstructured.Unstructured) string {
	gvk := u.GroupVersionKind()
	if gvk.Kind == "CustomResourceDefinition" {
		plural, crdGroup, _ := strings.Cut(u.GetName(), ".")
		return crdGroup + "_" + plural + ".yaml"
	}
	parts := []string{u.GetName()}
	if gvk.Group != "" {
		parts = append(parts, gvk.Group)
	}
	return strings.Join(append(parts, gvk.Version, strings.ToLower(gvk.Kind)), "_") + ".yaml"
}

// withoutNulls drops the nulls that typed objects encode for fields that are not set, such as creationTimestamp.
func withoutNulls(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if inner == nil {
				delete(v, key)
				continue
			}
			v[key] = withoutNulls(inner)
		}
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	}
	return value
}
