//go:build olm

// Package olm tests Sonde's life under real OLM, v0 and v1: install of the previous version, upgrade while a capture runs,
// uninstall. hack/olm.sh starts it, on a local cluster with OpenShift's admission.
package olm

import (
	"fmt"
	"os"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"
)

// What the environment tells (see hack/olm.sh).
var (
	programs = os.Getenv("SONDE_OLM")      // directory of OLM's programs and CRDs
	logs     = os.Getenv("SONDE_OLM_LOGS") // directory for what they say, and for catalogs
	images   = os.Getenv("IMAGE_TOOL")     // the built hack/image
)

// The versions: the one before, whose bundle is frozen in fixtures/, and this tree's.
var previous, current = os.Getenv("SONDE_PREVIOUS"), ""

func TestMain(m *testing.M) {
	err := cluster.Setup("SONDE_OLM", "SONDE_OLM_LOGS", "IMAGE_TOOL", "SONDE_PREVIOUS")
	if err == nil {
		current, err = currentVersion()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "olm:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
