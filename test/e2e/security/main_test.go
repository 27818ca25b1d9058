//go:build e2e

// Package security tests rights, OpenShift's admission, and attacks on a real cluster. hack/e2e.sh runs it.
package security

import (
	"fmt"
	"os"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"
)

func TestMain(m *testing.M) {
	if err := cluster.Setup("SONDE_AUDIT_LOG", "SONDE_INSTALL"); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
