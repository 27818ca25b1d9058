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
	"github.com/sonde-operator/sonde/internal/brake"
	"github.com/sonde-operator/sonde/internal/ceiling"
	"github.com/sonde-operator/sonde/internal/pages"
	"github.com/sonde-operator/sonde/internal/pcapfilter"
	"github.com/sonde-operator/sonde/internal/stamp"
	"github.com/sonde-operator/sonde/internal/target"
)

// Filters compiles pcap filters; internal/pcapfilter's Compiler does. A *pcapfilter.SyntaxError is
// the user's fault, every other error the operator's.
type Filters interface {
	Compile(ctx context.Context, expression string, link pcapfilter.LinkType, snapLen int) (pcapfilter.Program, error)
}

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=packetcaptures,verbs=get;list

// PacketCaptureHandler admits PacketCaptures and stamps them. It fails closed. It writes nothing,
// but for reviews, which are not stored: so a dry run is as harmless as it should be.
type PacketCaptureHandler struct {
	// Live reads from the API server: a cache could still know what an admin has just taken away.
	Live client.Reader
	// Reviews are not cached.
	Reviews access.Reviews
	Filters Filters
	// Key of the stamp.
	Key []byte
	// OperatorNamespace, where no capture lives and none looks.
	OperatorNamespace string
	// Ceilings of one capture.
	Ceilings ceiling.Limits
	Clock    clock.PassiveClock

	filters lanes
}

// Handle implements admission.Handler.
func (h *PacketCaptureHandler) Handle(ctx context.Context, req admission.Request) admission.Response {
	return handle(ctx, req, h.create)
}

func (h *PacketCaptureHandler) create(ctx context.Context, req admission.Request) (map[string]string, error) {
	var pc sondev1.PacketCapture
	if err := decode(req.Object.Raw, &pc); err != nil {
		return nil, err
	}
	pc.Namespace = req.Namespace // what the request is for, whatever the object says
	who := access.FromUserInfo(req.UserInfo)
	targetUID, err := h.decide(ctx, &pc, who)
	if err != nil {
		return nil, err
	}
	return stamp.Sign(h.Key, req.Namespace, stamp.KindPacketCapture, &pc.Spec, stamp.Claim{
		Requester: who, TargetNamespaceUID: targetUID, IssuedAt: h.Clock.Now(),
	})
}

// decide is the whole decision on a new capture; it returns the UID of the target's namespace. The
// order matters: nothing about a namespace is told before the right to capture there is proven.
func (h *PacketCaptureHandler) decide(ctx context.Context, pc *sondev1.PacketCapture, who access.Requester) (string, error) {
	if err := checkShape(&pc.Spec); err != nil {
		return "", err
	}
	if err := h.Ceilings.Check(&pc.Spec); err != nil {
		return "", forbidden("%v", err)
	}
	if err := h.checkBrake(ctx); err != nil {
		return "", err
	}
	var (
		in  = target.Namespace(pc)
		ref = target.Reference(pc)
	)
	if err := h.checkHome(ctx, pc.Namespace, in); err != nil {
		return "", err
	}
	if err := require(ctx, h.Reviews, who, in); err != nil {
		return "", err
	}
	ns, err := liveNamespace(ctx, h.Live, in)
	if err != nil {
		return "", err
	}
	if ns.Labels[sondev1.LabelOptOut] == "true" {
		return "", forbidden("a cluster admin has closed namespace %s to captures by the label %s=true: ask them to take it off", in, sondev1.LabelOptOut)
	}
	if err := h.checkWorkload(ctx, who, in, ref); err != nil {
		return "", err
	}
	if err := h.checkFilter(ctx, pc.Namespace, &pc.Spec); err != nil {
		return "", err
	}
	if err := h.checkJobID(ctx, pc, in, ref); err != nil {
		return "", err
	}
	return string(ns.UID), nil
}

