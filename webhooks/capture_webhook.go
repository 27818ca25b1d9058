package webhooks

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/paging"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
)

// CaptureHandler admits captures of one kind and stamps them. It fails closed. It writes nothing,
// but for reviews, which are not stored: so a dry run is as harmless as it should be.
type CaptureHandler struct {
	Kind kind.Capture
	// Checks of this kind.
	Checks Checks
	// Live reads from the API server: a cache could still know what an admin has just taken away.
	Live client.Reader
	// Reviews are not cached.
	Reviews access.Reviews
	// Key of the stamp.
	Key []byte
	// OperatorNamespace, where no capture lives and none looks.
	OperatorNamespace string
	// Ceilings of one capture.
	Ceilings ceiling.Limits
	Clock    clock.PassiveClock
}

// Checks are what only one kind has to check. A refusal is made by invalid or forbidden; every other error is the
// operator's.
type Checks interface {
	// Shape refuses, before anything is looked up, what the schema would refuse after the webhook.
	Shape(capture sondev1.Capture) error
	// Content is asked of what may be had otherwise, so that its refusals tell nothing about a target to strangers.
	Content(ctx context.Context, capture sondev1.Capture) error
	// Warnings are what the requester of what is admitted should know about it; spec is what the target's Pods are made by.
	Warnings(capture sondev1.Capture, spec *corev1.PodSpec) []string
}

// Handle implements admission.Handler.
func (h *CaptureHandler) Handle(ctx context.Context, req admission.Request) admission.Response {
	return handle(ctx, req, h.create)
}

func (h *CaptureHandler) create(ctx context.Context, req admission.Request) (granted, error) {
	capture := h.Kind.New()
	if err := decode(req.Object.Raw, capture); err != nil {
		return granted{}, err
	}
	capture.SetNamespace(req.Namespace) // what the request is for, whatever the object says
	who := access.FromUserInfo(req.UserInfo)
	d, err := h.decide(ctx, capture, who)
	if err != nil {
		return granted{}, err
	}
	annotations, err := stamp.Sign(h.Key, req.Namespace, h.Kind.Name, capture.CaptureSpec(), stamp.Claim{
		Requester: who, TargetNamespaceUID: d.namespaceUID, IssuedAt: h.Clock.Now(),
	})
	return granted{annotations, d.warnings}, err
}

// decision on a capture that may be had.
type decision struct {
	// namespaceUID of the target.
	namespaceUID string
	warnings     []string
}

// decide is the whole decision on a new capture. The order matters: nothing about a namespace is told before the right to
// capture there is proven.
func (h *CaptureHandler) decide(ctx context.Context, capture sondev1.Capture, who access.Requester) (decision, error) {
	if err := h.Checks.Shape(capture); err != nil {
		return decision{}, err
	}
	common := capture.Common()
	if err := h.Ceilings.Check(common); err != nil {
		return decision{}, forbidden("%v", err)
	}
	if err := h.checkBrake(ctx); err != nil {
		return decision{}, err
	}
	in := common.TargetNamespace
	if err := h.checkHome(ctx, capture.GetNamespace(), in); err != nil {
		return decision{}, err
	}
	if err := require(ctx, h.Reviews, h.Kind, who, in); err != nil {
		return decision{}, err
	}
	ns, err := liveNamespace(ctx, h.Live, in)
	if err != nil {
		return decision{}, err
	}
	if ns.Labels[sondev1.LabelOptOut] == "true" {
		return decision{}, forbidden("a cluster admin has closed namespace %s to captures by the label %s=true: ask them to take it off", in, sondev1.LabelOptOut)
	}
	spec, err := h.checkWorkload(ctx, who, in, common.Target)
	if err != nil {
		return decision{}, err
	}
	if err := h.Checks.Content(ctx, capture); err != nil {
		return decision{}, err
	}
	if err := h.checkJobID(ctx, capture, common); err != nil {
		return decision{}, err
	}
	return decision{string(ns.UID), h.Checks.Warnings(capture, spec)}, nil
}

// checkHome decides which namespaces go together. The operator's own is out on both sides: Pods
// there see other people's packets, and who may create there may as well run as a probe.
func (h *CaptureHandler) checkHome(ctx context.Context, home, in string) error {
	if home == h.OperatorNamespace || in == h.OperatorNamespace {
		return forbidden("namespace %s is the operator's own: nothing is captured from there or in there; create the %s in the namespace of its target", h.OperatorNamespace, h.Kind.Name)
	}
	return checkForeign(ctx, h.Live, h.Kind, home, in)
}

// checkBrake refuses everything while the operator is paused.
func (h *CaptureHandler) checkBrake(ctx context.Context) error {
	paused, err := pause.Paused(ctx, h.Live, h.OperatorNamespace)
	if err != nil {
		return err
	}
	if paused {
		return forbidden("%s", pause.Message(h.OperatorNamespace, h.Kind.Name))
	}
	return nil
}

// checkForeign refuses a target in another namespace unless a cluster admin has opened home for it:
// a status names the target's Pods to all who may read it.
func checkForeign(ctx context.Context, live client.Reader, of kind.Capture, home, in string) error {
	if home == in {
		return nil
	}
	hub, err := isHub(ctx, live, home)
	if err != nil {
		return err
	}
	if !hub {
		return forbidden("a target in another namespace is allowed only from a namespace that a cluster admin has labelled %s=true: create the %s in namespace %s, or in such a hub, as packet-capture is by default", sondev1.LabelHub, of.Name, in)
	}
	return nil
}

// checkWorkload decides on a target, and returns what its Pods are made by.
func (h *CaptureHandler) checkWorkload(ctx context.Context, who access.Requester, in string, ref sondev1.TargetReference) (*corev1.PodSpec, error) {
	spec, err := podSpecOf(ctx, h.Live, in, ref)
	switch {
	case apierrors.IsNotFound(err):
		return nil, notFound(in, ref)
	case err != nil:
		return nil, err
	}
	return spec, requireNodes(ctx, h.Reviews, h.Kind, who, h.Kind.OnNode(spec), string(ref.Kind)+" "+in+"/"+ref.Name)
}

// checkJobID refuses a jobId that a running capture of the same target has, in this namespace only:
// a capture in another is nobody's business here, and the controller finds another name beside it.
func (h *CaptureHandler) checkJobID(ctx context.Context, capture sondev1.Capture, common sondev1.Common) error {
	if common.JobID == "" {
		return nil
	}
	home := capture.GetNamespace()
	for _, k := range kind.Captures {
		user := ""
		err := paging.Each(ctx, h.Live, k.NewList, func(list sondev1.CaptureList) {
			for _, other := range list.Captures() {
				of, status := other.Common(), other.CaptureStatus()
				sameID := of.JobID == common.JobID || status.JobID == common.JobID
				if sameID && of.TargetNamespace == common.TargetNamespace && of.Target == common.Target &&
					other.GetDeletionTimestamp().IsZero() && !status.Phase.Final() {
					user = other.GetName()
				}
			}
		}, client.InNamespace(home))
		if err != nil {
			return fmt.Errorf("list %s in %s: %w", k.Resource, home, err)
		}
		if user != "" {
			return invalid("jobId %s is in use by %s %s for the same target: write another, or leave it out to have one made", common.JobID, k.Name, user)
		}
	}
	return nil
}
