package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// field is a spec descriptor or a status descriptor: two types with the same fields.
type field struct {
	path, display, description string
	x                          []string
}

// describe returns one description per CRD, with a descriptor for every field of spec and status. The fields that the
// CSV's base names come first, in its order, and the others follow by name. describe fails for a CRD without a base,
// and for a base that names a CRD or a field that does not exist.
func describe(bases []operatorsv1alpha1.CRDDescription, crds []apiextensionsv1.CustomResourceDefinition) ([]operatorsv1alpha1.CRDDescription, error) {
	if len(bases) != len(crds) {
		return nil, fmt.Errorf("the CSV's base describes %d kinds, but there are %d CRDs: describe each in config/manifests/bases", len(bases), len(crds))
	}
	var out []operatorsv1alpha1.CRDDescription
	for _, base := range bases {
		schema, err := schemaOf(crds, base.Name, base.Version)
		if err != nil {
			return nil, err
		}
		base.Description = oneLine(schema.Description)
		var spec, status []field
		for _, d := range base.SpecDescriptors {
			spec = append(spec, field{d.Path, d.DisplayName, d.Description, d.XDescriptors})
		}
		for _, d := range base.StatusDescriptors {
			status = append(status, field{d.Path, d.DisplayName, d.Description, d.XDescriptors})
		}
		if spec, err = complete(spec, schema.Properties["spec"]); err != nil {
			return nil, fmt.Errorf("describe the spec of %s: %w", base.Kind, err)
		}
		if status, err = complete(status, schema.Properties["status"]); err != nil {
			return nil, fmt.Errorf("describe the status of %s: %w", base.Kind, err)
		}
		base.SpecDescriptors, base.StatusDescriptors = nil, nil
		for _, f := range spec {
			base.SpecDescriptors = append(base.SpecDescriptors, operatorsv1alpha1.SpecDescriptor{Path: f.path, DisplayName: f.display, Description: f.description, XDescriptors: f.x})
		}
		for _, f := range status {
			base.StatusDescriptors = append(base.StatusDescriptors, operatorsv1alpha1.StatusDescriptor{Path: f.path, DisplayName: f.display, Description: f.description, XDescriptors: f.x})
		}
		out = append(out, base)
	}
	return out, nil
}

func schemaOf(crds []apiextensionsv1.CustomResourceDefinition, name, version string) (*apiextensionsv1.JSONSchemaProps, error) {
	for _, crd := range crds {
		for _, v := range crd.Spec.Versions {
			if crd.Name == name && v.Name == version && v.Schema != nil {
				return v.Schema.OpenAPIV3Schema, nil
			}
		}
	}
	return nil, fmt.Errorf("the CSV's base describes %s %s, which no CRD has: correct config/manifests/bases", name, version)
}

// complete fills fields in from their schema, and appends the fields that are missing.
func complete(fields []field, schema apiextensionsv1.JSONSchemaProps) ([]field, error) {
	missing := maps.Clone(schema.Properties)
	for i := range fields {
		f := &fields[i]
		property, ok := schema.Properties[f.path]
		if !ok {
			return nil, fmt.Errorf("there is no field %s: correct config/manifests/bases", f.path)
		}
		f.fill(property)
		delete(missing, f.path)
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		f := field{path: name}
		f.fill(missing[name])
		fields = append(fields, f)
	}
	return fields, nil
}

func (f *field) fill(schema apiextensionsv1.JSONSchemaProps) {
	if f.display == "" {
		f.display = title(f.path)
	}
	if f.description == "" {
		f.description = oneLine(schema.Description)
	}
}

// title makes "Snap length" of snapLength.
func title(name string) string {
	var b strings.Builder
	for i, r := range name {
		switch {
		case i == 0:
			b.WriteRune(unicode.ToUpper(r))
		case unicode.IsUpper(r):
			b.WriteRune(' ')
			b.WriteRune(unicode.ToLower(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
