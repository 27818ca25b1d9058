package webhooks

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/access"
	"github.com/sonde-operator/sonde/internal/stamp"
	"github.com/sonde-operator/sonde/internal/target"
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

func (h *ResultAccessHandler) create(ctx context.Context, req admission.Request) (map[string]string, error) {
	var ra sondev1.ResultAccess
	if err := decode(req.Object.Raw, &ra); err != nil {
		return nil, err
	}
	who := access.FromUserInfo(req.UserInfo)
	targetUID, err := h.decide(ctx, req.Namespace, &ra.Spec, who)
	if err != nil {
		return nil, err
	}
	return stamp.Sign(h.Key, req.Namespace, stamp.KindResultAccess, &ra.Spec, stamp.Claim{
		Requester: who, TargetNamespaceUID: targetUID, IssuedAt: h.Clock.Now(),
	})
}

// decide returns the UID of the target's namespace, which is the one that the capture was admitted
// for: whoever makes a namespace of the same name anew has no part in what was captured before.
func (h *ResultAccessHandler) decide(ctx context.Context, home string, s *sondev1.ResultAccessSpec, who access.Requester) (string, error) {
	switch {
	case s.CaptureRef.Kind != sondev1.CapturePacketCapture:
		return "", invalid("captureRef.kind %q has no results: write %s", bound(string(s.CaptureRef.Kind)), sondev1.CapturePacketCapture)
	case !workloadForm.MatchString(s.CaptureRef.Name):
		return "", invalid("captureRef.name must be the name of a PacketCapture in namespace %s", home)
	case !tokenHashForm.MatchString(s.TokenHash):
		return "", invalid("tokenHash must be the SHA-256 of the token, as 64 hex digits in lower case")
	}
	var pc sondev1.PacketCapture
	err := h.Live.Get(ctx, client.ObjectKey{Namespace: home, Name: s.CaptureRef.Name}, &pc)
	if apierrors.IsNotFound(err) {
		return "", invalid("PacketCapture %s/%s not found: write a name that \"kubectl get packetcaptures -n %s\" shows", home, s.CaptureRef.Name, home)
	}
	if err != nil {
		return "", fmt.Errorf("get packetcapture %s/%s: %w", home, s.CaptureRef.Name, err)
	}
	if err := h.checkRights(ctx, &pc, who); err != nil {
		return "", err
	}
	return h.checkTarget(ctx, &pc, who)
}

func (h *ResultAccessHandler) checkRights(ctx context.Context, pc *sondev1.PacketCapture, who access.Requester) error {
	in := target.Namespace(pc)
	if err := checkForeign(ctx, h.Live, pc.Namespace, in); err != nil {
		return err
	}
	return require(ctx, h.Reviews, who, in)
}

// checkTarget asks for the right on nodes while the target says that it needs it. A target that is
// gone cannot say; the results endpoint asks again for each Pod, by what its probe was told.
func (h *ResultAccessHandler) checkTarget(ctx context.Context, pc *sondev1.PacketCapture, who access.Requester) (string, error) {
	claim, err := stamp.Verify(h.Key, pc.Namespace, stamp.KindPacketCapture, &pc.Spec, pc.Annotations, pc.CreationTimestamp.Time)
	if err != nil {
		return "", forbidden("PacketCapture %s/%s has no results: %v", pc.Namespace, pc.Name, err)
	}
	in, ref := target.Namespace(pc), target.Reference(pc)
	ns, err := liveNamespace(ctx, h.Live, in)
	if _, gone := errors.AsType[*refusal](err); gone {
		return "", invalid("the namespace %s that was captured in has been deleted, and with it what says who may read what was captured there: create a new PacketCapture", in)
	}
	if err != nil {
		return "", err
	}
	if string(ns.UID) != claim.TargetNamespaceUID {
		return "", forbidden("namespace %s is not the one that PacketCapture %s/%s looked at: that one was deleted; create a new PacketCapture", in, pc.Namespace, pc.Name)
	}
	host, err := hostNetwork(ctx, h.Live, in, ref)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	if host {
		if err := requireNodes(ctx, h.Reviews, who, string(ref.Kind)+" "+in+"/"+ref.Name); err != nil {
			return "", err
		}
	}
	return claim.TargetNamespaceUID, nil
}
