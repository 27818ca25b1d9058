// Command clientschema prints the schemas of all CRDs in the form that applyconfiguration-gen reads: one OpenAPI v2 document
// whose definitions are named by Go types. The generated client needs them to extract and to fake applied fields.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// prefix of a Go type of the api package, in the form of OpenAPI.
const prefix = "com.github.sonde-operator.sonde.api."

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: clientschema DIRECTORY-OF-CRDS")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "clientschema:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return fmt.Errorf("list CRDs: %w", err)
	}
	definitions := map[string]any{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read CRD: %w", err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &crd); err != nil {
			return fmt.Errorf("parse %s: %w", file, err)
		}
		for _, version := range crd.Spec.Versions {
			definitions[prefix+version.Name+"."+crd.Spec.Names.Kind] = version.Schema.OpenAPIV3Schema
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"swagger": "2.0", "info": map[string]any{"title": "Sonde", "version": "v1alpha1"}, "paths": map[string]any{},
		"definitions": definitions,
	})
}
