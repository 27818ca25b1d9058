// Package resultaccess admits ResultAccesses and stamps them with their requester.
package resultaccess

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/text"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// tokenHashForm is the schema's.
var tokenHashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Handler admits ResultAccesses and stamps them. It fails closed and writes nothing. A user may read results only while
// they may capture them: a right that they had once, or the right to read the capture's status, is not enough.
type Handler struct {
	// Live reads from the API server.
	Live client.Reader
	// Cache has ResultAccesses by target.IndexTokenHash, IndexAccessTo and IndexAccessTarget.
	Cache   client.Reader
	Reviews access.Reviews
	// Key of the stamp.
	Key   []byte
	Clock clock.PassiveClock

	recent recent
}

// Handle implements admission.Handler of controller-runtime.
func (h *Handler) Handle(ctx context.Context, req webhook.AdmissionRequest) webhook.AdmissionResponse {
	return admission.Handle(ctx, req, h.Key, h.create)
}

func (h *Handler) create(ctx context.Context, req webhook.AdmissionRequest) (admission.Granted, error) {
	var ra sondev1.ResultAccess
	if err := admission.Decode(req.Object.Raw, &ra); err != nil {
		return admission.Granted{}, err
	}
	who := access.FromUserInfo(req.UserInfo)
	targetUID, err := h.decide(ctx, req.Namespace, &ra.Spec, who)
	if err != nil {
		return admission.Granted{}, err
	}
	if err := h.bound(ctx, req, &ra.Spec, targetUID); err != nil {
		return admission.Granted{}, err
	}
	annotations, err := stamp.Sign(h.Key, req.Namespace, stamp.KindResultAccess, &ra.Spec, stamp.Claim{
		Requester: who, TargetNamespaceUID: targetUID, IssuedAt: h.Clock.Now(),
	})
	return admission.Granted{Annotations: annotations}, err
}

// decide returns the UID of the target's namespace. It must equal the UID at the capture's admission: the owner of a
// new namespace of the same name may not read captures of the old one.
func (h *Handler) decide(ctx context.Context, home string, s *sondev1.ResultAccessSpec, who access.Requester) (string, error) {
	k, known := kind.CaptureOf(string(s.CaptureRef.Kind))
	switch {
	case !known:
		return "", admission.Invalid("captureRef.kind %q has no results: write %s", text.Ellipsis(string(s.CaptureRef.Kind), admission.MaxMessageBytes), strings.Join(kind.CaptureNames(), " or "))
	case !admission.IsObjectName(s.CaptureRef.Name):
		return "", admission.Invalid("captureRef.name must be the name of a %s in namespace %s", k.Name, home)
	case !tokenHashForm.MatchString(s.TokenHash):
		return "", admission.Invalid("tokenHash must be the SHA-256 of the token, as 64 hex digits in lower case")
	}
	capture := k.New()
	err := h.Live.Get(ctx, client.ObjectKey{Namespace: home, Name: s.CaptureRef.Name}, capture)
	if apierrors.IsNotFound(err) {
		return "", admission.Invalid("%s %s/%s not found: write a name that \"kubectl get %s -n %s\" shows", k.Name, home, s.CaptureRef.Name, k.Resource, home)
	}
	if err != nil {
		return "", fmt.Errorf("get %s %s/%s: %w", strings.ToLower(k.Name), home, s.CaptureRef.Name, err)
	}
	if err := h.checkRights(ctx, k, capture, who); err != nil {
		return "", err
	}
	return h.checkTarget(ctx, k, capture, who)
}

func (h *Handler) checkRights(ctx context.Context, k kind.Capture, capture sondev1.Capture, who access.Requester) error {
	in := capture.Common().TargetNamespace
	if err := admission.RequireHub(ctx, h.Live, k.Name, capture.GetNamespace(), in); err != nil {
		return err
	}
	return admission.RequirePods(ctx, h.Reviews, k.Verb, who, in)
}

// checkTarget asks for the right on nodes if the target needs it. If the target no longer exists, the right cannot be
// decided here; the results endpoint reviews it again for each Pod, by the arguments of its probe.
func (h *Handler) checkTarget(ctx context.Context, k kind.Capture, capture sondev1.Capture, who access.Requester) (string, error) {
	home, name, common := capture.GetNamespace(), capture.GetName(), capture.Common()
	claim, err := stamp.VerifyCapture(h.Key, capture)
	if err != nil {
		return "", admission.Forbidden("%s %s/%s has no results: %v", k.Name, home, name, err)
	}
	in, ref := common.TargetNamespace, common.Target
	ns, err := admission.TargetNamespace(ctx, h.Live, in)
	if _, gone := errors.AsType[*admission.Refusal](err); gone {
		return "", admission.Invalid("namespace %s has been deleted, and with it the rights that say who may read its captures: create a new %s", in, k.Name)
	}
	if err != nil {
		return "", err
	}
	if string(ns.UID) != claim.TargetNamespaceUID {
		return "", admission.Forbidden("namespace %[1]s was deleted and created again since %[2]s %[3]s/%[4]s: create a new %[2]s", in, k.Name, home, name)
	}
	spec, err := admission.TargetPodSpec(ctx, h.Live, in, ref)
	switch {
	case apierrors.IsNotFound(err):
		return claim.TargetNamespaceUID, nil
	case err != nil:
		return "", err
	}
	if err := admission.RequireNodes(ctx, h.Reviews, k, who, spec, admission.TargetText(in, ref)); err != nil {
		return "", err
	}
	return claim.TargetNamespaceUID, nil
}
