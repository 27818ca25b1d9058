package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func newDownload(p *plugin) *cobra.Command {
	var how saving
	cmd := &cobra.Command{
		Use:   "download NAME",
		Short: "Save the files of a capture or trace that was made before",
		Long: `Saves the files of every Pod of the PacketCapture or Trace NAME as one file, as the commands capture and trace do.

` + aboutNames + `
Where it still runs, its end is awaited; interrupting (Ctrl-C) then leaves it running. It is not deleted.`,
		Example: `  kubectl sonde download web-x7k2p -n shop -o web.pcapng
  kubectl sonde download trace/web-x7k2p -n shop -o web.ndjson`,
		Args: oneArgument(wantName),
		RunE: func(cmd *cobra.Command, args []string) error { return p.download(cmd.Context(), args[0], how) },
	}
	addOutputFlags(cmd, &how, "NAME-TIME.pcapng or .ndjson")
	return cmd
}

func (p *plugin) download(ctx context.Context, name string, how saving) error {
	ref, err := parseReference(name)
	if err != nil {
		return err
	}
	conn, err := p.connect()
	if err != nil {
		return err
	}
	c, err := ref.get(ctx, conn)
	if err != nil {
		return err
	}
	if err := p.output(&how, ref.name, c); err != nil {
		return err
	}
	return p.attach(ctx, conn, c, how)
}
