package capture

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/filterpool"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// Filters compiles pcap filters for a user, as internal/operator/filterpool's Pool does. A *pcapfilter.SyntaxError is a
// mistake of the user, a *filterpool.BusyError asks to try again, and every other error is a failure of the operator.
type Filters interface {
	Compile(ctx context.Context, requester, expression string, link pcapfilter.LinkType, snapLen int) (bpfprog.Program, error)
}

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=packetcaptures,verbs=get;list

// PacketCaptureChecks are the Checks of PacketCaptures.
type PacketCaptureChecks struct{ Filters Filters }

// Shape implements Checks.
func (*PacketCaptureChecks) Shape(capture sondev1.Capture) error {
	pc, _ := capture.(*sondev1.PacketCapture)
	s := &pc.Spec
	if err := checkTarget(capture, s.TargetNamespace, s.TargetDeployment, s.TargetRef); err != nil {
		return err
	}
	if len(s.Filter) > pcapfilter.MaxExpressionBytes {
		return admission.Invalid("filter has %d bytes, at most %d are allowed: write it shorter, e.g. with net or portrange instead of long lists",
			len(s.Filter), pcapfilter.MaxExpressionBytes)
	}
	if err := checkDuration(s.Duration); err != nil {
		return err
	}
	return checkRetain(s.RetainFor)
}

// Content implements Checks. It compiles the filter for Ethernet, the link type of nearly every interface of a Pod. The
// controller compiles it again for every link type.
func (c *PacketCaptureChecks) Content(ctx context.Context, capture sondev1.Capture, who access.Requester) error {
	pc, _ := capture.(*sondev1.PacketCapture)
	s := &pc.Spec
	snapLen := int(s.SnapLength)
	if snapLen < 0 || snapLen > pcapfilter.MaxSnapLen {
		snapLen = 0 // the schema refuses it with a better message
	}
	_, err := c.Filters.Compile(ctx, who.Username, s.Filter, pcapfilter.LinkEthernet, snapLen)
	if syntax, ok := errors.AsType[*pcapfilter.SyntaxError](err); ok {
		return admission.Invalid("%v", syntax)
	}
	if busy, ok := errors.AsType[*filterpool.BusyError](err); ok {
		return admission.TooMany("%v", busy)
	}
	if err != nil {
		return fmt.Errorf("compile filter: %w", err)
	}
	return nil
}

// Warnings implements Checks.
func (*PacketCaptureChecks) Warnings(sondev1.Capture, *corev1.PodSpec) []string { return nil }
