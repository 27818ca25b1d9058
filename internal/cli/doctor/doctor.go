// Package doctor finds out what the kernels of nodes support. It runs a short-lived Pod on each node, with the rights
// of the user.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/settings"
	"github.com/sonde-operator/sonde/internal/wire/nodereport"
)

const (
	managerContainer = "manager"
	flagPrivilege    = "probe-privilege"
	imageVariable    = "RELATED_IMAGE_SONDE"
	// exitUsage is the agent's exit code for an unknown command.
	exitUsage = 64
	// cleanup is how long deleting the Pod may take.
	cleanup = 10 * time.Second
)

// Doctor examines nodes of one cluster.
type Doctor struct {
	Client client.Client
	// Logs returns the log of a Pod.
	Logs func(ctx context.Context, pod string) ([]byte, error)
	// Namespace of the operator.
	Namespace string
	// Timeout for one node, and Poll the time between two reads of its Pod.
	Timeout, Poll time.Duration
}

// Agent returns the options with which the operator runs its agents, read from its Deployment.
func (d *Doctor) Agent(ctx context.Context) (agentjob.Options, error) {
	var manager appsv1.Deployment
	key := client.ObjectKey{Namespace: d.Namespace, Name: agentjob.ManagerDeployment}
	err := d.Client.Get(ctx, key, &manager)
	if apierrors.IsNotFound(err) {
		return agentjob.Options{}, fmt.Errorf("there is no Deployment %s: Sonde is not installed on this cluster, or in another namespace. Install it, choose another cluster with --context, or name the namespace with --operator-namespace", key)
	}
	if err != nil {
		return agentjob.Options{}, d.explain(fmt.Errorf("read the operator's Deployment: %w", err))
	}
	i := slices.IndexFunc(manager.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == managerContainer })
	if i < 0 {
		return agentjob.Options{}, fmt.Errorf("the Deployment %s has no container %s, so it is not the operator: name its namespace with --operator-namespace", key, managerContainer)
	}
	return d.options(&manager.Spec.Template.Spec.Containers[i])
}

// options reads the manager's flags and environment variables that concern agents.
func (d *Doctor) options(c *corev1.Container) (agentjob.Options, error) {
	o := agentjob.Options{Namespace: d.Namespace, Image: c.Image}
	for _, e := range c.Env {
		switch {
		case e.Name == imageVariable && e.Value != "":
			o.Image = e.Value
		case e.Name == settings.Variable(flagPrivilege) && e.Value != "":
			if err := o.Privilege.Set(e.Value); err != nil {
				return o, fmt.Errorf("%s of the manager: %w", e.Name, err)
			}
		}
	}
	for _, a := range c.Args {
		if v, ok := strings.CutPrefix(a, "--image="); ok && !strings.Contains(v, "$(") {
			o.Image = v
		}
		if v, ok := strings.CutPrefix(a, "--"+flagPrivilege+"="); ok {
			if err := o.Privilege.Set(v); err != nil {
				return o, fmt.Errorf("--%s of the manager: %w", flagPrivilege, err)
			}
		}
	}
	return o, nil
}

