package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/intercept"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/table"
)

func newIntercepts(p *plugin) *cobra.Command {
	var all bool
	flags := genericclioptions.NewPrintFlags("").WithTypeSetter(scheme())
	cmd := &cobra.Command{
		Use:     "intercepts",
		Short:   "List intercepts, with their users",
		Example: "  kubectl sonde intercepts -n shop\n  kubectl sonde intercepts -A -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.listIntercepts(cmd.Context(), flags, all) },
	}
	flags.AddFlags(cmd)
	cmd.Flags().Lookup("output").Usage = "Output format: json, yaml, name, jsonpath=..., go-template=..."
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "List the intercepts of all namespaces")
	return cmd
}

// newDown is "kubectl sonde down".
func newDown(p *plugin) *cobra.Command { return downCommand(p, "kubectl sonde down") }

// newInterceptDown is "kubectl sonde intercept down", another name of "kubectl sonde down". The help of intercept does not list it.
func newInterceptDown(p *plugin) *cobra.Command {
	cmd := downCommand(p, "kubectl sonde intercept down")
	cmd.Hidden = true
	return cmd
}

func downCommand(p *plugin, name string) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down [NAME...]",
		Short: "End intercepts: those named, or all of your own",
		Long: `Deletes InterceptRequests, and waits until they are gone: those named, or all that you created in the namespace. The apps answer
again at once.`,
		Example: "  " + name + " -n shop\n  " + name + " web-x7k2p -n shop",
		RunE:    func(cmd *cobra.Command, args []string) error { return p.down(cmd.Context(), args, all) },
	}
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "End your own intercepts in all namespaces")
	return cmd
}

func (p *plugin) intercepts(ctx context.Context, conn *connection, all bool) ([]v1alpha1.InterceptRequest, error) {
	var where []client.ListOption
	if !all {
		where = append(where, client.InNamespace(conn.namespace))
	}
	var list v1alpha1.InterceptRequestList
	if err := conn.client.List(ctx, &list, where...); err != nil {
		return nil, fmt.Errorf("list InterceptRequests: %w", err)
	}
	return list.Items, nil
}

