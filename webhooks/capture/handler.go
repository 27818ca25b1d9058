// Package capture admits PacketCaptures and Traces and stamps them with their requester.
package capture

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// Handler admits captures of one kind and stamps them. It fails closed. It writes nothing but reviews, which the API server
// does not store, so a dry run changes nothing.
type Handler struct {
	Kind kind.Capture
	// Checks of this kind.
	Checks Checks
	// Live reads from the API server: a cache could be older than an admin's last change.
	Live client.Reader
	// Cache of all captures.
	Cache client.Reader
	// Reviews are not cached.
	Reviews access.Reviews
	// Key of the stamp.
	Key []byte
	// OperatorNamespace holds no captures and no targets.
	OperatorNamespace string
	// Ceilings of one capture.
	Ceilings ceiling.Limits
	// Quota bounds the captures of a namespace; the handlers of all kinds share it.
	Quota *Quota
	Clock clock.PassiveClock
}

// Checks are the checks that differ between the kinds. They refuse by admission.Invalid or admission.Forbidden; every
// other error is a failure of the operator.
type Checks interface {
	// Shape runs before any lookup. It refuses what the schema would refuse after the webhook.
	Shape(capture sondev1.Capture) error
	// Content runs after the requester's rights are proven, so that its refusals reveal nothing about a target to strangers.
	Content(ctx context.Context, capture sondev1.Capture, who access.Requester) error
	// Warnings for the requester of an admitted capture; spec is the Pod spec of the target.
	Warnings(capture sondev1.Capture, spec *corev1.PodSpec) []string
}

// Handle implements admission.Handler of controller-runtime.
func (h *Handler) Handle(ctx context.Context, req webhook.AdmissionRequest) webhook.AdmissionResponse {
	return admission.Handle(ctx, req, h.Key, h.create)
}

func (h *Handler) create(ctx context.Context, req webhook.AdmissionRequest) (admission.Granted, error) {
	capture := h.Kind.New()
	if err := admission.Decode(req.Object.Raw, capture); err != nil {
		return admission.Granted{}, err
	}
	capture.SetNamespace(req.Namespace) // the object may name another, or none
	who := access.FromUserInfo(req.UserInfo)
	d, err := h.decide(ctx, capture, who)
	if err != nil {
		return admission.Granted{}, err
	}
	annotations, err := stamp.Sign(h.Key, req.Namespace, h.Kind.Name, capture.CaptureSpec(), stamp.Claim{
		Requester: who, TargetNamespaceUID: d.namespaceUID, IssuedAt: h.Clock.Now(), RequestUID: string(req.UID),
	})
	if err == nil && (req.DryRun == nil || !*req.DryRun) {
		err = h.Quota.Admit(ctx, req.Namespace, annotations[sondev1.AnnotationStamp])
	}
	return admission.Granted{Annotations: annotations, Warnings: d.warnings}, err
}

// decision about a capture that is admitted.
type decision struct {
	// namespaceUID of the target.
	namespaceUID string
	warnings     []string
}

// decide decides on a new capture. The order matters: no answer says anything about a namespace before the requester's
// right to capture there is proven.
func (h *Handler) decide(ctx context.Context, capture sondev1.Capture, who access.Requester) (decision, error) {
	if err := h.Checks.Shape(capture); err != nil {
		return decision{}, err
	}
	common := capture.Common()
	if err := h.Ceilings.Check(common); err != nil {
		return decision{}, admission.Forbidden("%v", err)
	}
	if err := admission.RequireRunning(ctx, h.Live, h.OperatorNamespace, h.Kind.Name); err != nil {
		return decision{}, err
	}
	in := common.TargetNamespace
	if err := h.checkNamespaces(ctx, capture.GetNamespace(), in); err != nil {
		return decision{}, err
	}
	if err := admission.RequirePods(ctx, h.Reviews, h.Kind.Verb, who, in); err != nil {
		return decision{}, err
	}
	if err := h.Quota.Check(ctx, capture.GetNamespace()); err != nil {
		return decision{}, err
	}
	ns, err := admission.TargetNamespace(ctx, h.Live, in)
	if err != nil {
		return decision{}, err
	}
	if ns.Labels[sondev1.LabelOptOut] == "true" {
		return decision{}, admission.Forbidden("a cluster admin has closed namespace %s to captures by the label %s=true: ask them to remove it", in, sondev1.LabelOptOut)
	}
	spec, err := h.checkTarget(ctx, who, in, common.Target)
	if err != nil {
		return decision{}, err
	}
	if err := h.Checks.Content(ctx, capture, who); err != nil {
		return decision{}, err
	}
	if err := h.checkJobID(ctx, capture, common); err != nil {
		return decision{}, err
	}
	return decision{string(ns.UID), h.Checks.Warnings(capture, spec)}, nil
}

// checkNamespaces decides which namespaces go together. The operator's own is excluded on both sides: its Pods see packets
// of all tenants, and a user who may create objects there may run a probe anyway.
func (h *Handler) checkNamespaces(ctx context.Context, home, in string) error {
	if home == h.OperatorNamespace || in == h.OperatorNamespace {
		return admission.Forbidden("namespace %s is the operator's own: nothing is captured from there or in there; create the %s in the namespace of its target", h.OperatorNamespace, h.Kind.Name)
	}
	return admission.RequireHub(ctx, h.Live, h.Kind.Name, home, in)
}

// checkTarget decides on a target, and returns the spec of its Pods.
func (h *Handler) checkTarget(ctx context.Context, who access.Requester, in string, ref sondev1.TargetReference) (*corev1.PodSpec, error) {
	spec, err := admission.TargetPodSpec(ctx, h.Live, in, ref)
	switch {
	case apierrors.IsNotFound(err):
		return nil, admission.TargetNotFound(in, ref)
	case err != nil:
		return nil, err
	}
	return spec, admission.RequireNodes(ctx, h.Reviews, h.Kind, who, spec, admission.TargetText(in, ref))
}

// checkJobID refuses a jobId that a running capture of the same target has. It looks in this namespace only, because the
// requester may not know the captures of others. If one of them has the same jobId, the controller picks another name. It
// does so, too, for two captures that are created within the moment that the cache lags. A cache without copies takes no
// memory, while a list from the API server would hold whatever users have written into their captures.
func (h *Handler) checkJobID(ctx context.Context, capture sondev1.Capture, common sondev1.Common) error {
	if common.JobID == "" {
		return nil
	}
	home := capture.GetNamespace()
	for _, k := range kind.Captures {
		list := k.NewList()
		if err := h.Cache.List(ctx, list, client.InNamespace(home), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %s in %s: %w", k.Resource, home, err)
		}
		for _, other := range list.Captures() {
			of, status := other.Common(), other.CaptureStatus()
			sameID := of.JobID == common.JobID || status.JobID == common.JobID
			if sameID && of.TargetNamespace == common.TargetNamespace && of.Target == common.Target &&
				other.GetDeletionTimestamp().IsZero() && !status.Phase.Final() {
				return admission.Invalid("jobId %s is in use by %s %s for the same target: write another, or leave it out to let the operator choose one",
					common.JobID, k.Name, other.GetName())
			}
		}
	}
	return nil
}
