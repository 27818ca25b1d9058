package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

func newDownload(p *plugin) *cobra.Command {
	var how saving
	cmd := &cobra.Command{
		Use:   "download NAME",
		Short: "Save the packets of a capture that was made before",
		Long: `Saves the files of every Pod of the PacketCapture NAME as one pcapng file.

Where the capture still runs, its end is awaited; interrupting (Ctrl-C) then leaves it running. The
PacketCapture is not deleted.`,
		Example: "  kubectl sonde download web-x7k2p -n shop -o web.pcapng",
		Args:    oneArgument("the NAME of a PacketCapture (see kubectl sonde get)"),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.download(cmd.Context(), args[0], how) },
	}
	addOutputFlags(cmd, &how)
	return cmd
}

func (p *plugin) download(ctx context.Context, name string, how saving) error {
	conn, err := p.connect()
	if err != nil {
		return err
	}
	if err := p.output(&how, name); err != nil {
		return err
	}
	pc := &v1alpha1.PacketCapture{}
	if err := conn.client.Get(ctx, client.ObjectKey{Namespace: conn.namespace, Name: name}, pc); err != nil {
		return fmt.Errorf("get PacketCapture: %w", err)
	}
	return p.attach(ctx, conn, pc, how)
}
