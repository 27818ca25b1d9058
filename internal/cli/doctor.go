package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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
	// doctorPoll is the time between two looks at a Pod.
	doctorPoll = 500 * time.Millisecond
	// doctorsAtOnce are the nodes that are examined at the same time.
	doctorsAtOnce = 8
	// maxDoctorLog bounds what is read of a Pod's log, in bytes.
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
		Short: "Find out what the nodes' kernels allow, and what follows for captures and traces",
		Long: `Runs a Pod on each NODE, or on all, that tries what the kernel allows of what Sonde does there: packet sockets, types of the
kernel (BTF), BPF programs of each sort, the tracer itself. It says which parts of Sonde work there, and why others do not.
The Pod has the rights of a probe, runs in the operator's namespace, and is deleted at once, also when you interrupt.

It works by your own rights: you need get on deployments, create, get and delete on pods, and get on pods/log in the
operator's namespace, and list on nodes unless you name them. Cluster admins have them.

Exit code: 0 all nodes were examined, whatever was found; 1 error.`,
		Example: `  kubectl sonde doctor
  kubectl sonde doctor worker-1 worker-2
  kubectl sonde doctor -o json | jq -r '.[] | select(.conclusions[] | .part == "traces" and (.works | not)) | .node'`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.all, "all", false, "All nodes that run Linux (default if no NODE is named)")
	f.StringVarP(&c.output, "output", "o", outputText, "json: one list of all nodes' reports")
	f.DurationVar(&c.timeout, "timeout", time.Minute, "How long to wait for one node")
	return cmd
}

func (c *doctorCommand) run(ctx context.Context, named []string) error {
	switch {
	case c.output != outputText && c.output != outputJSON:
		return fmt.Errorf("--output %s: write json, or leave it out", c.output)
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
	nodes, left, err := d.Nodes(ctx, named)
	if err != nil {
		return err
	}
	reports := make([]*nodereport.Report, len(nodes))
	var g errgroup.Group
	var mu sync.Mutex
	g.SetLimit(doctorsAtOnce)
	for i, node := range nodes {
		g.Go(func() error {
			r, err := d.Examine(ctx, agent, node)
			if r != nil {
				reports[i] = r
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				left = append(left, node+": "+err.Error())
			}
			return nil
		})
	}
	_ = g.Wait() // what failed is in left
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return c.print(slices.DeleteFunc(reports, func(r *nodereport.Report) bool { return r == nil }), left)
}

// print the reports; left are nodes of which there is none, or more to say.
func (c *doctorCommand) print(reports []*nodereport.Report, left []string) error {
	p := c.plugin
	if c.output == outputJSON {
		if err := writeJSON(p.streams.Out, reports); err != nil {
			return err
		}
	} else {
		for i, r := range reports {
			if i > 0 {
				fmt.Fprintln(p.streams.Out)
			}
			if _, err := io.WriteString(p.streams.Out, r.Text()); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
	}
	slices.Sort(left)
	for _, text := range left {
		fmt.Fprintln(p.streams.ErrOut, table.Printable(text))
	}
	if len(left) > 0 || len(reports) == 0 {
		return exitCode(report.ExitError)
	}
	return nil
}

func newNodeDoctor(config *rest.Config, namespace string, timeout time.Duration) (*doctor.Doctor, error) {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(appsv1.AddToScheme(s))
	// As in connect: these few kinds are known.
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
		Client: objects, Namespace: namespace, Timeout: timeout, Poll: doctorPoll,
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
