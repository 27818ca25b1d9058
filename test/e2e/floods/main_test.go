//go:build e2e

// Package floods measures on a real cluster what one tenant's flood of requests does to another tenant. hack/e2e.sh runs
// it.
package floods

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
