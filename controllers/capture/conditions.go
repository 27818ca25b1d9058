package capture

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// maxConditionMessage has room for a whole refusal: OpenShift writes a sentence for each of its constraints.
const maxConditionMessage = 4096

// finding is the content of a condition.
type finding struct {
	status          metav1.ConditionStatus
	reason, message string
}

// reportConditions writes all conditions of a capture that was not final before this pass.
func reportConditions(capture sondev1.Capture, observed observation, planned plan, err error) {
	set := func(conditionType string, f finding) {
		apimeta.SetStatusCondition(&capture.CaptureStatus().Conditions, metav1.Condition{
			Type: conditionType, Status: f.status, Reason: f.reason, Message: text.OneLine(f.message, maxConditionMessage),
			ObservedGeneration: capture.GetGeneration(), LastTransitionTime: metav1.NewTime(observed.now).Rfc3339Copy(),
		})
	}
	if !planned.valid {
		types := []string{sondev1.ConditionAdmitted, sondev1.ConditionTargetFound, sondev1.ConditionProbesAllowed, sondev1.ConditionCapturing, sondev1.ConditionEnded}
		if capture.Common().Gate != nil {
			types = append(types, sondev1.ConditionGating)
		}
		for _, c := range types {
			if apimeta.FindStatusCondition(capture.CaptureStatus().Conditions, c) == nil {
				set(c, finding{metav1.ConditionUnknown, sondev1.ReasonReconcileError, "not known yet"})
			}
		}
		set(sondev1.ConditionComplete, finding{metav1.ConditionUnknown, sondev1.ReasonReconcileError, err.Error()})
		return
	}
	set(sondev1.ConditionAdmitted, admittedCondition(observed))
	set(sondev1.ConditionTargetFound, targetCondition(capture, observed))
	set(sondev1.ConditionProbesAllowed, allowedCondition(capture, observed, planned))
	set(sondev1.ConditionCapturing, capturingCondition(capture, planned))
	set(sondev1.ConditionEnded, endedCondition(capture))
	if capture.Common().Gate != nil {
		set(sondev1.ConditionGating, gatingCondition(capture, observed, planned))
		if c, status := gatingOf(capture), capture.CaptureStatus(); status.GatedFrom == nil && c.Status == metav1.ConditionTrue {
			status.GatedFrom = c.LastTransitionTime.DeepCopy()
		}
	}
	if err != nil && !planned.over {
		set(sondev1.ConditionComplete, finding{metav1.ConditionUnknown, sondev1.ReasonReconcileError, err.Error()})
		return
	}
	set(sondev1.ConditionComplete, completeCondition(capture, observed, planned))
}

func admittedCondition(observed observation) finding {
	if observed.admission.refused() {
		return finding{metav1.ConditionFalse, observed.admission.reason, observed.admission.message}
	}
	return finding{metav1.ConditionTrue, sondev1.ReasonAdmitted, fmt.Sprintf("requested by %q", observed.admission.requester.Username)}
}

func targetCondition(capture sondev1.Capture, observed observation) finding {
	common := capture.Common()
	ref, namespace := common.Target, common.TargetNamespace
	pods := len(observed.workload.Pods) + len(observed.workload.Former)
	switch {
	case observed.admission.refused():
		return finding{metav1.ConditionUnknown, observed.admission.reason, "not read"}
	case !observed.workload.Found:
		message := fmt.Sprintf("there is no %s %q in namespace %q", ref.Kind, ref.Name, namespace)
		return finding{metav1.ConditionFalse, sondev1.ReasonTargetNotFound, message}
	case pods == 0:
		message := fmt.Sprintf("%s %q in namespace %q has no Pod that runs or is starting", ref.Kind, ref.Name, namespace)
		return finding{metav1.ConditionFalse, sondev1.ReasonNoPods, message}
	default:
		message := fmt.Sprintf("%s %q in namespace %q has %d Pods", ref.Kind, ref.Name, namespace, pods)
		if n := observed.overdue(); n > 0 {
			message += fmt.Sprintf("; %d of them should have ended already, and are not captured unless they were before", n)
		}
		return finding{metav1.ConditionTrue, sondev1.ReasonTargetFound, message}
	}
}

