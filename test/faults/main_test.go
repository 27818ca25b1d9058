//go:build faults

// Package faults kills every process and object of a capture at every important moment, on a real cluster of two nodes.
// It compares the result with the promises of docs/reliability.md, and the nodes and the API with their state before.
// SUITE=faults hack/e2e.sh runs it.
package faults

import (
	"fmt"
	"os"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"
)

// The captured Pods are on the node that the faults hit; their sender is on the other.
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
