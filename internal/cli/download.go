package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func newDownload(p *plugin) *cobra.Command {
	var opts saveOptions
	cmd := &cobra.Command{
		Use:   "download NAME",
		Short: "Save the files of an existing capture or trace",
		Long: `Saves the files of all Pods of the PacketCapture or Trace NAME as one file, as the commands capture and trace do.

` + nameHelp + `
The command waits until the capture has ended. Interrupting (Ctrl-C) leaves it running. It is not deleted.`,
		Example: `  kubectl sonde download web-x7k2p -n shop -o web.pcapng
  kubectl sonde download trace/web-x7k2p -n shop -o web.ndjson`,
		Args: oneArgument(nameArgument),
		RunE: func(cmd *cobra.Command, args []string) error { return p.download(cmd.Context(), args[0], opts) },
	}
	addOutputFlags(cmd, &opts, "NAME-TIME.pcapng or .ndjson")
	return cmd
}

func (p *plugin) download(ctx context.Context, name string, opts saveOptions) error {
	conn, c, err := p.find(ctx, name)
	if err != nil {
		return err
	}
	if err := p.output(&opts, c.GetName(), c); err != nil {
		return err
	}
	return p.attach(ctx, conn, c, opts)
}
