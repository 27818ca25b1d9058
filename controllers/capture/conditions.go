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

// maxConditionMessage holds a refusal whole: one by OpenShift has a sentence for each of its constraints.
const maxConditionMessage = 4096

// finding is what a condition says.
type finding struct {
	status          metav1.ConditionStatus
	reason, message string
}

// reportConditions writes all conditions of a capture that was not final before this pass.
func reportConditions(capture sondev1.Capture, seen observed, todo plan, err error) {
	set := func(conditionType string, f finding) {
		apimeta.SetStatusCondition(&capture.CaptureStatus().Conditions, metav1.Condition{
			Type: conditionType, Status: f.status, Reason: f.reason, Message: text.OneLine(f.message, maxConditionMessage), ObservedGeneration: capture.GetGeneration(),
		})
	}
	if !todo.observed {
		types := []string{sondev1.ConditionAdmitted, sondev1.ConditionTargetFound, sondev1.ConditionProbesAllowed, sondev1.ConditionCapturing, sondev1.ConditionEnded}
		if capture.Common().Gate != nil {
			types = append(types, sondev1.ConditionGating)
		}
		for _, c := range types {
			if apimeta.FindStatusCondition(capture.CaptureStatus().Conditions, c) == nil {
				set(c, finding{metav1.ConditionUnknown, sondev1.ReasonReconcileError, "not found out yet"})
			}
		}
		set(sondev1.ConditionComplete, finding{metav1.ConditionUnknown, sondev1.ReasonReconcileError, err.Error()})
		return
	}
	set(sondev1.ConditionAdmitted, admittedCondition(seen))
	set(sondev1.ConditionTargetFound, targetCondition(capture, seen))
	set(sondev1.ConditionProbesAllowed, allowedCondition(capture, seen, todo))
	set(sondev1.ConditionCapturing, capturingCondition(capture, todo))
	set(sondev1.ConditionEnded, endedCondition(capture))
	if capture.Common().Gate != nil {
		set(sondev1.ConditionGating, gatingCondition(capture, seen, todo))
	}
	if err != nil && !todo.over {
		set(sondev1.ConditionComplete, finding{metav1.ConditionUnknown, sondev1.ReasonReconcileError, err.Error()})
		return
	}
	set(sondev1.ConditionComplete, completeCondition(capture, seen, todo))
}

func admittedCondition(seen observed) finding {
	if seen.admission.refused() {
		return finding{metav1.ConditionFalse, seen.admission.reason, seen.admission.message}
	}
	return finding{metav1.ConditionTrue, sondev1.ReasonAdmitted, fmt.Sprintf("requested by %q", seen.admission.requester.Username)}
}

func targetCondition(capture sondev1.Capture, seen observed) finding {
	common := capture.Common()
	ref, namespace := common.Target, common.TargetNamespace
	switch {
	case seen.admission.refused():
		return finding{metav1.ConditionUnknown, seen.admission.reason, "not looked up"}
	case !seen.workload.Found:
		message := fmt.Sprintf("there is no %s %q in namespace %q", ref.Kind, ref.Name, namespace)
		return finding{metav1.ConditionFalse, sondev1.ReasonTargetNotFound, message}
	case len(seen.workload.Pods) == 0:
		message := fmt.Sprintf("%s %q in namespace %q has no Pod that runs or is starting", ref.Kind, ref.Name, namespace)
		return finding{metav1.ConditionFalse, sondev1.ReasonNoPods, message}
	default:
		message := fmt.Sprintf("%s %q in namespace %q has %d Pods", ref.Kind, ref.Name, namespace, len(seen.workload.Pods))
		return finding{metav1.ConditionTrue, sondev1.ReasonTargetFound, message}
	}
}

// allowedCondition quotes the refusal whole, for which a Pod's entry has no room.
func allowedCondition(capture sondev1.Capture, seen observed, todo plan) finding {
	refused := slices.IndexFunc(todo.entries, func(e sondev1.PodResult) bool { return e.Reason == sondev1.ReasonJobRefused })
	attached := slices.IndexFunc(todo.entries, func(e sondev1.PodResult) bool {
		return e.Phase != sondev1.PhasePending && e.Phase != sondev1.PhaseFailed
	})
	switch {
	case refused < 0 && attached < 0:
		return finding{metav1.ConditionUnknown, sondev1.ReasonPending, "no probe has run yet"}
	case refused < 0:
		return finding{metav1.ConditionTrue, sondev1.ReasonAdmitted, "probes run"}
	}
	for _, p := range seen.pods {
		if p.refusal != "" {
			return finding{metav1.ConditionFalse, sondev1.ReasonJobRefused, outcome.Refused(p.refusal, p.job.GetNamespace())}
		}
	}
	// It was read in an earlier pass, and is not read again.
	before := apimeta.FindStatusCondition(capture.CaptureStatus().Conditions, sondev1.ConditionProbesAllowed)
	if before != nil && before.Status == metav1.ConditionFalse && before.Reason == sondev1.ReasonJobRefused {
		return finding{before.Status, before.Reason, before.Message}
	}
	return finding{metav1.ConditionFalse, sondev1.ReasonJobRefused, todo.entries[refused].Message}
}

