//go:build olm

package olm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"testing"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// The files of the tree that OLM installs from.
const (
	catalogFile  = "../../catalog/sonde/catalog.yaml"
	csvFile      = "manifests/sonde.clusterserviceversion.yaml"
	bundleDir    = "../../bundle"
	packageName  = "sonde"
	channelBlock = "olm.channel"
)

// previousDir is the frozen bundle.
func previousDir() string { return filepath.Join("fixtures", previous) }

func readCSV(bundle string) (*operatorsv1alpha1.ClusterServiceVersion, error) {
	var csv operatorsv1alpha1.ClusterServiceVersion
	b, err := os.ReadFile(filepath.Join(bundle, csvFile))
	if err == nil {
		err = sigsyaml.Unmarshal(b, &csv)
	}
	if err != nil {
		return nil, fmt.Errorf("read the bundle in %s: %w", bundle, err)
	}
	return &csv, nil
}

func currentVersion() (string, error) {
	csv, err := readCSV(bundleDir)
	if err != nil {
		return "", err
	}
	version := csv.Spec.Version.String()
	if version == previous {
		return "", fmt.Errorf("the bundle's version, %s, is also the previous one: there is no upgrade to test", version)
	}
	return version, nil
}

// catalog writes the tree's catalog as it was when version was the newest. It returns the directory.
func catalog(t *testing.T, version string) string {
	t.Helper()
	content, err := os.ReadFile(catalogFile)
	if err != nil {
		t.Fatal(err)
	}
	later := "sonde.v" + current
	if version == current {
		later = ""
	}
	var out bytes.Buffer
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var block map[string]any
		err := documents.Decode(&block)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("read %s: %v", catalogFile, err)
		}
		if block["name"] == later && later != "" {
			continue
		}
		if block["schema"] == channelBlock {
			entries, _ := block["entries"].([]any)
			block["entries"] = slices.DeleteFunc(entries, func(e any) bool { return e.(map[string]any)["name"] == later })
		}
		if err := json.NewEncoder(&out).Encode(block); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(logs, "catalog-"+version)
	if err := os.MkdirAll(filepath.Join(dir, packageName), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, packageName, "catalog.json"), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// catalogImages loads the images of the catalog, with and without the current version.
func catalogImages(t *testing.T) {
	t.Helper()
	for _, version := range []string{previous, current} {
		catalogImage(t, version)
	}
}

func catalogImage(t *testing.T, version string) {
	t.Helper()
	archive := filepath.Join(logs, "catalog-"+version+".tar")
	build := osexec.CommandContext(t.Context(), images, "build", "-o", archive, "--name", "quay.io/sonde/sonde-catalog:v"+version,
		"--label", "operators.operatorframework.io.index.configs.v1=/configs", "configs="+catalog(t, version))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make the catalog's image: %v: %s", err, out)
	}
	if _, err := run(t.Context(), "", "load", archive); err != nil {
		t.Fatal(err)
	}
}
