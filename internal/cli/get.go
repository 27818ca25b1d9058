package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/table"
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
		Short: "List captures and traces",
		Long: `Lists the PacketCaptures and Traces of a namespace, or one of them. With -o wide there are more columns. For a single one
there is also a line for each of its Pods, with its engine and the number of packets or events missing from its files.

` + nameHelp,
		Example: `  kubectl sonde get -A
  kubectl sonde get web-x7k2p -n shop -o yaml
  kubectl sonde get trace/web-x7k2p -n shop -o wide`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError(cmd, "at most one NAME")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	c.print.AddFlags(cmd)
	cmd.Flags().Lookup("output").Usage = "Output format: wide, json, yaml, name, jsonpath=..., go-template=..."
	cmd.Flags().BoolVarP(&c.all, "all-namespaces", "A", false, "List the captures and traces of all namespaces")
	return cmd
}

func (c *getCommand) run(ctx context.Context, args []string) error {
	refs, err := parseReferences(args)
	if err != nil {
		return err
	}
	conn, err := c.plugin.connect()
	if err != nil {
		return err
	}
	if len(refs) == 1 {
		return c.one(ctx, conn, refs[0])
	}
	lists, err := c.lists(ctx, conn)
	if err != nil {
		return err
	}
	if c.formatted() {
		return c.printLists(lists)
	}
	return c.tables(lists, conn.namespace)
}

// listed is a list and its kind.
type listed struct {
	kind kind.Capture
	list v1alpha1.CaptureList
}

// lists returns a list of each kind that the user may list.
func (c *getCommand) lists(ctx context.Context, conn *connection) ([]listed, error) {
	var where []client.ListOption
	if !c.all {
		where = append(where, client.InNamespace(conn.namespace))
	}
	var lists []listed
	for i, k := range kind.Captures {
		list := k.NewList()
		err := conn.client.List(ctx, list, where...)
		switch {
		case err == nil:
			lists = append(lists, listed{k, list})
		case i == 0 || !kindUnavailable(err):
			return nil, fmt.Errorf("list %ss: %w", k.Name, err)
		case !apierrors.IsNotFound(err):
			fmt.Fprintf(c.plugin.streams.ErrOut, "%ss are not listed: %s\n", k.Name, clause(err))
		}
	}
	return lists, nil
}

func (c *getCommand) one(ctx context.Context, conn *connection, ref reference) error {
	found, err := ref.get(ctx, conn)
	if err != nil {
		return err
	}
	setKind(found)
	if c.formatted() {
		return c.object(found)
	}
	pods := found.CaptureStatus().Pods
	if err := c.table([]v1alpha1.Capture{found}); err != nil || !c.wide() || len(pods) == 0 {
		return err
	}
	r := report.New(found, pods, capture.Saved{})
	text := "\n" + r.WideTable()
	if n := found.CaptureStatus().PodsOmitted; n > 0 {
		text += fmt.Sprintf("\nPods that are not listed here, and that TOTAL and the notes leave out: %d.\n", n)
	}
	if notes := r.NoteText(); notes != "" {
		text += "\n" + notes
	}
	return c.write(text)
}

func (c *getCommand) wide() bool { return *c.print.OutputFormat == "wide" }

// formatted reports whether the user chose one of kubectl's printers instead of a table.
func (c *getCommand) formatted() bool { return *c.print.OutputFormat != "" && !c.wide() }

func (c *getCommand) object(o runtime.Object) error { return c.plugin.printObject(c.print, o) }