// Nodes returns the named nodes, or all that run Linux and are ready. skipped says which are not ready.
func (d *Doctor) Nodes(ctx context.Context, named []string) (nodes, skipped []string, err error) {
	if len(named) > 0 {
		for _, name := range named {
			err := d.Client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})
			if apierrors.IsNotFound(err) {
				return nil, nil, fmt.Errorf("there is no node %s: kubectl get nodes lists their names", name)
			}
			if err != nil && !apierrors.IsForbidden(err) { // users who may not read nodes may still name them
				return nil, nil, fmt.Errorf("get node %s: %w", name, err)
			}
		}
		return named, nil, nil
	}
	var list corev1.NodeList
	err = d.Client.List(ctx, &list, client.MatchingLabels{corev1.LabelOSStable: "linux"})
	if apierrors.IsForbidden(err) {
		return nil, nil, fmt.Errorf("list nodes: %s\nName the nodes, or ask a cluster admin for list on nodes", err.Error())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	for i := range list.Items {
		n := &list.Items[i]
		if !ready(n) {
			skipped = append(skipped, n.Name+": it is not ready")
			continue
		}
		nodes = append(nodes, n.Name)
	}
	return nodes, skipped, nil
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Examine runs a Pod on a node and returns its report. It deletes the Pod even if ctx ends first.
func (d *Doctor) Examine(ctx context.Context, o agentjob.Options, node string) (r *nodereport.Report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.Timeout, fmt.Errorf("it did not end within %v", d.Timeout))
	defer cancel()
	pod, err := d.create(ctx, o, node)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.remove(ctx, pod)) }()
	if err := d.await(ctx, pod); err != nil {
		return nil, err
	}
	log, err := d.Logs(ctx, pod.Name)
	if err != nil {
		return nil, d.explain(fmt.Errorf("read the log of Pod %s: %w", pod.Name, err))
	}
	r, err = nodereport.Parse(log)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w: %s", node, err, strings.TrimSpace(string(log[max(0, len(log)-maxQuote):])))
	}
	r.Node = node
	return r, nil
}

// create creates the Pod. An interrupt does not cancel the request, because the Pod could then not be deleted by name.
func (d *Doctor) create(ctx context.Context, o agentjob.Options, node string) (*corev1.Pod, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	pod := agentjob.Doctor(o, node)
	if err := d.Client.Create(ctx, pod); err != nil {
		return nil, d.explain(fmt.Errorf("create a Pod: %w", err))
	}
	return pod, nil
}

// maxQuote is how much of a log without a report is shown, in bytes.
const maxQuote = 512

// remove deletes the Pod, even if ctx has ended.
func (d *Doctor) remove(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	uid := pod.UID
	err := d.Client.Delete(ctx, pod, client.Preconditions{UID: &uid}, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil {
		return d.explain(fmt.Errorf("delete Pod %s: %w; it ends by itself, but delete it with kubectl delete pod -n %s %[1]s", pod.Name, err, pod.Namespace))
	}
	return nil
}

// await returns nil when the Pod has succeeded, or an error once it cannot succeed any more.
func (d *Doctor) await(ctx context.Context, pod *corev1.Pod) error {
	ticker := time.NewTicker(d.Poll)
	defer ticker.Stop()
	for {
		err := d.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		switch {
		case ctx.Err() != nil:
		case apierrors.IsNotFound(err):
			return fmt.Errorf("the Pod %s was deleted before it ended: run the command again", pod.Name)
		case err != nil:
			return d.explain(fmt.Errorf("get Pod %s: %w", pod.Name, err))
		case pod.Status.Phase == corev1.PodSucceeded:
			return nil
		case pod.Status.Phase == corev1.PodFailed:
			return fmt.Errorf("the Pod %s failed: %s", pod.Name, state(pod))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the Pod %s: %w: %s", pod.Name, context.Cause(ctx), state(pod))
		case <-ticker.C:
		}
	}
}

// state describes why a Pod has not succeeded, in the words of the kubelet or the scheduler.
func state(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return strings.Trim(w.Reason+": "+w.Message, ": ")
		}
		if t := c.State.Terminated; t != nil && t.ExitCode == exitUsage {
			return "its agent does not have the command doctor: the operator is older than this plugin, upgrade it"
		} else if t != nil && t.ExitCode != 0 {
			return fmt.Sprintf("exit code %d (%s) %s", t.ExitCode, t.Reason, t.Message)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return strings.Trim(c.Reason+": "+c.Message, ": ")
		}
	}
	return strings.Trim(string(pod.Status.Phase)+": "+pod.Status.Reason+" "+pod.Status.Message, ": ")
}

// explain adds the rights that are needed to a Forbidden error. It does not wrap the error, because the plugin prints
// only the message of a wrapped API status.
func (d *Doctor) explain(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%s\nThe doctor runs a privileged Pod on each node with your own rights: in namespace %s you need get on deployments, create, get and "+
		"delete on pods, and get on pods/log. These rights make a user root on the nodes, so ask a cluster admin to run it (docs/security.md)", err.Error(), d.Namespace)
}
