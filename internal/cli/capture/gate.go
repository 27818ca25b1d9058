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
	// gateSettles is how long the API servers may take to read whom to ask about new Pods.
	gateSettles = 2 * time.Second
	// defaultGateTimeout is the API's.
	defaultGateTimeout = "30s"
)

// restarts are what kubectl rollout restart calls the kinds that it knows.
var restarts = map[v1alpha1.TargetKind]string{
	v1alpha1.TargetDeployment: "deployment", v1alpha1.TargetStatefulSet: "statefulset", v1alpha1.TargetDaemonSet: "daemonset",
}

// gate says what becomes of new Pods of a trace that has them wait, and how to get some.
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
		s.gating = time.Time{}
		return []string{"New Pods do not wait: " + c.Message}
	case s.gating.IsZero():
		s.gating = now
	}
	if now.Sub(s.gating) < gateSettles {
		return nil
	}
	target, namespace := spec.Target, spec.TargetNamespace
	wait := fmt.Sprintf("wait until they are traced, for up to %s each.", cmp.Or(gate.Timeout, defaultGateTimeout))
	of, known := restarts[target.Kind]
	if !known {
		return []string{fmt.Sprintf("New Pods of the name %s %s", target.Name, wait)}
	}
	return []string{
		fmt.Sprintf("New Pods of %s/%s %s To have some:", target.Kind, target.Name, wait),
		strings.Join([]string{"  kubectl rollout restart -n", namespace, of + "/" + target.Name}, " "),
	}
}
