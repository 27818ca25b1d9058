package installer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	k8syaml "sigs.k8s.io/yaml"
)

// bundleOf returns the entry of a bundle in the catalog.
func bundleOf(t *testing.T, name string) map[string]any {
	t.Helper()
	catalog, err := os.ReadFile("../../catalog/sonde/catalog.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(catalog), 4096); ; {
		var entry map[string]any
		if err := documents.Decode(&entry); err != nil {
			t.Fatalf("no bundle %s in the catalog (%v): run make catalog and commit", name, err)
		}
		if entry["schema"] == "olm.bundle" && entry["name"] == name {
			return entry
		}
	}
}

// The catalog repeats the bundle's CSV and images as opm renders them. This test finds a catalog that was not rendered again,
// without opm, which takes minutes to build.
func TestCatalogHasTheBundle(t *testing.T) {
	files, err := filepath.Glob("../../bundle/manifests/*.clusterserviceversion.yaml")
	if err != nil || len(files) != 1 {
		t.Fatalf("%d CSVs in the bundle, want 1 (%v)", len(files), err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var csv unstructured.Unstructured
	if err := k8syaml.Unmarshal(text, &csv.Object); err != nil {
		t.Fatal(err)
	}
	spec := csv.Object["spec"].(map[string]any)
	entry := bundleOf(t, csv.GetName())
	images, _ := entry["relatedImages"].([]any)
	if want := spec["relatedImages"].([]any); len(images) == 0 || !cmp.Equal(want, images[1:]) {
		t.Errorf("the catalog's images are %v, want the bundle's and %v: run make catalog and commit", images, want)
	}
	var got map[string]any
	for _, p := range entry["properties"].([]any) {
		if p := p.(map[string]any); p["type"] == "olm.csv.metadata" {
			got = p["value"].(map[string]any)
		}
	}
	meta := csv.Object["metadata"].(map[string]any)
	want := map[string]any{
		"annotations": meta["annotations"], "labels": meta["labels"],
		"apiServiceDefinitions": map[string]any{}, "crdDescriptions": spec["customresourcedefinitions"],
	}
	for _, key := range []string{"description", "displayName", "installModes", "keywords", "links", "maintainers", "maturity", "minKubeVersion", "provider"} {
		want[key] = spec[key]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stale catalog: run make catalog and commit (-bundle +catalog):\n%s", diff)
	}
}
