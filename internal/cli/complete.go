package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// completionTimeout is how long a shell waits for names. A cluster that does not answer must not hang it.
const completionTimeout = 2 * time.Second

// completeRunning completes the names of running PacketCaptures.
func (p *plugin) completeRunning(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	conn, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	names, err := runningCaptures(ctx, conn)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// runningCaptures returns the names of the PacketCaptures whose packets can be followed.
func runningCaptures(ctx context.Context, conn *connection) ([]string, error) {
	list := &v1alpha1.PacketCaptureList{}
	if err := conn.client.List(ctx, list, client.InNamespace(conn.namespace)); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if pc := &list.Items[i]; !pc.Status.Phase.Final() && pc.Spec.Rotate == nil {
			names = append(names, pc.Name)
		}
	}
	return names, nil
}
