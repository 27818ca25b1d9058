package webhooks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
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

// Warnings implements Checks. A container that the target's Pods are not made with may still come to them: by another
// webhook, or by kubectl debug.
func (TraceChecks) Warnings(capture sondev1.Capture, spec *corev1.PodSpec) []string {
	t, _ := capture.(*sondev1.Trace)
	missing := slices.DeleteFunc(target.ContainersNotFound(spec, t.Spec.Containers), func(name string) bool {
		return name == gateconfig.ContainerName && t.Spec.Gate != nil && t.Spec.Gate.Enabled
	})
	if len(missing) == 0 {
		return nil
	}
	common := capture.Common()
	return []string{cut(fmt.Sprintf("%s %s/%s has no container %s (it has %s): a Pod that has none of those named when its trace begins is not traced",
		common.Target.Kind, common.TargetNamespace, common.Target.Name, strings.Join(missing, ", "), target.ContainersText(spec)), maxWarning)}
}
