package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/extcap"
	"github.com/sonde-operator/sonde/internal/cli/follow"
	"github.com/sonde-operator/sonde/internal/version"
)

const (
	// listTimeout is how long Wireshark waits at its start for the workloads of a cluster.
	listTimeout = 3 * time.Second
	// extcapDuration bounds a capture whose Wireshark was killed, and extcapRetention how long its packets are kept.
	extcapDuration  = "1h"
	extcapRetention = "5m"
)

// extcapRun is one call by Wireshark.
type extcapRun struct {
	plugin *plugin

	interfaces, linkTypes, config, capture       bool
	iface, filter, fifo, target, duration, limit string
	snapLength                                   int32
}

func newExtcapRun(p *plugin) *cobra.Command {
	c := &extcapRun{plugin: p}
	cmd := &cobra.Command{
		Use:    "run",
		Short:  "Answer a call by Wireshark",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.interfaces, "extcap-interfaces", false, "List the interfaces")
	f.BoolVar(&c.linkTypes, "extcap-dlts", false, "List the link types of an interface")
	f.BoolVar(&c.config, "extcap-config", false, "List the options of an interface")
	f.BoolVar(&c.capture, "capture", false, "Capture on an interface")
	f.StringVar(&c.iface, "extcap-interface", "", "The interface")
	f.StringVar(&c.filter, "extcap-capture-filter", "", "Filter to check, or to capture with")
	f.StringVar(&c.fifo, "fifo", "", "Where the packets go")
	f.String("extcap-version", "", "Version of Wireshark")
	f.StringVar(&c.target, "target", "", "Workload to capture")
	f.StringVar(&c.duration, "for", extcapDuration, "How long to capture at most")
	f.StringVar(&c.limit, "filter", "", "Filter to capture with")
	f.Int32Var(&c.snapLength, "snap-length", 0, "Number of bytes of each packet to keep")
	// Later versions of Wireshark may have more.
	cmd.FParseErrWhitelist.UnknownFlags = true
	return cmd
}

func (c *extcapRun) run(ctx context.Context) error {
	if c.interfaces {
		return extcap.WriteInterfaces(c.plugin.streams.Out, version.Version, c.list(ctx))
	}
	i, err := extcap.Parse(c.iface)
	if err != nil {
		return err
	}
	switch {
	case c.linkTypes:
		return extcap.WriteLinkTypes(c.plugin.streams.Out)
	case c.config:
		return extcap.WriteOptions(c.plugin.streams.Out, c.options(i))
	case c.capture:
		return c.captureTo(ctx, i)
	case c.filter != "":
		return c.check(ctx, i)
	}
	return errors.New("wireshark calls this command; to add it to Wireshark run kubectl sonde extcap install")
}

