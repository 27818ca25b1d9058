//go:build e2e

// Package fluentpvc tests on a real cluster that each Pod gets its volume and its sidecar, that a Job processes the volume after the
// Pod has ended, and that nothing of it remains. hack/e2e.sh runs it.
package fluentpvc

import (
	"fmt"
	"os"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"
)

func TestMain(m *testing.M) {
	if err := cluster.Setup(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
