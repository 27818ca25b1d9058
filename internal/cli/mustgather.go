package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/internal/cli/gather"
)

func newMustGather(p *plugin) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "must-gather",
		Short: "Collect information to diagnose a fault of Sonde",
		Long: `Collects Sonde's resources of all namespaces, the operator's objects, events and logs, and versions. It needs
the rights of a cluster admin. It names what it could not read, and collects the rest.

It reads no Secrets and redacts stamps, hashes of tokens, the paths of the webhooks, the environment variables of
FluentPVCs, the Helm values of Collectors, the values of headers in InterceptRequests, and passwords in URLs. It collects
neither packets nor events of traces. The result has names of users, namespaces, Pods and nodes, the filters of captures
and the commands of FluentPVCs, and conditions may quote values of Collectors: check its content before you share it.`,
		Example: `  kubectl sonde must-gather
  kubectl sonde must-gather -o sonde.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.mustGather(cmd.Context(), path) },
	}
	cmd.Flags().StringVarP(&path, "output", "o", "", "Directory to create, or a file that ends in .tar, .tar.gz or .tgz (default sonde-must-gather-TIME)")
	return cmd
}

func (p *plugin) mustGather(ctx context.Context, path string) (err error) {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100 // a log for each container of each agent
	now := p.clock.Now()
	if path == "" {
		path = "sonde-must-gather-" + now.UTC().Format("20060102T150405Z")
	}
	sink, err := gather.NewSink(path, now)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sink.Close()) }()
	g, err := gather.New(config, p.operatorNamespace, sink)
	if err != nil {
		return err
	}
	failures, err := g.Run(ctx)
	if err != nil {
		return err
	}
	for _, f := range failures {
		fmt.Fprintf(p.streams.ErrOut, "not collected: %s\n", printable(f))
	}
	fmt.Fprintf(p.streams.ErrOut, "collected in %s; check its content before you share it\n", path)
	return nil
}
