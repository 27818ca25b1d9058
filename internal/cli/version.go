package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/internal/version"
)

func newVersion(p *plugin) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the plugin's version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versions{Version: version.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if asJSON {
				return p.writeJSON(v)
			}
			fmt.Fprintf(p.streams.Out, "kubectl-sonde %s (%s, %s)\n", v.Version, v.Go, v.Platform)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "Print as JSON")
	return cmd
}

type versions struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}
