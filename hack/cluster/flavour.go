package main

import "fmt"

// flavour is the kind of cluster that runs.
type flavour string

const (
	plain flavour = ""
	// openshift is Kubernetes with OpenShift's admission of Pods and the objects that it needs. Everything else is as
	// in a plain cluster.
	openshift flavour = "openshift"
)

// String returns the flavour's name for use in a sentence.
func (f flavour) String() string {
	if f == openshift {
		return "an OpenShift-flavoured cluster"
	}
	return "a plain cluster"
}

// differs returns an error that says what to do if the running cluster is not the wanted one.
func (s shape) differs(wanted shape) error {
	switch {
	case s.Flavour != wanted.Flavour && wanted.Flavour == openshift:
		return fmt.Errorf("%s is up: run `cluster down` first, leave --openshift out, or start another beside it with --instance", s.Flavour)
	case s.Flavour != wanted.Flavour:
		return fmt.Errorf("%s is up: run `cluster down` first, add --openshift, or start another beside it with --instance", s.Flavour)
	case s.NodeDisk != wanted.NodeDisk && s.NodeDisk == 0:
		return fmt.Errorf("a cluster whose nodes have no disks of their own is up: run `cluster down` first, leave --node-disk out, or start another beside it with --instance")
	case s.NodeDisk != wanted.NodeDisk:
		return fmt.Errorf("a cluster whose nodes have disks of %[1]s is up: run `cluster down` first, ask for --node-disk %[1]s, or start another beside it with --instance", s.NodeDisk.String())
	case s.Nodes != wanted.Nodes:
		return fmt.Errorf("a cluster with %d nodes is up: run `cluster down` first, or ask for --nodes %d", s.Nodes, s.Nodes)
	}
	return nil
}
