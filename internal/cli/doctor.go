package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/cli/doctor"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/wire/nodereport"
	"github.com/sonde-operator/sonde/internal/wire/table"
)

const (
	// pollInterval is the time between two reads of a Pod.
	pollInterval = 500 * time.Millisecond
	// maxConcurrentNodes is how many nodes are examined at the same time.
	maxConcurrentNodes = 8
	// maxDoctorLog limits how much of a Pod's log is read, in bytes.
	maxDoctorLog = 1 << 20
)

type doctorCommand struct {
	plugin  *plugin
	all     bool
	output  string
	timeout time.Duration
}

func newDoctor(p *plugin) *cobra.Command {
	c := &doctorCommand{plugin: p}
	cmd := &cobra.Command{
		Use:   "doctor [NODE...]",
		Short: "Find out which parts of Sonde work on the nodes",
		Long: `Runs a Pod on each NODE, or on all nodes, to find out which features of its kernel Sonde can use: packet sockets, kernel
types (BTF), kinds of BPF programs, and the tracer itself. It shows which parts of Sonde work there, and why others do not.
The Pod has the privileges of a probe, runs in the operator's namespace, and is deleted at once, even if you interrupt.

The command uses your own rights. You need get on deployments, create, get and delete on pods, and get on pods/log in the
operator's namespace, and list on nodes unless you name them. Cluster admins have these rights.

Exit code: 0 all nodes were examined, whatever the result; 1 error.`,
		Example: `  kubectl sonde doctor
  kubectl sonde doctor worker-1 worker-2
  kubectl sonde doctor -o json | jq -r '.[] | select(.conclusions[] | .part == "traces" and (.works | not)) | .node'`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.all, "all", false, "All nodes that run Linux (default if no NODE is named)")
	f.StringVarP(&c.output, "output", "o", outputText, "json: print the reports of all nodes as one list")
	f.DurationVar(&c.timeout, "timeout", time.Minute, "How long to wait for one node")
	return cmd
}

func (c *doctorCommand) run(ctx context.Context, named []string) error {
	switch {
	case c.output != outputText && c.output != outputJSON:
		return fmt.Errorf("--output %s: write json, or omit the flag", c.output)
	case c.all && len(named) > 0:
		return errors.New("--all and names of nodes exclude each other: omit one of the two")
	case c.timeout <= 0:
		return errors.New("--timeout: write a time above zero, like 30s or 2m")
	}
	config, err := c.plugin.flags.ToRESTConfig()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	d, err := newNodeDoctor(config, c.plugin.operatorNamespace, c.timeout)
	if err != nil {
		return err
	}
	agent, err := d.Agent(ctx)
	if err != nil {
		return err
	}
	nodes, problems, err := d.Nodes(ctx, named)
	if err != nil {
		return err
	}
	reports := make([]*nodereport.Report, len(nodes))
	var g errgroup.Group
	var mu sync.Mutex
	g.SetLimit(maxConcurrentNodes)
	for i, node := range nodes {
		g.Go(func() error {
			r, err := d.Examine(ctx, agent, node)
			if r != nil {
				reports[i] = r
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				problems = append(problems, node+": "+err.Error())
			}
			return nil
		})
	}
	_ = g.Wait() // errors are in problems
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return c.print(slices.DeleteFunc(reports, func(r *nodereport.Report) bool { return r == nil }), problems)
}

// print prints the reports, and the problems of nodes.
func (c *doctorCommand) print(reports []*nodereport.Report, problems []string) error {
	p := c.plugin
	if c.output == outputJSON {
		if err := p.writeJSON(reports); err != nil {
			return err
		}
	} else {
		if _, err := io.WriteString(p.streams.Out, nodereport.Texts(reports)); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	for _, text := range grouped(problems) {
		fmt.Fprintln(p.streams.ErrOut, table.Printable(text))
	}
	if len(problems) > 0 || len(reports) == 0 {
		return exitCode(report.ExitError)
	}
	return nil
}

// grouped returns the problems, each once, after the names of its nodes.
func grouped(problems []string) []string {
	slices.Sort(problems)
	nodes := map[string][]string{}
	var order []string
	for _, p := range problems {
		node, text, _ := strings.Cut(p, ": ")
		if nodes[text] == nil {
			order = append(order, text)
		}
		nodes[text] = append(nodes[text], node)
	}
	for i, text := range order {
		order[i] = strings.Join(nodes[text], ", ") + ": " + text
	}
	return order
}

func newNodeDoctor(config *rest.Config, namespace string, timeout time.Duration) (*doctor.Doctor, error) {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(appsv1.AddToScheme(s))
	// As in connect, a mapper for these kinds saves a discovery request.
	m := apimeta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), apimeta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), apimeta.RESTScopeRoot)
	m.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), apimeta.RESTScopeNamespace)
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.ContentType = 50, 100, runtime.ContentTypeJSON
	objects, err := client.New(config, client.Options{Scheme: s, Mapper: m})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	raw := rest.CopyConfig(config)
	raw.GroupVersion, raw.APIPath = &corev1.SchemeGroupVersion, "/api"
	raw.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	logs, err := rest.RESTClientFor(raw)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &doctor.Doctor{
		Client: objects, Namespace: namespace, Timeout: timeout, Poll: pollInterval,
		Logs: func(ctx context.Context, pod string) ([]byte, error) {
			r, err := logs.Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("log").Stream(ctx)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return io.ReadAll(io.LimitReader(r, maxDoctorLog))
		},
	}, nil
}
