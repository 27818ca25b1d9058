//go:build e2e

// Package operations tests, on a real cluster, the operator itself: replicas, health, ceilings, metrics, audit. hack/e2e.sh starts it.
package operations

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
