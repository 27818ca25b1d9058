// Package crds finds the CRDs of optional APIs: OpenShift's in the module whose types the operator uses, the Prometheus
// operator's in the module that hack/crds pins.
package crds

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// SCC returns the file with the CRD of SecurityContextConstraints.
func SCC(t *testing.T) string {
	t.Helper()
	return filepath.Join(openshift(t), "payload-manifests/crds/0000_03_config-operator_01_securitycontextconstraints.crd.yaml")
}

// ConsoleAndMonitoring returns the files with the CRDs of the other four optional APIs that Sonde uses.
func ConsoleAndMonitoring(t *testing.T) []string {
	t.Helper()
	console := filepath.Join(openshift(t), "console/v1/zz_generated.crd-manifests")
	monitoring := filepath.Join(moduleDir(t, "hack/crds", "github.com/prometheus-operator/prometheus-operator"), "example/prometheus-operator-crd")
	return []string{
		filepath.Join(console, "00_consoleclidownloads.crd.yaml"),
		filepath.Join(console, "00_consoleyamlsamples.crd.yaml"),
		filepath.Join(monitoring, "monitoring.coreos.com_servicemonitors.yaml"),
		filepath.Join(monitoring, "monitoring.coreos.com_prometheusrules.yaml"),
	}
}

func openshift(t *testing.T) string {
	t.Helper()
	return moduleDir(t, ".", "github.com/openshift/api")
}

// moduleDir returns the directory of a module, in the version that the go.mod in pinned names. pinned is relative to
// the root.
func moduleDir(t *testing.T, pinned, module string) string {
	t.Helper()
	gomod, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("find the root module: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(gomod))), pinned)
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