// printObject prints an object with one of kubectl's printers.
func (p *plugin) printObject(flags *genericclioptions.PrintFlags, o runtime.Object) error {
	printer, err := flags.ToPrinter()
	if err != nil {
		return fmt.Errorf("-o %s: %w", *flags.OutputFormat, err)
	}
	if err := printer.PrintObj(o, p.streams.Out); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// printLists prints all items as one list. With -o name it prints them one by one, because that printer accepts no
// lists.
func (c *getCommand) printLists(lists []listed) error {
	var items []v1alpha1.Capture
	for _, l := range lists {
		items = append(items, l.list.Captures()...)
	}
	for _, item := range items { // items of lists do not have their kind set
		setKind(item)
	}
	if *c.print.OutputFormat != "name" {
		list, err := mergedList(lists[0].list, items)
		if err != nil {
			return err
		}
		return c.object(list)
	}
	for _, item := range items {
		if err := c.object(item); err != nil {
			return err
		}
	}
	return nil
}

// tables prints a table for each kind that has items.
func (c *getCommand) tables(lists []listed, namespace string) error {
	var names []string
	empty := true
	for _, l := range lists {
		names = append(names, l.kind.Name+"s")
		items := l.list.Captures()
		if len(items) == 0 {
			continue
		}
		if !empty {
			if err := c.write("\n"); err != nil {
				return err
			}
		}
		empty = false
		if err := c.table(items); err != nil {
			return err
		}
	}
	if empty {
		where := " in namespace " + namespace
		if c.all {
			where = ""
		}
		fmt.Fprintf(c.plugin.streams.ErrOut, "No %s found%s.\n", strings.Join(names, " or "), where)
	}
	return nil
}

// column is a column for a number of the totals.
type column struct {
	head  string
	wide  bool
	value func(v1alpha1.Totals) int64
}

var columns = map[live.Unit][]column{
	live.Packets: {
		{"PACKETS", false, func(t v1alpha1.Totals) int64 { return t.Packets }},
		{"DROPPED", false, func(t v1alpha1.Totals) int64 { return t.Dropped }},
		{"BYTES", true, func(t v1alpha1.Totals) int64 { return t.Bytes }},
		{"TRUNCATED", true, func(t v1alpha1.Totals) int64 { return t.Truncated }},
		{"OVERWRITTEN", true, func(t v1alpha1.Totals) int64 { return t.Overwritten }},
	},
	live.Events: {
		{"EVENTS", false, func(t v1alpha1.Totals) int64 { return t.Events }},
		{"LOST", false, func(t v1alpha1.Totals) int64 { return t.Lost }},
		{"BYTES", true, func(t v1alpha1.Totals) int64 { return t.Bytes }},
	},
}

// table prints captures of one kind.
func (c *getCommand) table(items []v1alpha1.Capture) error {
	counted := columns[capture.UnitOf(items[0])]
	text := []string{"NAME", "PHASE", "TARGET", "JOBID"}
	rows := [][]string{c.row("NAMESPACE", append(text, "PODS"), counted, func(col column) string { return col.head }, "AGE", "REASON")}
	now := c.plugin.clock.Now()
	for _, item := range items {
		rows = append(rows, c.rowOf(item, counted, now))
	}
	textColumns := len(text)
	if c.all {
		textColumns++
	}
	return c.write(table.Text(strings.Repeat("l", textColumns), rows))
}

func (c *getCommand) rowOf(item v1alpha1.Capture, counted []column, now time.Time) []string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	st := item.CaptureStatus()
	reason := ""
	if cond := apimeta.FindStatusCondition(st.Conditions, v1alpha1.ConditionComplete); cond != nil {
		reason = cond.Reason
	}
	return c.row(item.GetNamespace(), []string{item.GetName(), string(st.Phase), st.Target, st.JobID, n(int64(st.Totals.Pods))},
		counted, func(col column) string { return n(col.value(st.Totals)) },
		duration.HumanDuration(now.Sub(item.GetCreationTimestamp().Time)), reason)
}

// row returns the cells of the columns that the flags select.
func (c *getCommand) row(namespace string, first []string, counted []column, cell func(column) string, age, reason string) []string {
	var narrow, wide []string
	for _, col := range counted {
		if col.wide {
			wide = append(wide, cell(col))
		} else {
			narrow = append(narrow, cell(col))
		}
	}
	row := slices.Concat(first, narrow, []string{age})
	if c.wide() {
		row = slices.Concat(row, wide, []string{reason})
	}
	if c.all {
		row = slices.Insert(row, 0, namespace)
	}
	return row
}

func (c *getCommand) write(s string) error {
	if _, err := io.WriteString(c.plugin.streams.Out, s); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func setKind(c v1alpha1.Capture) {
	c.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(c.KindName()))
}