// list returns what can be captured in the current namespace. What the user may not list is left out, as is all of a cluster that does not
// answer: the interface whose target is an option is always there.
func (c *extcapRun) list(ctx context.Context) []extcap.Interface {
	all := []extcap.Interface{{}}
	conn, err := c.plugin.connect()
	if err != nil {
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	running, _ := runningCaptures(ctx, conn)
	for _, name := range running {
		all = append(all, extcap.Interface{Kind: extcap.Running, Name: name, Namespace: conn.namespace})
	}
	return append(all, workloads(ctx, conn)...)
}

// options of an interface.
func (c *extcapRun) options(i extcap.Interface) []extcap.Option {
	var options []extcap.Option
	if i.Kind == extcap.Any {
		options = append(options, extcap.Option{
			Call: "--target", Display: "Target", Type: "string", Required: true, Tooltip: "deploy/NAME, sts/NAME, ds/NAME or pod/NAME",
		})
	}
	namespace, contexts, current := "", []string(nil), ""
	loader := c.plugin.flags.ToRawKubeConfigLoader()
	if config, err := loader.RawConfig(); err == nil {
		contexts, current = slices.Sorted(maps.Keys(config.Contexts)), config.CurrentContext
	}
	if n, _, err := loader.Namespace(); err == nil {
		namespace = n
	}
	options = append(options, extcap.Option{Call: "--namespace", Display: "Namespace", Type: "string", Default: namespace})
	if len(contexts) > 0 {
		options = append(options, extcap.Option{
			Call: "--context", Display: "Context", Type: "selector", Default: current, Values: contexts, Tooltip: "Cluster and user of the kubeconfig",
		})
	}
	if i.Kind == extcap.Running {
		return options
	}
	return append(options,
		extcap.Option{
			Call: "--filter", Display: "Filter", Type: "string",
			Tooltip: "Which packets to capture, as in pcap-filter(7), with numbers, like tcp port 8080; besides Wireshark's capture filter",
		},
		extcap.Option{Call: "--for", Display: "Duration", Type: "string", Default: extcapDuration, Tooltip: "How long to capture at most, like 90s or 1h"},
		extcap.Option{
			Call: "--snap-length", Display: "Snap length", Type: "unsigned", Default: "262144", Range: "16,262144",
			Tooltip: "Number of bytes of each packet to keep",
		})
}

// request is the capture of an interface.
func (c *extcapRun) request(i extcap.Interface) (target string, r capture.Request, err error) {
	target = i.Target()
	if i.Kind == extcap.Any {
		if target = c.target; target == "" {
			return "", r, errors.New("choose a Target in the options of the interface, like deploy/web")
		}
	}
	r = capture.Request{Duration: c.duration, RetainFor: extcapRetention, SnapLength: c.snapLength, Filter: both(c.filter, c.limit)}
	r.Target, err = capture.ParseTarget(target)
	return target, r, err
}

// both returns a filter for packets that pass two filters, either of which may be empty.
func both(a, b string) string {
	if a == "" || b == "" {
		return cmp.Or(a, b)
	}
	return "(" + a + ") and (" + b + ")"
}

// check prints what is wrong with a filter, as Wireshark expects it. A webhook compiles the filter of a capture that is not created.
func (c *extcapRun) check(ctx context.Context, i extcap.Interface) error {
	if i.Kind == extcap.Running {
		fmt.Fprintln(c.plugin.streams.Out, errRunningFilter)
		return nil
	}
	_, r, err := c.request(i)
	if err != nil {
		return nil // no target is chosen yet, and without one no filter is compiled
	}
	conn, err := c.plugin.connect()
	if err != nil {
		return err
	}
	r.Namespace = conn.namespace
	pc, err := r.Build()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if text := filterError(conn.client.Create(ctx, pc, client.DryRunAll)); text != "" {
		fmt.Fprintln(c.plugin.streams.Out, text)
	}
	return nil
}

// errRunningFilter refuses a filter for packets that are captured already.
var errRunningFilter = errors.New("the filter of a running capture cannot be changed: clear the capture filter, and use a display filter")

// filterError returns what a webhook says of a filter; empty if err is about something else.
func filterError(err error) string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return ""
	}
	_, text, _ := strings.Cut(status.Status().Message, " denied the request: ")
	if !strings.HasPrefix(text, "filter ") {
		return ""
	}
	return printable(text)
}

// captureTo captures an interface into Wireshark's pipe. Wireshark shows what is printed to standard error as a problem, so the report is
// printed only if there is one.
func (c *extcapRun) captureTo(ctx context.Context, i extcap.Interface) error {
	if c.fifo == "" {
		return errors.New("--capture needs --fifo: the pipe from which Wireshark reads")
	}
	fifo, err := os.OpenFile(c.fifo, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open Wireshark's pipe: %w", err)
	}
	defer fifo.Close()
	var said bytes.Buffer
	quiet := *c.plugin
	quiet.streams.Out, quiet.streams.ErrOut, quiet.terminal, quiet.width = fifo, &said, nil, nil
	stream := streamOptions{delay: follow.DefaultDelay}
	if i.Kind == extcap.Running {
		if c.filter != "" {
			return errRunningFilter
		}
		err = quiet.followPackets(ctx, i.Name, stream)
	} else {
		target, request, requestErr := c.request(i)
		if requestErr != nil {
			return requestErr
		}
		start := &startCommand{
			plugin: &quiet, request: request, packets: &liveFlags{live: true, stream: stream},
			build: func(r capture.Request) (v1alpha1.Capture, error) { return r.Build() },
		}
		err = start.run(ctx, target)
	}
	if err != nil {
		_, _ = said.WriteTo(c.plugin.streams.ErrOut)
	}
	return err
}
