package cli

import "github.com/spf13/cobra"

func newTrace(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use: "trace",
		// Until it makes traces.
		Hidden: true,
		Short:  "Read the system calls of a workload's Pods",
	}
	cmd.AddCommand(newTraceRead(p))
	return cmd
}
