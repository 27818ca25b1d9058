package controllers

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/access"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/brake"
	"github.com/sonde-operator/sonde/internal/stamp"
	"github.com/sonde-operator/sonde/internal/target"
)

// admission is whether the requester may, at this moment, have what he asked for.
type admission struct {
	requester access.Requester
	// reason and message of a refusal; reason is empty when admitted.
	reason, message string
	// reviews that the admission rests on, and what they say about nodes; nil while nobody asked.
	reviews access.Reviews
	nodes   *access.Decision
}

func (a admission) refused() bool { return a.reason != "" }

// admit checks what the webhook checked, and asks reviews about the requester's right. An error means
// that nobody knows, and then nothing changes.
func (r *PacketCaptureReconciler) admit(ctx context.Context, pc *sondev1.PacketCapture, reviews access.Reviews) (admission, error) {
	// The brake comes first: it works on what nobody may have, too.
	paused, err := brake.Paused(ctx, r.Switch, r.Options.Namespace)
	if err != nil {
		return admission{}, err
	}
	if paused {
		return admission{reason: sondev1.ReasonPaused, message: brake.Message(r.Options.Namespace)}, nil
	}
	other, err := r.otherTenant(ctx)
	if err != nil {
		return admission{}, err
	}
	if other != "" {
		return admission{reason: sondev1.ReasonNamespaceShared, message: fmt.Sprintf(
			"Deployment %q is in the operator's namespace %q too, and whoever works there could run Pods as root: a cluster admin must move it, or give Sonde a namespace of its own; then create a new PacketCapture",
			other, r.Options.Namespace)}, nil
	}
	claim, err := r.Stamps.Verify(pc)
	switch {
	case errors.Is(err, stamp.ErrMissing), errors.Is(err, stamp.ErrInvalid):
		return admission{reason: sondev1.ReasonNotAdmitted, message: err.Error()}, nil
	case err != nil:
		return admission{}, fmt.Errorf("verify stamp: %w", err)
	}
	a := admission{requester: claim.Requester, reviews: reviews}
	if err := r.checkTargetNamespace(ctx, pc, claim, &a); err != nil || a.refused() {
		return a, err
	}
	if err := r.checkHub(ctx, pc, &a); err != nil || a.refused() {
		return a, err
	}
	decision, err := reviews.MayCapturePods(ctx, claim.Requester, target.Namespace(pc))
	if err != nil {
		return a, err
	}
	if !decision.Allowed {
		a.reason, a.message = sondev1.ReasonAccessRevoked, decision.Reason
	}
	return a, nil
}

// otherTenant names a Deployment beside the operator's own, which every way of installing calls the same.
// OLM likes to put operators into one namespace; this one must not be shared.
func (r *PacketCaptureReconciler) otherTenant(ctx context.Context) (string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	if err := r.List(ctx, list, client.InNamespace(r.Options.Namespace)); err != nil {
		return "", fmt.Errorf("list deployments of the operator's namespace: %w", err)
	}
	for i := range list.Items {
		if name := list.Items[i].Name; name != agentjob.ManagerDeployment {
			return name, nil
		}
	}
	return "", nil
}

// mayCaptureNodes asks once about the right that hostNetwork Pods need.
func (a *admission) mayCaptureNodes(ctx context.Context) error {
	if a.nodes != nil {
		return nil
	}
	nodes, err := a.reviews.MayCaptureNodes(ctx, a.requester)
	if err != nil {
		return err
	}
	a.nodes = &nodes
	return nil
}

// nodesDenied says why hostNetwork Pods may not be captured; empty if they may, or nobody asked.
func (a admission) nodesDenied() string {
	if a.nodes == nil || a.nodes.Allowed {
		return ""
	}
	return a.nodes.Reason
}

func (r *PacketCaptureReconciler) checkTargetNamespace(ctx context.Context, pc *sondev1.PacketCapture, claim stamp.Claim, a *admission) error {
	name := target.Namespace(pc)
	ns, err := r.namespace(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		a.reason = sondev1.ReasonNamespaceReplaced
		a.message = fmt.Sprintf("namespace %q was deleted: create a new PacketCapture for another target", name)
	case err != nil:
		return fmt.Errorf("get target namespace: %w", err)
	case string(ns.UID) != claim.TargetNamespaceUID:
		a.reason = sondev1.ReasonNamespaceReplaced
		a.message = fmt.Sprintf("namespace %q was deleted and made anew since the capture was asked for: create a new PacketCapture", name)
	case ns.Labels[sondev1.LabelOptOut] == "true":
		a.reason = sondev1.ReasonOptedOut
		a.message = fmt.Sprintf("a cluster admin has closed namespace %q to captures by the label %s=true: ask them to take it off, and create a new PacketCapture", name, sondev1.LabelOptOut)
	}
	return nil
}

func (r *PacketCaptureReconciler) checkHub(ctx context.Context, pc *sondev1.PacketCapture, a *admission) error {
	if target.Namespace(pc) == pc.Namespace {
		return nil
	}
	ns, err := r.namespace(ctx, pc.Namespace)
	if err != nil {
		return fmt.Errorf("get own namespace: %w", err)
	}
	if ns.Labels[sondev1.LabelHub] != "true" {
		a.reason = sondev1.ReasonHubNotAllowed
		a.message = fmt.Sprintf("targets in other namespaces are allowed only from a namespace that a cluster admin has labelled %s=true: create the PacketCapture in namespace %q itself, or in a hub",
			sondev1.LabelHub, target.Namespace(pc))
	}
	return nil
}

// namespace is read live: of one that was made anew the cache may still hold the old UID.
func (r *PacketCaptureReconciler) namespace(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	ns := namespaceMetadata()
	return ns, r.Live.Get(ctx, client.ObjectKey{Name: name}, ns)
}
