//go:build olm

// Package olm tests Sonde under real OLM, v0 and v1: install of the previous version, upgrade while a capture runs,
// uninstall. hack/olm.sh starts it on a local cluster with OpenShift's admission.
package olm

import (
	"fmt"
	"os"
	"testing"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sonde-operator/sonde/test/cluster"
)

// Settings from the environment (see hack/olm.sh).
var (
	programs = os.Getenv("SONDE_OLM")      // directory of OLM's programs and CRDs
	logs     = os.Getenv("SONDE_OLM_LOGS") // directory for their output, and for catalogs
	images   = os.Getenv("IMAGE_TOOL")     // the built hack/image
)

// The previous version, whose bundle is frozen in fixtures/, and this tree's.
var previous, current = os.Getenv("SONDE_PREVIOUS"), ""

func TestMain(m *testing.M) {
	if err := setup(); err != nil {
		fmt.Fprintln(os.Stderr, "olm:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func setup() error {
	if err := cluster.Setup("SONDE_OLM", "SONDE_OLM_LOGS", "IMAGE_TOOL", "SONDE_PREVIOUS"); err != nil {
		return err
	}
	for _, add := range []func(*runtime.Scheme) error{operatorsv1.AddToScheme, operatorsv1alpha1.AddToScheme} {
		if err := add(cluster.Scheme); err != nil {
			return fmt.Errorf("build scheme: %w", err)
		}
	}
	var err error
	current, err = currentVersion()
	return err
}
