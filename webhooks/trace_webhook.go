package webhooks

import (
	"context"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=traces,verbs=get;list

// TraceChecks are the Checks of Traces.
type TraceChecks struct{}

// Shape implements Checks.
func (TraceChecks) Shape(capture sondev1.Capture) error {
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
	return checkRetain(s.RetainFor)
}

// Content implements Checks: the schema says all that there is to say of a trace.
func (TraceChecks) Content(context.Context, sondev1.Capture) error { return nil }
