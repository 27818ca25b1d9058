package webhooks

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
)

// ResultAccessHandler admits ResultAccesses and stamps them. It fails closed and writes nothing.
// Whoever may read results may, at that moment, capture them himself: having been allowed once, or
// being allowed to read the capture's status, is not enough.
type ResultAccessHandler struct {
	// Live reads from the API server.
	Live    client.Reader
	Reviews access.Reviews
	// Key of the stamp.
	Key   []byte
	Clock clock.PassiveClock
}

// Handle implements admission.Handler.
func (h *ResultAccessHandler) Handle(ctx context.Context, req admission.Request) admission.Response {
	return handle(ctx, req, h.create)
}

func (h *ResultAccessHandler) create(ctx context.Context, req admission.Request) (granted, error) {
	var ra sondev1.ResultAccess
	if err := decode(req.Object.Raw, &ra); err != nil {
		return granted{}, err
	}
	who := access.FromUserInfo(req.UserInfo)
	targetUID, err := h.decide(ctx, req.Namespace, &ra.Spec, who)
	if err != nil {
		return granted{}, err
	}
	annotations, err := stamp.Sign(h.Key, req.Namespace, stamp.KindResultAccess, &ra.Spec, stamp.Claim{
		Requester: who, TargetNamespaceUID: targetUID, IssuedAt: h.Clock.Now(),
	})
	return granted{annotations: annotations}, err
}

// decide returns the UID of the target's namespace, which is the one that the capture was admitted
// for: whoever makes a namespace of the same name anew has no part in what was captured before.
func (h *ResultAccessHandler) decide(ctx context.Context, home string, s *sondev1.ResultAccessSpec, who access.Requester) (string, error) {
	of, known := kind.CaptureOf(string(s.CaptureRef.Kind))
	switch {
	case !known:
		return "", invalid("captureRef.kind %q has no results: write %s", bound(string(s.CaptureRef.Kind)), strings.Join(kind.CaptureNames(), " or "))
	case !workloadForm.MatchString(s.CaptureRef.Name):
		return "", invalid("captureRef.name must be the name of a %s in namespace %s", of.Name, home)
	case !tokenHashForm.MatchString(s.TokenHash):
		return "", invalid("tokenHash must be the SHA-256 of the token, as 64 hex digits in lower case")
	}
	capture := of.New()
	err := h.Live.Get(ctx, client.ObjectKey{Namespace: home, Name: s.CaptureRef.Name}, capture)
	if apierrors.IsNotFound(err) {
		return "", invalid("%s %s/%s not found: write a name that \"kubectl get %s -n %s\" shows", of.Name, home, s.CaptureRef.Name, of.Resource, home)
	}
	if err != nil {
		return "", fmt.Errorf("get %s %s/%s: %w", strings.ToLower(of.Name), home, s.CaptureRef.Name, err)
	}
	if err := h.checkRights(ctx, of, capture, who); err != nil {
		return "", err
	}
	return h.checkTarget(ctx, of, capture, who)
}

func (h *ResultAccessHandler) checkRights(ctx context.Context, of kind.Capture, capture sondev1.Capture, who access.Requester) error {
	in := capture.Common().TargetNamespace
	if err := checkForeign(ctx, h.Live, of, capture.GetNamespace(), in); err != nil {
		return err
	}
	return require(ctx, h.Reviews, of, who, in)
}

// checkTarget asks for the right on nodes while the target says that it needs it. A target that is
// gone cannot say; the results endpoint asks again for each Pod, by what its probe was told.
func (h *ResultAccessHandler) checkTarget(ctx context.Context, of kind.Capture, capture sondev1.Capture, who access.Requester) (string, error) {
	home, name, common := capture.GetNamespace(), capture.GetName(), capture.Common()
	claim, err := stamp.VerifyCapture(h.Key, capture)
	if err != nil {
		return "", forbidden("%s %s/%s has no results: %v", of.Name, home, name, err)
	}
	in, ref := common.TargetNamespace, common.Target
	ns, err := liveNamespace(ctx, h.Live, in)
	if _, gone := errors.AsType[*refusal](err); gone {
		return "", invalid("the namespace %s that was captured in has been deleted, and with it what says who may read what was captured there: create a new %s", in, of.Name)
	}
	if err != nil {
		return "", err
	}
	if string(ns.UID) != claim.TargetNamespaceUID {
		return "", forbidden("namespace %[1]s is not the one that %[2]s %[3]s/%[4]s looked at: that one was deleted; create a new %[2]s", in, of.Name, home, name)
	}
	spec, err := podSpecOf(ctx, h.Live, in, ref)
	switch {
	case apierrors.IsNotFound(err):
		return claim.TargetNamespaceUID, nil
	case err != nil:
		return "", err
	}
	if err := requireNodes(ctx, h.Reviews, of, who, of.OnNode(spec), string(ref.Kind)+" "+in+"/"+ref.Name); err != nil {
		return "", err
	}
	return claim.TargetNamespaceUID, nil
}
