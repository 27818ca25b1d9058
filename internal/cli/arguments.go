package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// nameArgument describes the argument NAME in usage errors.
const nameArgument = "the NAME of a PacketCapture or Trace (see kubectl sonde get)"

// nameHelp describes the argument NAME in help texts.
const nameHelp = `NAME is packetcapture/NAME or trace/NAME. Without a kind it is the PacketCapture of that name or, if there is
none, the Trace.`

// rejectZero rejects flags with the value 0. The API cannot: there 0 means the default.
func rejectZero(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "0" {
			return fmt.Errorf("--%s 0: write a number above zero, or omit the flag", name)
		}
	}
	return nil
}

// rejectEmpty rejects flags with an empty value, for example from an unset shell variable. The API would use the
// default.
func rejectEmpty(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		f := cmd.Flags().Lookup(name)
		if text := f.Value.String(); f.Changed && (text == "" || text == "[]") {
			return fmt.Errorf("--%s is empty: write a value, or omit the flag", name)
		}
	}
	return nil
}

// oneArgument requires one argument. Its error describes the argument, unlike cobra.ExactArgs.
func oneArgument(description string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 1:
			return nil
		case 0:
			return usageError(cmd, description)
		}
		return fmt.Errorf("%s takes one argument, and not also %q\nSee '%[1]s --help' for usage", cmd.CommandPath(), args[1])
	}
}

// someArguments requires at least one argument.
func someArguments(description string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return usageError(cmd, description)
	}
}

// usageError says which argument a command needs.
func usageError(cmd *cobra.Command, description string) error {
	return fmt.Errorf("%s needs %s\nSee '%s --help' for usage", cmd.CommandPath(), description, cmd.CommandPath())
}
