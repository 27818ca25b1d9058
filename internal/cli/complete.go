package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/extcap"
)

// completionTimeout is how long a shell waits for names. A cluster that does not answer must not hang it.
const completionTimeout = 2 * time.Second

// completeRunning completes the names of running PacketCaptures.
func (p *plugin) completeRunning(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.complete(cmd, args, runningCaptures)
}

// completeTarget completes the workloads of the namespace, like deploy/web.
func (p *plugin) completeTarget(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.complete(cmd, args, func(ctx context.Context, conn *connection) ([]string, error) {
		var targets []string
		for _, w := range workloads(ctx, conn) {
			targets = append(targets, w.Target())
		}
		return targets, nil
	})
}

// complete completes the only argument of a command with names of a cluster.
func (p *plugin) complete(cmd *cobra.Command, args []string, list func(context.Context, *connection) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	conn, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	names, err := list(ctx, conn)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// runningCaptures returns the names of the PacketCaptures whose packets can be followed.
func runningCaptures(ctx context.Context, conn *connection) ([]string, error) {
	list := &v1alpha1.PacketCaptureList{}
	if err := conn.client.List(ctx, list, client.InNamespace(conn.namespace)); err != nil {
		return nil, fmt.Errorf("list PacketCaptures: %w", err)
	}
	var names []string
	for i := range list.Items {
		if pc := &list.Items[i]; !pc.Status.Phase.Final() {
			names = append(names, pc.Name)
		}
	}
	return names, nil
}

// workloads returns what can be captured in the namespace, except Pods. Kinds that the user may not list are left out.
func workloads(ctx context.Context, conn *connection) []extcap.Interface {
	var all []extcap.Interface
	for _, k := range []struct {
		extcap.Kind
		list string
	}{{extcap.Deployment, "DeploymentList"}, {extcap.StatefulSet, "StatefulSetList"}, {extcap.DaemonSet, "DaemonSetList"}} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: k.list})
		if conn.client.List(ctx, list, client.InNamespace(conn.namespace)) != nil {
			continue
		}
		for i := range list.Items {
			all = append(all, extcap.Interface{Kind: k.Kind, Name: list.Items[i].Name, Namespace: conn.namespace})
		}
	}
	return all
}
