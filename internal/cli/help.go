package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// usageTemplate is cobra's, without the flags that every command takes: those of the kubeconfig fill a screen.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Available Commands:{{range .Commands}}{{if (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}

Flags:
{{.LocalNonPersistentFlags.FlagUsages | trimTrailingWhitespaces}}

"{{.Root.DisplayName}} options" lists the flags that every command takes, like --namespace and --context.{{if .HasAvailableSubCommands}}
"{{.CommandPath}} [command] --help" says more about a command.{{end}}
`

func newOptions(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that every command takes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := fmt.Fprint(p.streams.Out, "Every command takes these flags:\n\n", cmd.InheritedFlags().FlagUsages()); err != nil {
				return fmt.Errorf("print: %w", err)
			}
			return nil
		},
	}
}