// allowedCondition quotes the whole refusal; a Pod's entry has no room for it.
func allowedCondition(capture sondev1.Capture, observed observation, planned plan) finding {
	refused := slices.IndexFunc(planned.entries, func(e sondev1.PodResult) bool { return e.Reason == sondev1.ReasonJobRefused })
	attached := slices.IndexFunc(planned.entries, func(e sondev1.PodResult) bool {
		return e.Phase != sondev1.PhasePending && e.Phase != sondev1.PhaseFailed
	})
	failed := slices.IndexFunc(planned.entries, func(e sondev1.PodResult) bool {
		return e.Phase == sondev1.PhasePending && e.Reason == sondev1.ReasonReconcileError
	})
	switch {
	case refused < 0 && attached < 0 && failed >= 0: // its time bounds how long the operator tries (triesToStart)
		return finding{metav1.ConditionFalse, sondev1.ReasonReconcileError, planned.entries[failed].Message}
	case refused < 0 && attached < 0:
		return finding{metav1.ConditionUnknown, sondev1.ReasonPending, "no probe has run yet"}
	case refused < 0:
		return finding{metav1.ConditionTrue, sondev1.ReasonAdmitted, "probes run"}
	}
	for _, p := range observed.pods {
		if p.refusal != "" {
			return finding{metav1.ConditionFalse, sondev1.ReasonJobRefused, outcome.Refused(p.refusal, p.job.GetNamespace())}
		}
	}
	// An earlier pass read the refusal, which is not read twice.
	before := apimeta.FindStatusCondition(capture.CaptureStatus().Conditions, sondev1.ConditionProbesAllowed)
	if before != nil && before.Status == metav1.ConditionFalse && before.Reason == sondev1.ReasonJobRefused {
		return finding{before.Status, before.Reason, before.Message}
	}
	return finding{metav1.ConditionFalse, sondev1.ReasonJobRefused, planned.entries[refused].Message}
}

func capturingCondition(capture sondev1.Capture, planned plan) finding {
	attached, pending := count(planned.entries, sondev1.PhaseCapturing), count(planned.entries, sondev1.PhasePending)
	switch {
	case capture.CaptureStatus().Phase.Final():
		return finding{metav1.ConditionFalse, sondev1.ReasonEnded, "the capture is over"}
	case capture.CaptureStatus().Phase == sondev1.PhaseEnding:
		return finding{metav1.ConditionFalse, sondev1.ReasonEnding, endingMessage(planned, attached+pending)}
	case attached > 0 && pending == 0:
		return attachedCondition(planned, attached)
	}
	message := fmt.Sprintf("a probe is attached to %d of %d Pods", attached, attached+pending)
	if attached+pending == 0 && len(planned.entries) > 0 {
		message = fmt.Sprintf("all Pods so far have ended, %d of them without a result; a Pod that joins later is captured", count(planned.entries, sondev1.PhaseFailed))
	}
	if i := slices.IndexFunc(planned.entries, isQueued); i >= 0 {
		e := &planned.entries[i]
		return finding{metav1.ConditionFalse, e.Reason, fmt.Sprintf("%s; Pod %s %s", message, e.Name, e.Message)}
	}
	return finding{metav1.ConditionFalse, sondev1.ReasonPending, message}
}

func endingMessage(planned plan, left int) string {
	return fmt.Sprintf("no Pod joins after %s; the results of %d Pods are awaited", planned.end.UTC().Format(time.RFC3339), left)
}

// attachedCondition names a Pod that lacks an interface.
func attachedCondition(planned plan, attached int) finding {
	message := fmt.Sprintf("a probe is attached to each of %d Pods", attached)
	if i := slices.IndexFunc(planned.entries, func(e sondev1.PodResult) bool { return e.Reason == sondev1.ReasonInterfaceNotFound }); i >= 0 {
		e := &planned.entries[i]
		return finding{metav1.ConditionTrue, e.Reason, fmt.Sprintf("%s; Pod %s awaits an interface: %s", message, e.Name, e.Message)}
	}
	return finding{metav1.ConditionTrue, sondev1.ReasonCapturing, message}
}

