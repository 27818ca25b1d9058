package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// state is what one command records for the next: which cluster runs, and with which binaries. `up` writes it first,
// with Complete false, so that later commands recognise a killed `up`.
type state struct {
	shape
	Binaries string `json:"binaries"`
	Complete bool   `json:"complete"`
	// Simulates reports that kwok runs beside the nodes.
	Simulates bool `json:"simulates,omitempty"`
}

// shape holds the properties that a user chooses for a cluster.
type shape struct {
	Nodes   int     `json:"nodes"`
	Flavour flavour `json:"flavour,omitempty"`
	// NodeDisk is the size of each node's own disk, zero for none.
	NodeDisk size `json:"nodeDisk,omitempty"`
}

// errNotUp says that no cluster runs.
var errNotUp = errors.New("no cluster is up: run `cluster up` (make cluster-up) first")

// readState returns the state of the running cluster, or errNotUp.
func readState(l layout) (state, error) {
	var s state
	b, err := os.ReadFile(l.state())
	if errors.Is(err, fs.ErrNotExist) {
		return s, errNotUp
	}
	if err != nil {
		return s, fmt.Errorf("read the cluster's state: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("parse %s (run `cluster down` to start afresh): %w", l.state(), err)
	}
	return s, nil
}

// completeState returns the state of a cluster that `up` has finished.
func completeState(l layout) (state, error) {
	s, err := readState(l)
	if err == nil && !s.Complete {
		return s, fmt.Errorf("an earlier `cluster up` did not finish: %w", errNotUp)
	}
	return s, err
}

// write stores the state with a rename, so that readers see all of it or nothing.
func (s state) write(l layout) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the cluster's state: %w", err)
	}
	tmp := l.state() + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("write the cluster's state: %w", err)
	}
	if err := os.Rename(tmp, l.state()); err != nil {
		return fmt.Errorf("put the cluster's state in place: %w", err)
	}
	return nil
}
