package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

func newDelete(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete captures and traces together with their files in the cluster",
		Long: `Deletes captures and traces together with their files in the cluster.

` + nameHelp,
		Example: "  kubectl sonde delete web-x7k2p -n shop",
		Args:    someArguments(nameArgument),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.delete(cmd.Context(), args) },
	}
}

func (p *plugin) delete(ctx context.Context, names []string) error {
	refs, err := parseReferences(names)
	if err != nil {
		return err
	}
	conn, err := p.connect()
	if err != nil {
		return err
	}
	for _, r := range refs {
		c, err := r.find(conn.namespace, func(c v1alpha1.Capture) error {
			if err := conn.client.Delete(ctx, c); err != nil {
				return fmt.Errorf("delete %s: %w", c.KindName(), err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(p.streams.Out, "%s deleted\n", resourceName(c))
	}
	return nil
}