// endedCondition lets clients wait for the end of a capture, however it ends.
func endedCondition(capture sondev1.Capture) finding {
	switch phase := capture.CaptureStatus().Phase; phase {
	case sondev1.PhaseCompleted, sondev1.PhaseIncomplete, sondev1.PhaseFailed:
		return finding{metav1.ConditionTrue, sondev1.ReasonEnded, fmt.Sprintf("the capture is %s", phase)}
	case sondev1.PhaseCapturing:
		return finding{metav1.ConditionFalse, sondev1.ReasonCapturing, "the capture is running"}
	case sondev1.PhaseEnding:
		return finding{metav1.ConditionFalse, sondev1.ReasonEnding, "the results of the last Pods are awaited"}
	default:
		return finding{metav1.ConditionFalse, sondev1.ReasonPending, "the capture has not begun"}
	}
}

func completeCondition(capture sondev1.Capture, observed observation, planned plan) finding {
	switch capture.CaptureStatus().Phase {
	case sondev1.PhaseCompleted:
		k, _ := kind.CaptureOf(capture.KindName())
		message := fmt.Sprintf("%d Pods, %s, none unaccounted for%s", len(planned.entries), k.Count(capture.CaptureStatus().Totals), unwatchedNote(capture))
		return finding{metav1.ConditionTrue, commonReason(planned.entries, sortRank(planned.entries[0]), sondev1.ReasonEnded), message}
	case sondev1.PhaseIncomplete, sondev1.PhaseFailed:
		reason, message := incompleteReason(capture, observed, planned)
		return finding{metav1.ConditionFalse, reason, message + unwatchedNote(capture)}
	case sondev1.PhaseCapturing:
		return finding{metav1.ConditionUnknown, sondev1.ReasonCapturing, "until " + planned.end.UTC().Format(time.RFC3339)}
	case sondev1.PhaseEnding:
		return finding{metav1.ConditionUnknown, sondev1.ReasonEnding, endingMessage(planned, count(planned.entries, sondev1.PhaseCapturing)+count(planned.entries, sondev1.PhasePending))}
	default:
		return finding{metav1.ConditionUnknown, sondev1.ReasonPending, "not all probes are attached yet"}
	}
}

// incompleteReason says why a capture is not complete.
func incompleteReason(capture sondev1.Capture, observed observation, planned plan) (reason, message string) {
	found := targetCondition(capture, observed)
	switch {
	case observed.admission.refused():
		return observed.admission.reason, observed.admission.message
	case observed.compiled.unusable.reason != "":
		return observed.compiled.unusable.reason, observed.compiled.unusable.message
	case len(planned.entries) == 0 && capture.Common().Stop:
		return sondev1.ReasonStopped, "stopped before a Pod was captured"
	case len(planned.entries) == 0 && found.status != metav1.ConditionTrue:
		return found.reason, found.message + "; none appeared within " + targetTimeout.String()
	case len(planned.entries) == 0:
		return sondev1.ReasonNoPods, "no Pod of the target was captured"
	}
	totals := capture.CaptureStatus().Totals
	first := planned.entries[0] // incomplete and failed entries come first
	message = fmt.Sprintf("%d of %d Pods are not complete; the first is %s", totals.Incomplete+totals.Failed, len(planned.entries), first.Name)
	if first.Message != "" {
		message += ": " + first.Message
	}
	return commonReason(planned.entries, 0, sondev1.ReasonSomePodsIncomplete), message
}

// commonReason is the reason that all entries of this rank share, or fallback.
func commonReason(entries []sondev1.PodResult, rank int, fallback string) string {
	reason := ""
	for i := range entries {
		if sortRank(entries[i]) != rank {
			continue
		}
		if reason != "" && entries[i].Reason != reason {
			return fallback
		}
		reason = entries[i].Reason
	}
	return cmp.Or(reason, fallback)
}
