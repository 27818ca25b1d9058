package capture

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/internal/wire/text"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=traces,verbs=get;list

// TraceChecks are the Checks of Traces.
type TraceChecks struct {
	// OperatorNamespace has no gated Pods.
	OperatorNamespace string
}

// Shape implements Checks.
func (c TraceChecks) Shape(capture sondev1.Capture) error {
	t, _ := capture.(*sondev1.Trace)
	s := &t.Spec
	if err := checkTarget(capture, s.TargetNamespace, s.TargetDeployment, s.TargetRef); err != nil {
		return err
	}
	if s.Duration != "" { // without one, the trace lasts as long as the Pod
		if err := checkDuration(s.Duration); err != nil {
			return err
		}
	}
	if in := capture.Common().TargetNamespace; s.Gate != nil && s.Gate.Enabled && gate.Protected(in, c.OperatorNamespace) {
		return admission.Invalid("gate.enabled: the cluster needs the Pods of namespace %s, so they never wait for a tracer: leave gate out", in)
	}
	return checkRetain(s.RetainFor)
}

// Content implements Checks. The schema checks all of a trace.
func (TraceChecks) Content(context.Context, sondev1.Capture, access.Requester) error { return nil }

// Warnings implements Checks. A container that the Pod template lacks is not refused, because another webhook or kubectl
// debug may add it to a Pod.
func (TraceChecks) Warnings(capture sondev1.Capture, spec *corev1.PodSpec) []string {
	t, _ := capture.(*sondev1.Trace)
	missing := slices.DeleteFunc(target.ContainersNotFound(spec, t.Spec.Containers), func(name string) bool {
		return name == gateconfig.ContainerName && t.Spec.Gate != nil && t.Spec.Gate.Enabled
	})
	if len(missing) == 0 {
		return nil
	}
	common := capture.Common()
	return []string{text.Ellipsis(fmt.Sprintf("%s has no container %s (it has %s): a Pod that has none of the named containers when its trace begins is not traced",
		admission.TargetText(common.TargetNamespace, common.Target), strings.Join(missing, ", "), target.ContainersText(spec)), admission.MaxWarningBytes)}
}
