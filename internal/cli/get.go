package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/report"
)

type getCommand struct {
	plugin *plugin
	print  *genericclioptions.PrintFlags
	all    bool
}

func newGet(p *plugin) *cobra.Command {
	c := &getCommand{plugin: p, print: genericclioptions.NewPrintFlags("").WithTypeSetter(scheme())}
	cmd := &cobra.Command{
		Use:   "get [NAME]",
		Short: "List captures",
		Long: `Lists the PacketCaptures of a namespace, or one. With -o wide there are more columns and, for one,
a line for each of its Pods.`,
		Example: `  kubectl sonde get -A
  kubectl sonde get web-x7k2p -n shop -o yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError(cmd, "one NAME, or none for all")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	c.print.AddFlags(cmd)
	cmd.Flags().Lookup("output").Usage = "Output format: wide, json, yaml, name, jsonpath=..., go-template=..."
	cmd.Flags().BoolVarP(&c.all, "all-namespaces", "A", false, "List the captures of all namespaces")
	return cmd
}

func (c *getCommand) run(ctx context.Context, args []string) error {
	conn, err := c.plugin.connect()
	if err != nil {
		return err
	}
	if len(args) == 1 {
		return c.one(ctx, conn, args[0])
	}
	list := &v1alpha1.PacketCaptureList{}
	var where []client.ListOption
	if !c.all {
		where = append(where, client.InNamespace(conn.namespace))
	}
	if err := conn.client.List(ctx, list, where...); err != nil {
		return fmt.Errorf("list PacketCaptures: %w", err)
	}
	if c.formatted() {
		return c.list(list)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(c.plugin.streams.ErrOut, c.nothing(conn.namespace))
		return nil
	}
	return c.table(list.Items)
}

func (c *getCommand) one(ctx context.Context, conn *connection, name string) error {
	pc := &v1alpha1.PacketCapture{}
	if err := conn.client.Get(ctx, client.ObjectKey{Namespace: conn.namespace, Name: name}, pc); err != nil {
		return fmt.Errorf("get PacketCapture: %w", err)
	}
	setKind(pc)
	if c.formatted() {
		return c.object(pc)
	}
	if err := c.table([]v1alpha1.PacketCapture{*pc}); err != nil || !c.wide() || len(pc.Status.Pods) == 0 {
		return err
	}
	r := report.New(pc, pc.Status.Pods, capture.Saved{})
	return c.write("\n" + r.Table())
}

func (c *getCommand) wide() bool { return *c.print.OutputFormat == "wide" }

// formatted reports whether kubectl's printers are asked for, and not one of the tables.
func (c *getCommand) formatted() bool { return *c.print.OutputFormat != "" && !c.wide() }

func (c *getCommand) object(o runtime.Object) error {
	printer, err := c.print.ToPrinter()
	if err != nil {
		return fmt.Errorf("-o %s: %w", *c.print.OutputFormat, err)
	}
	if err := printer.PrintObj(o, c.plugin.streams.Out); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// list prints a whole list, except by name: that printer knows only single objects.
func (c *getCommand) list(list *v1alpha1.PacketCaptureList) error {
	for i := range list.Items { // lists come without their items' kinds
		setKind(&list.Items[i])
	}
	if *c.print.OutputFormat != "name" {
		return c.object(list)
	}
	for i := range list.Items {
		if err := c.object(&list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *getCommand) nothing(namespace string) string {
	if c.all {
		return "No PacketCaptures found."
	}
	return fmt.Sprintf("No PacketCaptures found in namespace %s.", namespace)
}

func (c *getCommand) table(items []v1alpha1.PacketCapture) error {
	left := 4
	head := []string{"NAME", "PHASE", "TARGET", "JOBID", "PODS", "PACKETS", "DROPPED", "AGE"}
	if c.wide() {
		head = append(head, "BYTES", "TRUNCATED", "OVERWRITTEN", "REASON")
	}
	if c.all {
		head = append([]string{"NAMESPACE"}, head...)
		left++
	}
	rows := [][]string{head}
	now := c.plugin.clock.Now()
	for i := range items {
		rows = append(rows, c.row(&items[i], now))
	}
	return c.write(report.Align(rows, left))
}

func (c *getCommand) row(pc *v1alpha1.PacketCapture, now time.Time) []string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	st := pc.Status
	row := []string{
		pc.Name, string(st.Phase), st.Target, st.JobID, n(int64(st.Totals.Pods)), n(st.Totals.Packets), n(st.Totals.Dropped),
		duration.HumanDuration(now.Sub(pc.CreationTimestamp.Time)),
	}
	if c.wide() {
		reason := ""
		if cond := apimeta.FindStatusCondition(st.Conditions, v1alpha1.ConditionComplete); cond != nil {
			reason = cond.Reason
		}
		row = append(row, n(st.Totals.Bytes), n(st.Totals.Truncated), n(st.Totals.Overwritten), reason)
	}
	if c.all {
		row = append([]string{pc.Namespace}, row...)
	}
	return row
}

func (c *getCommand) write(s string) error {
	if _, err := io.WriteString(c.plugin.streams.Out, s); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func setKind(pc *v1alpha1.PacketCapture) {
	pc.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PacketCapture"))
}
