package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/results"
)

func newStop(p *plugin) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "stop NAME...",
		Short: "Stop captures and traces; their results can be downloaded",
		Long: `Stops captures and traces. Their results can be downloaded.

` + nameHelp,
		Example: `  kubectl sonde stop web-x7k2p -n shop --wait
  kubectl sonde stop trace/web-x7k2p -n shop`,
		Args: someArguments(nameArgument),
		RunE: func(cmd *cobra.Command, args []string) error { return p.stop(cmd.Context(), args, wait) },
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "Wait until they have ended")
	return cmd
}

func (p *plugin) stop(ctx context.Context, names []string, wait bool) error {
	refs, err := parseReferences(names)
	if err != nil {
		return err
	}
	conn, err := p.connect()
	if err != nil {
		return err
	}
	var stopped []v1alpha1.Capture
	for _, r := range refs {
		c, err := r.find(conn.namespace, func(c v1alpha1.Capture) error { return capture.SetStop(ctx, conn.client, c) })
		if err != nil {
			return err
		}
		what := "stopping"
		if phase := c.CaptureStatus().Phase; phase.Final() {
			what = fmt.Sprintf("had ended: %s", phase)
		}
		fmt.Fprintf(p.streams.Out, "%s %s\n", resourceName(c), what)
		stopped = append(stopped, c)
	}
	if !wait {
		return nil
	}
	for _, c := range stopped {
		if err := p.awaitEnd(ctx, conn, c); err != nil {
			return err
		}
	}
	return nil
}

func (p *plugin) awaitEnd(ctx context.Context, conn *connection, c v1alpha1.Capture) error {
	display := p.display(p.streams.ErrOut)
	defer display.Close()
	s := capture.NewState(c, p.clock.Now())
	follower := &capture.Follower{
		Client: conn.client, Progress: statusOnly, Display: display, Clock: p.clock, Refresh: refresh, Retry: retry,
	}
	return follower.Follow(ctx, s)
}

// statusOnly is a progress stream without lines. Stopping takes about a second, so the status is enough.
func statusOnly(ctx context.Context, _ func(results.Update)) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
