package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/cli/collector"
)

func newCollector(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "collector",
		Short: "Open or close a namespace for Collectors",
		Long: `A Collector installs a tenant's backend with a Helm chart. Helm runs in a Job in the tenant's namespace, under the ServiceAccount
sonde-releaser. The admin of the namespace creates that ServiceAccount with its rights, and lets the operator create the Jobs (open).`,
		Example: `  kubectl sonde collector open -n acme
  kubectl get collectors -A`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "open",
			Short: "Let the operator run Helm in a namespace",
			Long: `Creates, in the namespace, the ServiceAccount sonde-releaser with the rights that charts usually need, and the Role with which the
operator may create the Jobs and their Secrets and ConfigMaps. You need all these rights yourself. The role admin has them.
If you may also give rights on ServiceMonitors, PodMonitors and PrometheusRules, the releaser gets these, too.`,
			Example: "  kubectl sonde collector open -n acme",
			Args:    cobra.NoArgs,
			RunE:    func(cmd *cobra.Command, _ []string) error { return p.openCollectors(cmd.Context()) },
		},
		&cobra.Command{
			Use:     "close",
			Short:   "Withdraw that permission",
			Long:    `Deletes what open has created. Releases stay as they are: nothing upgrades, repairs or removes them until you open the namespace again.`,
			Example: "  kubectl sonde collector close -n acme",
			Args:    cobra.NoArgs,
			RunE:    func(cmd *cobra.Command, _ []string) error { return p.closeCollectors(cmd.Context()) },
		},
	)
	return cmd
}

func (p *plugin) openCollectors(ctx context.Context) error {
	ns, err := p.collectorNamespace()
	if err != nil {
		return err
	}
	if err := ns.Open(ctx, p.reportConsent); err != nil {
		return err
	}
	fmt.Fprintf(p.streams.ErrOut, "The operator in namespace %s may run Helm in namespace %s. To undo this:\n  %s\n", ns.Operator, ns.Name, p.commandLine("collector close", ns.Name))
	return nil
}

func (p *plugin) closeCollectors(ctx context.Context) error {
	ns, err := p.collectorNamespace()
	if err != nil {
		return err
	}
	return ns.Close(ctx, p.reportConsent)
}

func (p *plugin) collectorNamespace() (collector.Namespace, error) {
	c, namespace, err := p.consentClient()
	return collector.Namespace{Client: c, Name: namespace, Operator: p.operatorNamespace}, err
}

func (p *plugin) reportConsent(o client.Object, done string) {
	fmt.Fprintf(p.streams.Out, "%s/%s %s\n", collector.KindOf(o), o.GetName(), done)
}