func capturingCondition(capture sondev1.Capture, todo plan) finding {
	attached, pending := count(todo.entries, sondev1.PhaseCapturing), count(todo.entries, sondev1.PhasePending)
	switch {
	case capture.CaptureStatus().Phase.Final():
		return finding{metav1.ConditionFalse, sondev1.ReasonEnded, "the capture is over"}
	case attached > 0 && pending == 0:
		return finding{metav1.ConditionTrue, sondev1.ReasonCapturing, fmt.Sprintf("a probe is attached to each of %d Pods", attached)}
	}
	message := fmt.Sprintf("a probe is attached to %d of %d Pods", attached, attached+pending)
	if attached+pending == 0 && len(todo.entries) > 0 {
		message = fmt.Sprintf("all Pods that there were have ended, %d of them without a result; one that joins is captured", count(todo.entries, sondev1.PhaseFailed))
	}
	if i := slices.IndexFunc(todo.entries, waits); i >= 0 {
		e := &todo.entries[i]
		return finding{metav1.ConditionFalse, e.Reason, fmt.Sprintf("%s; Pod %s %s", message, e.Name, e.Message)}
	}
	return finding{metav1.ConditionFalse, sondev1.ReasonPending, message}
}

// endedCondition is for those who wait for the end, whatever comes of the capture.
func endedCondition(capture sondev1.Capture) finding {
	switch phase := capture.CaptureStatus().Phase; phase {
	case sondev1.PhaseCompleted, sondev1.PhaseIncomplete, sondev1.PhaseFailed:
		return finding{metav1.ConditionTrue, sondev1.ReasonEnded, fmt.Sprintf("the capture is %s", phase)}
	case sondev1.PhaseCapturing:
		return finding{metav1.ConditionFalse, sondev1.ReasonCapturing, "the capture goes on"}
	default:
		return finding{metav1.ConditionFalse, sondev1.ReasonPending, "the capture has not begun"}
	}
}

func completeCondition(capture sondev1.Capture, seen observed, todo plan) finding {
	switch capture.CaptureStatus().Phase {
	case sondev1.PhaseCompleted:
		of, _ := kind.CaptureOf(capture.KindName())
		message := fmt.Sprintf("%d Pods, %s, none unaccounted for", len(todo.entries), of.Count(capture.CaptureStatus().Totals))
		return finding{metav1.ConditionTrue, common(todo.entries, trouble(todo.entries[0]), sondev1.ReasonEnded), message}
	case sondev1.PhaseIncomplete, sondev1.PhaseFailed:
		reason, message := missing(capture, seen, todo)
		return finding{metav1.ConditionFalse, reason, message}
	case sondev1.PhaseCapturing:
		return finding{metav1.ConditionUnknown, sondev1.ReasonCapturing, "until " + todo.start.Add(seen.duration).UTC().Format(time.RFC3339)}
	default:
		return finding{metav1.ConditionUnknown, sondev1.ReasonPending, "not all probes are attached yet"}
	}
}

// missing says why a capture is not whole.
func missing(capture sondev1.Capture, seen observed, todo plan) (reason, message string) {
	found := targetCondition(capture, seen)
	switch {
	case seen.admission.refused():
		return seen.admission.reason, seen.admission.message
	case seen.compiled.unusable.reason != "":
		return seen.compiled.unusable.reason, seen.compiled.unusable.message
	case len(todo.entries) == 0 && capture.Common().Stop:
		return sondev1.ReasonStopped, "stopped before a Pod was captured"
	case len(todo.entries) == 0 && found.status != metav1.ConditionTrue:
		return found.reason, found.message + "; none appeared within " + targetTimeout.String()
	case len(todo.entries) == 0:
		return sondev1.ReasonNoPods, "no Pod of the target was captured"
	}
	totals := capture.CaptureStatus().Totals
	first := todo.entries[0] // those with trouble come first
	message = fmt.Sprintf("%d of %d Pods are not complete; the first is %s", totals.Incomplete+totals.Failed, len(todo.entries), first.Name)
	if first.Message != "" {
		message += ": " + first.Message
	}
	return common(todo.entries, 0, sondev1.ReasonSomePodsIncomplete), message
}

// common is the reason that all entries of this rank share, or otherwise.
func common(entries []sondev1.PodResult, rank int, otherwise string) string {
	reason := ""
	for i := range entries {
		if trouble(entries[i]) != rank {
			continue
		}
		if reason != "" && entries[i].Reason != reason {
			return otherwise
		}
		reason = entries[i].Reason
	}
	return cmp.Or(reason, otherwise)
}
