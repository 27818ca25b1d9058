package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// maxSimulated nodes: a machine of two cores schedules 100 Deployments of 500 Pods within minutes.
const maxSimulated = 100

// simulatedNetwork holds the addresses of Pods on simulated nodes; nothing is routed there.
const simulatedNetwork = "10.200.0.0/16"

// kwokConfig says what kwok makes of nodes and Pods.
//
//go:embed kwok/stages.yaml
var kwokConfig []byte

// kwokBinary simulates nodes. It belongs to no flavour, so that only users of such nodes build it.
var kwokBinary = binary{name: "kwok", module: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok", ldflags: plainFlags}

func kwokCommand(o *options) *cobra.Command {
	var nodes int
	cmd := &cobra.Command{
		Use:   "kwok",
		Short: "Add simulated nodes to the running cluster",
		Long: `Adds nodes kwok-1, kwok-2 and so on, on which any number of Pods seem to run: their containers are Running and Ready
as soon as they are scheduled, and nothing is executed. Pods come there only by tolerating the taint
kwok.x-k8s.io/node and selecting the label type=kwok. They stay until the cluster goes down.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runKwok(cmd.Context(), o.layout(), newProgress(cmd.ErrOrStderr()), nodes)
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 25, fmt.Sprintf("number of simulated nodes, 1 to %d", maxSimulated))
	return cmd
}

// runKwok starts kwok, unless it runs, and creates its nodes.
func runKwok(ctx context.Context, l layout, p *progress, nodes int) error {
	if nodes < 1 || nodes > maxSimulated {
		return fmt.Errorf("--nodes %d: 1 to %d nodes can be simulated", nodes, maxSimulated)
	}
	lock, err := takeLock(l.runLock(), p)
	if err != nil {
		return err
	}
	defer lock.Close()
	s, err := completeState(l)
	if err != nil {
		return err
	}
	u := up{spawner: spawner{layout: l, lock: lock}, progress: p, state: s}
	if !u.Simulates {
		if err := u.startKwok(ctx); err != nil {
			return err
		}
		// Recorded before the nodes are awaited: a second kwok beside this one would be worse than a failed one.
		u.Simulates = true
		if err := u.write(l); err != nil {
			return err
		}
	}
	var names []string
	for i := range nodes {
		names = append(names, simulatedNode(i+1))
	}
	if err := apply(ctx, l, s, "kwok-nodes.yaml", map[string]any{"Names": names}); err != nil {
		return err
	}
	client, err := adminAPI(l)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := "/api/v1/nodes/" + name
		if err := u.await(ctx, nodePatience, "node "+name, func(ctx context.Context) error { return nodeReady(ctx, client, path, time.Time{}) }); err != nil {
			return fmt.Errorf("%w; see %s; if kwok itself has ended, `cluster down` and `cluster up` start afresh", err, l.log("kwok"))
		}
	}
	p.step("%d simulated nodes are ready", nodes)
	return nil
}

// startKwok builds and starts kwok, which stops with the cluster.
func (u *up) startKwok(ctx context.Context) error {
	built, err := recipes(ctx, []binary{kwokBinary})
	if err != nil {
		return err
	}
	program := built[0].stored(u.layout)
	if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
		if err := built[0].build(ctx, u.layout, u.progress); err != nil {
			return err
		}
	}
	config := filepath.Join(u.etc(), "kwok.yaml")
	if err := os.WriteFile(config, kwokConfig, 0o600); err != nil {
		return fmt.Errorf("write the configuration of kwok: %w", err)
	}
	d, err := u.spawn("kwok", place{cgroup: controlPlanePart, netns: u.netns(controlPlanePart)}, program,
		"--config", config, "--kubeconfig", u.insideKubeconfig(), "--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
		"--node-ip", controlPlaneIP, "--cidr", simulatedNetwork, "--node-lease-duration-seconds=40",
	)
	if err != nil {
		return err
	}
	u.daemons = append(u.daemons, d)
	return nil
}

func simulatedNode(i int) string { return fmt.Sprintf("kwok-%d", i) }
