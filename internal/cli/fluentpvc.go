package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/fluentpvc"
)

// volumeArgument describes the argument NAME of retry and discard in usage errors.
const volumeArgument = "the NAME of a FluentPVCBinding (see kubectl get fluentpvcbindings)"

func newFluentPVC(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fluentpvc",
		Short: "Allow FluentPVCs in a namespace; retry or discard volumes",
		Long: `A FluentPVC gives each Pod that names it a volume and a sidecar. After the Pod has ended, a Job processes the data, and the
volume is deleted. The admin of a namespace lets the operator do that there (allow). For each volume there is a FluentPVCBinding:
kubectl get fluentpvcbindings lists them with their phases.`,
		Example: `  kubectl sonde fluentpvc allow -n shop
  kubectl sonde fluentpvc retry logs-1a2b3c4d-abcdefghij -n shop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFluentPVCAllow(p), newFluentPVCDisallow(p), newFluentPVCRetry(p), newFluentPVCDiscard(p))
	return cmd
}

func newFluentPVCAllow(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "allow",
		Short: "Let the operator create volumes and Jobs in a namespace",
		Long: `Creates the RoleBinding sonde-fluentpvc in the namespace. With it, the operator may create and delete PersistentVolumeClaims
and Jobs there. You need these rights yourself, and the right to create RoleBindings. The role admin has both.`,
		Example: "  kubectl sonde fluentpvc allow -n shop",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.allowFluentPVC(cmd.Context()) },
	}
}

func newFluentPVCDisallow(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "disallow",
		Short: "Withdraw that permission",
		Long: `Deletes the RoleBinding sonde-fluentpvc from the namespace. New Pods that name a FluentPVC are refused. Existing
volumes stay. The operator neither processes nor deletes them until you allow it again.`,
		Example: "  kubectl sonde fluentpvc disallow -n shop",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.disallowFluentPVC(cmd.Context()) },
	}
}

func newFluentPVCRetry(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:     "retry NAME...",
		Short:   "Start new finalizer Jobs for volumes whose attempts have all failed",
		Long:    `Starts new attempts, up to finalizer.maxAttempts. NAME is a FluentPVCBinding in phase FinalizerJobFailed. Its condition Finalized names the Job that failed; read its log first.`,
		Example: "  kubectl sonde fluentpvc retry logs-1a2b3c4d-abcdefghij -n shop",
		Args:    someArguments(volumeArgument),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.retryVolumes(cmd.Context(), args) },
	}
}

func newFluentPVCDiscard(p *plugin) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "discard NAME...",
		Short: "Delete volumes with their data",
		Long: `Deletes volumes with their data, whether a Job has processed it or not. NAME is a FluentPVCBinding, or a
PersistentVolumeClaim of Sonde that has lost its binding. If its Pod still runs, the volume goes when
the Pod ends, without a Job.

The command asks before it deletes. You need the right to delete PersistentVolumeClaims.`,
		Example: `  kubectl sonde fluentpvc discard logs-1a2b3c4d-abcdefghij -n shop
  kubectl sonde fluentpvc discard logs-1a2b3c4d-abcdefghij -n shop --yes`,
		Args: someArguments(volumeArgument),
		RunE: func(cmd *cobra.Command, args []string) error { return p.discardVolumes(cmd.Context(), args, yes) },
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask")
	return cmd
}

func (p *plugin) allowFluentPVC(ctx context.Context) error {
	ns, err := p.fluentPVCNamespace()
	if err != nil {
		return err
	}
	changed, err := ns.Allow(ctx)
	if err != nil {
		return err
	}
	done := "unchanged"
	if changed {
		done = "created"
	}
	fmt.Fprintf(p.streams.Out, "rolebinding.rbac.authorization.k8s.io/%s %s\n", fluentpvc.Role, done)
	fmt.Fprintf(p.streams.ErrOut, "The operator in namespace %s may create and delete PersistentVolumeClaims and Jobs in namespace %s. To undo this:\n  %s\n",
		ns.Operator, ns.Name, p.commandLine("fluentpvc disallow", ns.Name))
	return nil
}

func (p *plugin) disallowFluentPVC(ctx context.Context) error {
	ns, err := p.fluentPVCNamespace()
	if err != nil {
		return err
	}
	existed, left, err := ns.Disallow(ctx)
	if err != nil {
		return err
	}
	done := "not found"
	if existed {
		done = "deleted"
	}
	fmt.Fprintf(p.streams.Out, "rolebinding.rbac.authorization.k8s.io/%s %s\n", fluentpvc.Role, done)
	if left > 0 {
		fmt.Fprintf(p.streams.ErrOut, "Volumes left in namespace %s: %d. The operator neither processes nor deletes their data. To resume:\n  %s\n",
			ns.Name, left, p.commandLine("fluentpvc allow", ns.Name))
	}
	return nil
}

func (p *plugin) retryVolumes(ctx context.Context, names []string) error {
	volumes, _, err := p.volumes(ctx, names)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if err := v.Retry(ctx, p.clock.Now()); err != nil {
			return err
		}
		fmt.Fprintf(p.streams.Out, "%s: retry requested\n", v.Reference())
	}
	return nil
}

func (p *plugin) discardVolumes(ctx context.Context, names []string, yes bool) error {
	volumes, namespace, err := p.volumes(ctx, names)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		fmt.Fprintln(p.streams.ErrOut, v.Loss())
	}
	if !yes {
		if err := p.confirm("Delete this data in namespace " + namespace + "?"); err != nil {
			return err
		}
	}
	for _, v := range volumes {
		if err := v.Discard(ctx, p.clock.Now()); err != nil {
			return err
		}
		fmt.Fprintf(p.streams.Out, "%s: discard requested\n", v.Reference())
	}
	return nil
}

// confirm asks the user. Every answer but yes is an error, and so is the end of the input.
func (p *plugin) confirm(question string) error {
	fmt.Fprintf(p.streams.ErrOut, "%s [y/N] ", question)
	answer, err := bufio.NewReader(p.streams.In).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	if err != nil {
		fmt.Fprintln(p.streams.ErrOut)
	}
	return errors.New("nothing is deleted: answer y, or add --yes")
}

// volumes finds all volumes before a command changes one.
func (p *plugin) volumes(ctx context.Context, names []string) (found []*fluentpvc.Volume, namespace string, err error) {
	ns, err := p.fluentPVCNamespace()
	if err != nil {
		return nil, "", err
	}
	for _, name := range names {
		v, err := fluentpvc.Find(ctx, ns.Client, ns.Name, name)
		if err != nil {
			return nil, "", err
		}
		found = append(found, v)
	}
	return found, ns.Name, nil
}

// fluentPVCNamespace connects to the namespace that the flags select.
func (p *plugin) fluentPVCNamespace() (fluentpvc.Namespace, error) {
	c, namespace, err := p.consentClient()
	return fluentpvc.Namespace{Client: c, Name: namespace, Operator: p.operatorNamespace}, err
}

// consentClient returns a client for the objects by which a namespace's admin allows the operator something, and the namespace that the
// flags select.
func (p *plugin) consentClient() (client.Client, string, error) {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	c, err := newConsentClient(config)
	if err != nil {
		return nil, "", fmt.Errorf("connect to the cluster: %w", err)
	}
	return c, namespace, nil
}

func newConsentClient(config *rest.Config) (client.Client, error) {
	s := scheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(rbacv1.AddToScheme(s))
	m := apimeta.NewDefaultRESTMapper(nil) // as in connect, it saves a discovery request
	m.Add(v1alpha1.GroupVersion.WithKind("FluentPVCBinding"), apimeta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), apimeta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), apimeta.RESTScopeNamespace)
	m.Add(rbacv1.SchemeGroupVersion.WithKind("Role"), apimeta.RESTScopeNamespace)
	m.Add(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), apimeta.RESTScopeNamespace)
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	return client.New(config, client.Options{Scheme: s, Mapper: m})
}
