package main

import (
	"fmt"
	"os"
	"testing"
)

// TestMain lets the test's own binary be bench's children.
func TestMain(m *testing.M) {
	if ran, err := runRole(os.Args[1:]); ran {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if agentDir != "" {
		_ = os.RemoveAll(agentDir)
	}
	os.Exit(code)
}
