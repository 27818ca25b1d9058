package webhooks

import (
	"context"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gate"
)

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=traces,verbs=get;list

// TraceChecks are the Checks of Traces.
type TraceChecks struct {
	// OperatorNamespace, where no Pod is gated.
	OperatorNamespace string
}

// Shape implements Checks.
func (c TraceChecks) Shape(capture sondev1.Capture) error {
	t, _ := capture.(*sondev1.Trace)
	s := &t.Spec
	if err := checkTarget(capture, s.TargetNamespace, s.TargetDeployment, s.TargetRef); err != nil {
		return err
	}
	if s.Duration != "" { // until the Pod is gone
		if err := checkDuration(s.Duration); err != nil {
			return err
		}
	}
	if in := capture.Common().TargetNamespace; s.Gate != nil && s.Gate.Enabled && gate.Protected(in, c.OperatorNamespace) {
		return invalid("gate.enabled: Pods of namespace %s, on which the cluster lives, never wait for a tracer: leave gate out", in)
	}
	return checkRetain(s.RetainFor)
}

// Content implements Checks: the schema says all that there is to say of a trace.
func (TraceChecks) Content(context.Context, sondev1.Capture) error { return nil }