// checkHome decides which namespaces go together. The operator's own is out on both sides: Pods
// there see other people's packets, and who may create there may as well run as a probe.
func (h *PacketCaptureHandler) checkHome(ctx context.Context, home, in string) error {
	if home == h.OperatorNamespace || in == h.OperatorNamespace {
		return forbidden("namespace %s is the operator's own: nothing is captured from there or in there; create the PacketCapture in the namespace of its target", h.OperatorNamespace)
	}
	return checkForeign(ctx, h.Live, home, in)
}

// checkBrake refuses everything while the operator is paused.
func (h *PacketCaptureHandler) checkBrake(ctx context.Context) error {
	paused, err := brake.Paused(ctx, h.Live, h.OperatorNamespace)
	if err != nil {
		return err
	}
	if paused {
		return forbidden("%s", brake.Message(h.OperatorNamespace))
	}
	return nil
}

// checkForeign refuses a target in another namespace unless a cluster admin has opened home for it:
// a status names the target's Pods to all who may read it.
func checkForeign(ctx context.Context, live client.Reader, home, in string) error {
	if home == in {
		return nil
	}
	hub, err := isHub(ctx, live, home)
	if err != nil {
		return err
	}
	if !hub {
		return forbidden("a target in another namespace is allowed only from a namespace that a cluster admin has labelled %s=true: create the PacketCapture in namespace %s, or in such a hub, as packet-capture is by default", sondev1.LabelHub, in)
	}
	return nil
}

func (h *PacketCaptureHandler) checkWorkload(ctx context.Context, who access.Requester, in string, ref sondev1.TargetReference) error {
	host, err := hostNetwork(ctx, h.Live, in, ref)
	switch {
	case apierrors.IsNotFound(err):
		return notFound(in, ref)
	case err != nil:
		return err
	case host:
		return requireNodes(ctx, h.Reviews, who, string(ref.Kind)+" "+in+"/"+ref.Name)
	}
	return nil
}

// checkFilter compiles for Ethernet, what nearly every interface of a Pod is. The controller
// compiles again, for every link type.
func (h *PacketCaptureHandler) checkFilter(ctx context.Context, home string, s *sondev1.PacketCaptureSpec) error {
	leave, err := h.filters.enter(ctx, home)
	if err != nil {
		return err
	}
	defer leave()
	snapLen := int(s.SnapLength)
	if snapLen < 0 || snapLen > pcapfilter.MaxSnapLen {
		snapLen = 0 // the schema refuses it, in better words
	}
	_, err = h.Filters.Compile(ctx, s.Filter, pcapfilter.LinkEthernet, snapLen)
	if syntax, ok := errors.AsType[*pcapfilter.SyntaxError](err); ok {
		return invalid("%v", syntax)
	}
	if err != nil {
		return fmt.Errorf("compile filter: %w", err)
	}
	return nil
}

// checkJobID refuses a jobId that a running capture of the same target has, in this namespace only:
// a capture in another is nobody's business here, and the controller finds another name beside it.
func (h *PacketCaptureHandler) checkJobID(ctx context.Context, pc *sondev1.PacketCapture, in string, ref sondev1.TargetReference) error {
	if pc.Spec.JobID == "" {
		return nil
	}
	user := ""
	err := pages.Each(ctx, h.Live, func() *sondev1.PacketCaptureList { return &sondev1.PacketCaptureList{} }, func(list *sondev1.PacketCaptureList) {
		for i := range list.Items {
			other := &list.Items[i]
			sameID := other.Spec.JobID == pc.Spec.JobID || other.Status.JobID == pc.Spec.JobID
			if sameID && target.Namespace(other) == in && target.Reference(other) == ref &&
				other.DeletionTimestamp.IsZero() && !other.Status.Phase.Final() {
				user = other.Name
			}
		}
	}, client.InNamespace(pc.Namespace))
	if err != nil {
		return fmt.Errorf("list packetcaptures in %s: %w", pc.Namespace, err)
	}
	if user != "" {
		return invalid("jobId %s is in use by PacketCapture %s for the same target: write another, or leave it out to have one made", pc.Spec.JobID, user)
	}
	return nil
}
