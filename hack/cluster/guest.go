package main

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"
)

// guestCommand runs an external program as if it were part of the control plane.
func guestCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "guest -- PROGRAM ARGS...",
		Short: "Run a program in the control plane's network, with a kubeconfig for there in KUBECONFIG",
		Long: `Run a program in the control plane's network (10.99.0.10), with an administrator's kubeconfig for there in KUBECONFIG.
It reaches API server, registry and Pods, and they reach it. It ends with the cluster at the latest.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, argv []string) error {
			return becomeGuest(o.layout(), argv)
		},
	}
}

// becomeGuest replaces this process by argv. It must run on a locked thread.
func becomeGuest(l layout, argv []string) error {
	if _, err := completeState(l); err != nil {
		return err
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("find the program to run: %w", err)
	}
	if err := os.Setenv("KUBECONFIG", l.insideKubeconfig()); err != nil {
		return fmt.Errorf("set KUBECONFIG: %w", err)
	}
	at := place{cgroup: "guests", netns: l.netns(controlPlanePart)}
	return at.become(l, append([]string{program}, argv[1:]...))
}
