package capture

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// admission is the decision whether the capture may run at this moment.
type admission struct {
	requester access.Requester
	// reason and message of a refusal; reason is empty when admitted.
	reason, message string
	// reviews answers this pass's reviews. nodes is its answer about nodes, or nil before reviewNodes.
	reviews access.Reviews
	nodes   *access.Decision
}

func (a admission) refused() bool { return a.reason != "" }

// admit repeats the checks of the webhook and reviews the requester's right. After an error nothing changes: the answer is
// unknown.
func (r *Reconciler) admit(ctx context.Context, capture sondev1.Capture, reviews access.Reviews) (admission, error) {
	// Verify first, so that the audit record of the end names the requester for every end reason.
	claim, stampErr := r.Stamps.Verify(capture)
	a := admission{reviews: reviews}
	if stampErr == nil {
		a.requester = claim.Requester
	}
	if err := r.checkOpen(ctx, &a); err != nil || a.refused() {
		return a, err
	}
	switch {
	case errors.Is(stampErr, stamp.ErrMissing), errors.Is(stampErr, stamp.ErrInvalid):
		a.reason, a.message = sondev1.ReasonNotAdmitted, stampErr.Error()
		return a, nil
	case stampErr != nil:
		return a, fmt.Errorf("verify stamp: %w", stampErr)
	}
	if err := r.checkTargetNamespace(ctx, capture, claim, &a); err != nil || a.refused() {
		return a, err
	}
	if err := r.checkHub(ctx, capture, &a); err != nil || a.refused() {
		return a, err
	}
	decision, err := reviews.ReviewPods(ctx, r.Kind.Verb, claim.Requester, capture.Common().TargetNamespace)
	if err != nil {
		return a, err
	}
	if !decision.Allowed {
		a.reason, a.message = sondev1.ReasonAccessRevoked, decision.Reason
	}
	return a, nil
}

// checkOpen refuses all captures while the operator is paused or shares its namespace. It runs before the checks of the capture.
func (r *Reconciler) checkOpen(ctx context.Context, a *admission) error {
	paused, err := pause.Requested(ctx, r.PauseConfig, r.Options.Namespace)
	if err != nil {
		return err
	}
	if paused {
		a.reason, a.message = sondev1.ReasonPaused, pause.Message(r.Options.Namespace, r.Kind.Name)
		return nil
	}
	other, err := r.otherTenant(ctx)
	if err != nil || other == "" {
		return err
	}
	// Only the log names the workload: users may have no right to know it.
	ctrl.LoggerFrom(ctx).Info("Refusing to capture beside another workload in the operator's namespace", "workload", other, "namespace", r.Options.Namespace)
	a.reason, a.message = sondev1.ReasonNamespaceShared, fmt.Sprintf(
		"another workload shares the operator's namespace %q, and its users could run Pods as root: a cluster admin must move it (the manager's log names it), or give Sonde a namespace of its own; then create a new %s",
		r.Options.Namespace, r.Kind.Name)
	return nil
}

// otherTenant names a workload in the operator's namespace besides the manager and Stowaway, whose Deployments have fixed names. OLM may
// install several operators into one namespace, but this one must not be shared.
func (r *Reconciler) otherTenant(ctx context.Context) (string, error) {
	for _, kind := range []sondev1.TargetKind{sondev1.TargetDeployment, sondev1.TargetStatefulSet, sondev1.TargetDaemonSet} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(string(kind) + "List"))
		if err := r.List(ctx, list, client.InNamespace(r.Options.Namespace)); err != nil {
			return "", fmt.Errorf("list %ss of the operator's namespace: %w", kind, err)
		}
		for i := range list.Items {
			own := kind == sondev1.TargetDeployment && (list.Items[i].Name == agentjob.ManagerDeployment || list.Items[i].Name == tunnel.Name)
			if !own {
				return string(kind) + " " + list.Items[i].Name, nil
			}
		}
	}
	return "", nil
}

// reviewNodes reviews, once per pass, the right on nodes that Pods with a node's namespaces need.
func (a *admission) reviewNodes(ctx context.Context, verb string) error {
	if a.nodes != nil || a.refused() {
		return nil
	}
	nodes, err := a.reviews.ReviewNodes(ctx, verb, a.requester)
	if err != nil {
		return err
	}
	a.nodes = &nodes
	return nil
}

// nodesDenied says why Pods with a node's namespaces may not be captured; empty if they may, or before reviewNodes.
func (a admission) nodesDenied() string {
	if a.nodes == nil || a.nodes.Allowed {
		return ""
	}
	return a.nodes.Reason
}

func (r *Reconciler) checkTargetNamespace(ctx context.Context, capture sondev1.Capture, claim stamp.Claim, a *admission) error {
	name := capture.Common().TargetNamespace
	ns, err := r.namespace(ctx, name)
	switch {
	case gone.Is(err):
		a.reason = sondev1.ReasonNamespaceReplaced
		a.message = fmt.Sprintf("namespace %q was deleted: create a new %s for another target", name, r.Kind.Name)
	case err != nil:
		return fmt.Errorf("get target namespace: %w", err)
	case string(ns.UID) != claim.TargetNamespaceUID:
		a.reason = sondev1.ReasonNamespaceReplaced
		a.message = fmt.Sprintf("namespace %q was deleted and created again after the capture was requested: create a new %s", name, r.Kind.Name)
	case ns.Labels[sondev1.LabelOptOut] == "true":
		a.reason = sondev1.ReasonOptedOut
		a.message = fmt.Sprintf("a cluster admin has closed namespace %q to captures by the label %s=true: ask them to remove it, and create a new %s", name, sondev1.LabelOptOut, r.Kind.Name)
	}
	return nil
}

func (r *Reconciler) checkHub(ctx context.Context, capture sondev1.Capture, a *admission) error {
	if capture.Common().TargetNamespace == capture.GetNamespace() {
		return nil
	}
	ns, err := r.namespace(ctx, capture.GetNamespace())
	if err != nil {
		return fmt.Errorf("get own namespace: %w", err)
	}
	if ns.Labels[sondev1.LabelHub] != "true" {
		a.reason = sondev1.ReasonHubNotAllowed
		a.message = fmt.Sprintf("targets in other namespaces are allowed only from a namespace that a cluster admin has labelled %s=true: create the %s in namespace %q itself, or in a hub",
			sondev1.LabelHub, r.Kind.Name, capture.Common().TargetNamespace)
	}
	return nil
}

// namespace reads live: after a namespace was created again, the cache may still hold the old UID.
func (r *Reconciler) namespace(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	ns := coreMetadata("Namespace")
	return ns, r.Live.Get(ctx, client.ObjectKey{Name: name}, ns)
}
