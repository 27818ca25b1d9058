// Package crds finds the CRDs of optional APIs in the modules that hack/crds pins.
package crds

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// Modules that hold the CRDs.
const (
	openshift  = "github.com/openshift/api"
	prometheus = "github.com/prometheus-operator/prometheus-operator"
)

// SCC returns the file with the CRD of SecurityContextConstraints. Call it from a directory two levels below the root.
func SCC(t *testing.T) string {
	t.Helper()
	return filepath.Join(dir(t, openshift), "payload-manifests/crds/0000_03_config-operator_01_securitycontextconstraints.crd.yaml")
}

// ConsoleAndMonitoring returns the files with the CRDs of the other four optional APIs that Sonde uses. Call it from a
// directory two levels below the root.
func ConsoleAndMonitoring(t *testing.T) []string {
	t.Helper()
	console, monitoring := filepath.Join(dir(t, openshift), "console/v1/zz_generated.crd-manifests"), filepath.Join(dir(t, prometheus), "example/prometheus-operator-crd")
	return []string{
		filepath.Join(console, "00_consoleclidownloads.crd.yaml"),
		filepath.Join(console, "00_consoleyamlsamples.crd.yaml"),
		filepath.Join(monitoring, "monitoring.coreos.com_servicemonitors.yaml"),
		filepath.Join(monitoring, "monitoring.coreos.com_prometheusrules.yaml"),
	}
}

// dir returns the directory of an unpacked pinned module.
func dir(t *testing.T, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = "../../hack/crds"
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("download %s: %v\n%s", module, err, out)
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil || m.Dir == "" {
		t.Fatalf("%s: %v", out, err)
	}
	return m.Dir
}
