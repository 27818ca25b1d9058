package collector

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// maxMessage of a condition, in bytes.
const maxMessage = 2048

// report writes the conditions that follow from a plan. It is pure but for the status.
func report(o *observation, p plan) {
	if o.refused != "" {
		o.set(sondev1.ConditionAdmitted, metav1.ConditionFalse, sondev1.ReasonNotAdmitted, o.refused)
	} else {
		o.set(sondev1.ConditionAdmitted, metav1.ConditionTrue, sondev1.ReasonAdmitted, "the operator's webhook has accepted and signed this spec")
	}
	is := func(s state) metav1.ConditionStatus {
		if p.state == s {
			return metav1.ConditionTrue
		}
		return metav1.ConditionFalse
	}
	o.set(sondev1.ConditionReady, is(ready), p.reason, p.message)
	o.set(sondev1.ConditionReconciling, is(reconciling), p.reason, p.message)
	o.set(sondev1.ConditionStalled, is(stalled), p.reason, p.message)
	for _, kind := range []string{sondev1.ConditionReleased, sondev1.ConditionRemediated} {
		if c := condition(o.collector, kind); c == nil {
			o.set(kind, metav1.ConditionUnknown, sondev1.ReasonNotReleased, "no attempt has ended yet")
		} else {
			o.set(kind, c.Status, c.Reason, c.Message) // of this generation, too
		}
	}
}

func (o *observation) set(kind string, status metav1.ConditionStatus, reason, message string) {
	apimeta.SetStatusCondition(&o.collector.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: text.OneLine(message, maxMessage),
		ObservedGeneration: o.collector.Generation, LastTransitionTime: metav1.NewTime(o.now),
	})
}

func condition(c *sondev1.Collector, kind string) *metav1.Condition {
	return apimeta.FindStatusCondition(c.Status.Conditions, kind)
}