func (p *plugin) listIntercepts(ctx context.Context, flags *genericclioptions.PrintFlags, all bool) error {
	conn, err := p.connect()
	if err != nil {
		return err
	}
	items, err := p.intercepts(ctx, conn, all)
	switch {
	case err != nil:
		return err
	case *flags.OutputFormat != "":
		return p.printIntercepts(flags, items)
	}
	if len(items) == 0 {
		fmt.Fprintln(p.streams.ErrOut, "No intercepts found"+in(conn, all))
		return nil
	}
	rows := [][]string{{"NAMESPACE", "NAME", "USER", "TARGET", "PORT", "MATCH", "PHASE", "PODS", "REQUESTS", "AGE"}}
	for i := range items {
		o := &items[i]
		_, target := o.AgentTarget()
		active, matched := 0, int64(0)
		if gone := o.Status.RemovedPods; gone != nil {
			matched = gone.Matched
		}
		for _, pod := range o.Status.Pods {
			matched += pod.Matched
			if pod.Active {
				active++
			}
		}
		rows = append(rows, []string{
			o.Namespace, o.Name, requester(o), target.String(), strconv.Itoa(int(o.Spec.TargetContainerPort)), intercept.Conditions(o.Spec.Match), string(o.Status.Phase),
			fmt.Sprintf("%d/%d", active, len(o.Status.Pods)+int(o.Status.PodsOmitted)), strconv.FormatInt(matched, 10), duration.HumanDuration(p.clock.Since(o.CreationTimestamp.Time)),
		})
	}
	for i, row := range rows {
		for j, cell := range row {
			rows[i][j] = table.Printable(cell)
		}
		if !all {
			rows[i] = rows[i][1:]
		}
	}
	sides := strings.Repeat("l", len(rows[0]))
	if _, err := fmt.Fprint(p.streams.Out, table.Text(sides, rows)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// printIntercepts prints the items as one list, or one by one with -o name, whose printer accepts no list.
func (p *plugin) printIntercepts(flags *genericclioptions.PrintFlags, items []v1alpha1.InterceptRequest) error {
	for i := range items { // items of lists do not have their kind set
		items[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind.Intercept.Name))
	}
	if *flags.OutputFormat != "name" {
		return p.printObject(flags, &v1alpha1.InterceptRequestList{Items: items})
	}
	for i := range items {
		if err := p.printObject(flags, &items[i]); err != nil {
			return err
		}
	}
	return nil
}

// in says where a command has looked, and how to look everywhere.
func in(conn *connection, all bool) string {
	if all {
		return ""
	}
	return " in namespace " + conn.namespace + " (-A: in all namespaces)"
}

// requester returns the user who created the request, as the webhook noted it; empty if there is no note.
func requester(o *v1alpha1.InterceptRequest) string {
	var claim struct {
		Requester struct {
			Username string `json:"username"`
		} `json:"requester"`
	}
	_ = json.Unmarshal([]byte(o.Annotations[v1alpha1.AnnotationRequester]), &claim)
	return claim.Requester.Username
}

func (p *plugin) down(ctx context.Context, names []string, all bool) error {
	if all && len(names) > 0 {
		return errors.New("write either names or -A: a name needs a namespace (-n)")
	}
	conn, err := p.connect()
	if err != nil {
		return err
	}
	chosen, failed := namedIntercepts(ctx, conn, names)
	if len(names) == 0 {
		if chosen, err = p.ownIntercepts(ctx, conn, all); err != nil {
			return err
		}
		if len(chosen) == 0 {
			fmt.Fprintln(p.streams.ErrOut, "You have no intercepts"+in(conn, all))
			return nil
		}
	}
	for i := range chosen { // also after an error: each of them answers requests
		if ctx.Err() != nil {
			break
		}
		o := &chosen[i]
		if err := endIntercept(ctx, conn.client, o); err != nil {
			failed = append(failed, fmt.Errorf("delete InterceptRequest %s/%s: %w", o.Namespace, o.Name, err))
			continue
		}
		fmt.Fprintf(p.streams.Out, "interceptrequest.%s/%s deleted: it no longer intercepts %s\n", v1alpha1.GroupVersion.Group, o.Name, intercept.Target(o))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(failed) == 0 {
		return nil
	}
	for _, err := range failed { // of joined errors, only the API server's first one would be printed
		fmt.Fprintln(p.streams.ErrOut, describe(err))
	}
	return exitCode(report.ExitError)
}

// endIntercept deletes an InterceptRequest. Each has its own time limit, so that one that hangs does not keep others from being deleted.
func endIntercept(ctx context.Context, c client.Client, o *v1alpha1.InterceptRequest) error {
	ctx, cancel := context.WithTimeout(ctx, cleanup)
	defer cancel()
	_, err := removeIntercept(ctx, c, o)
	return err
}

// isInterceptKind reports whether a KIND/NAME, as commands print it, names an InterceptRequest.
func isInterceptKind(name string) bool {
	of, _, _ := strings.Cut(strings.ToLower(name), "/")
	of = strings.TrimSuffix(of, "."+v1alpha1.GroupVersion.Group)
	return of == "interceptrequest" || of == "interceptrequests"
}

// namedIntercepts returns those that can be read, and an error for each of the others.
func namedIntercepts(ctx context.Context, conn *connection, names []string) (found []v1alpha1.InterceptRequest, failed []error) {
	for _, name := range names {
		if _, after, ok := strings.Cut(name, "/"); ok {
			if !isInterceptKind(name) {
				failed = append(failed, fmt.Errorf("%s is no InterceptRequest: write the NAME of one, as kubectl sonde intercepts lists it", name))
				continue
			}
			name = after
		}
		var o v1alpha1.InterceptRequest
		bounded, cancel := context.WithTimeout(ctx, cleanup)
		err := conn.client.Get(bounded, client.ObjectKey{Namespace: conn.namespace, Name: name}, &o)
		cancel()
		status, isStatus := errors.AsType[*apierrors.StatusError](err)
		switch {
		case isStatus && apierrors.IsNotFound(err) && !noSuchKind(status.Status()):
			failed = append(failed, fmt.Errorf("namespace %s has no InterceptRequest %s: perhaps it was deleted, or is in another namespace. To see those of a namespace: kubectl sonde intercepts -n NAMESPACE",
				conn.namespace, name))
			continue
		case err != nil:
			failed = append(failed, fmt.Errorf("read InterceptRequest %s: %w", name, err))
			continue
		}
		found = append(found, o)
	}
	return found, failed
}

// ownIntercepts returns the InterceptRequests that the user created.
func (p *plugin) ownIntercepts(ctx context.Context, conn *connection, all bool) ([]v1alpha1.InterceptRequest, error) {
	var chosen []v1alpha1.InterceptRequest
	items, err := p.intercepts(ctx, conn, all)
	if err != nil {
		return nil, err
	}
	self := authenticationv1.SelfSubjectReview{ObjectMeta: metav1.ObjectMeta{}}
	if err := conn.client.Create(ctx, &self); err != nil {
		return nil, fmt.Errorf("find out who you are: %w\nName the intercepts (see kubectl sonde intercepts)", err)
	}
	for _, o := range items {
		if who := self.Status.UserInfo.Username; who != "" && requester(&o) == who {
			chosen = append(chosen, o)
		}
	}
	return chosen, nil
}
