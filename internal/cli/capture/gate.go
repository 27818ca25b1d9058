package capture

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

const (
	// gatePropagation is how long API servers may take to load the webhook for new Pods.
	gatePropagation = 2 * time.Second
	// defaultGateTimeout is the default of the API.
	defaultGateTimeout = "30s"
)

// restarts are the names that kubectl rollout restart has for kinds of targets.
var restarts = map[v1alpha1.TargetKind]string{
	v1alpha1.TargetDeployment: "deployment", v1alpha1.TargetStatefulSet: "statefulset", v1alpha1.TargetDaemonSet: "daemonset",
}

// gate says whether new Pods wait for their tracer, and how to start some.
func (s *State) gate(now time.Time) []string {
	gate, spec := traitsOf(s.Capture).gate(s.Capture), s.Capture.Common()
	if gate == nil || !gate.Enabled || s.Ended() || spec.Stop {
		return nil
	}
	c := apimeta.FindStatusCondition(s.Capture.CaptureStatus().Conditions, v1alpha1.ConditionGating)
	switch {
	case c == nil:
		return nil
	case c.Status != metav1.ConditionTrue:
		s.gatingSince = time.Time{}
		return []string{"New Pods do not wait: " + c.Message}
	case s.gatingSince.IsZero():
		s.gatingSince = now
	}
	if now.Sub(s.gatingSince) < gatePropagation {
		return nil
	}
	target, namespace := spec.Target, spec.TargetNamespace
	wait := fmt.Sprintf("wait until they are traced, for up to %s each.", cmp.Or(gate.Timeout, defaultGateTimeout))
	resource, known := restarts[target.Kind]
	if !known {
		return []string{fmt.Sprintf("New Pods of the name %s %s", target.Name, wait)}
	}
	return []string{
		fmt.Sprintf("New Pods of %s/%s %s To start some:", target.Kind, target.Name, wait),
		strings.Join([]string{"  kubectl rollout restart -n", namespace, resource + "/" + target.Name}, " "),
	}
}
