//go:build faults

// Package faults kills every process and object of a capture at every moment that matters, on a real cluster of two
// nodes, and compares what comes of it with what docs/reliability.md promises, and node and API with what they were
// before. SUITE=faults hack/e2e.sh starts it.
package faults

import (
	"fmt"
	"os"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"
)

// The captured Pods are on the node that is hurt; what sends to them is on the other.
const (
	hurt  = "n2"
	spare = "n1"
)

func TestMain(m *testing.M) {
	if err := cluster.Setup(); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
