package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// wantName is what commands say that lack the name of a capture.
const wantName = "the NAME of a PacketCapture or Trace (see kubectl sonde get)"

// aboutNames is what commands say of the NAMEs that they take.
const aboutNames = `NAME is packetcapture/NAME or trace/NAME; without a kind it is the PacketCapture of that name or, where there is
none, the Trace.`

// refuseZero refuses what the API could not: there a zero is the same as nothing, and means the default.
func refuseZero(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "0" {
			return fmt.Errorf("--%s 0: write a number above zero, or leave it out", name)
		}
	}
	return nil
}

// refuseEmpty refuses what a variable leaves that is not set: it would mean the default.
func refuseEmpty(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		f := cmd.Flags().Lookup(name)
		if text := f.Value.String(); f.Changed && (text == "" || text == "[]") {
			return fmt.Errorf("--%s is empty: write a value, or leave it out", name)
		}
	}
	return nil
}

// oneArgument says which argument is missing, where cobra would only count.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return usageError(cmd, what)
	}
}

func someArguments(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return usageError(cmd, what)
	}
}

// usageError says what a command wants as its argument.
func usageError(cmd *cobra.Command, what string) error {
	return fmt.Errorf("%s wants %s\nSee '%s --help' for usage", cmd.CommandPath(), what, cmd.CommandPath())
}
