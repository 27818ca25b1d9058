package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/results"
)

const resourceName = "packetcapture.monitoring.openshift.tpg/"

func newStop(p *plugin) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:     "stop NAME...",
		Short:   "End captures now; what they captured can be downloaded",
		Example: "  kubectl sonde stop web-x7k2p -n shop --wait",
		Args:    someArguments("the NAME of a PacketCapture (see kubectl sonde get)"),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.stop(cmd.Context(), args, wait) },
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "Return when they have ended")
	return cmd
}

func (p *plugin) stop(ctx context.Context, names []string, wait bool) error {
	conn, err := p.connect()
	if err != nil {
		return err
	}
	for _, name := range names {
		pc, err := capture.SetStop(ctx, conn.client, client.ObjectKey{Namespace: conn.namespace, Name: name})
		if err != nil {
			return err
		}
		what := "stopping"
		if pc.Status.Phase.Final() {
			what = fmt.Sprintf("had ended: %s", pc.Status.Phase)
		}
		fmt.Fprintf(p.streams.Out, "%s%s %s\n", resourceName, name, what)
	}
	if !wait {
		return nil
	}
	for _, name := range names {
		if err := p.awaitEnd(ctx, conn, name); err != nil {
			return err
		}
	}
	return nil
}

func (p *plugin) awaitEnd(ctx context.Context, conn *connection, name string) error {
	pc := &v1alpha1.PacketCapture{}
	if err := conn.client.Get(ctx, client.ObjectKey{Namespace: conn.namespace, Name: name}, pc); err != nil {
		return fmt.Errorf("get PacketCapture: %w", err)
	}
	display := p.display()
	defer display.Close()
	s := capture.NewState(pc, p.clock.Now())
	follower := &capture.Follower{
		Client: conn.client, Progress: statusOnly, Display: display, Clock: p.clock, Refresh: refresh, Retry: retry,
	}
	return follower.Follow(ctx, s)
}

// statusOnly is a progress stream without lines: for an end that takes a second the status will do.
func statusOnly(ctx context.Context, _ func(results.Update)) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func newDelete(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:     "delete NAME...",
		Short:   "Delete captures, and with them the files that lie in the cluster",
		Example: "  kubectl sonde delete web-x7k2p -n shop",
		Args:    someArguments("the NAME of a PacketCapture (see kubectl sonde get)"),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.delete(cmd.Context(), args) },
	}
}

func (p *plugin) delete(ctx context.Context, names []string) error {
	conn, err := p.connect()
	if err != nil {
		return err
	}
	for _, name := range names {
		pc := &v1alpha1.PacketCapture{}
		pc.Namespace, pc.Name = conn.namespace, name
		if err := conn.client.Delete(ctx, pc); err != nil {
			return fmt.Errorf("delete PacketCapture: %w", err)
		}
		fmt.Fprintf(p.streams.Out, "%s%s deleted\n", resourceName, name)
	}
	return nil
}
