package capture

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/audit"
	"github.com/sonde-operator/sonde/internal/operator/eventlimit"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// maxPodEvents bounds the Events of one pass: the status names all Pods.
const maxPodEvents = 10

// recordEvents records changes of the status as Events and in the audit log. It runs after the status was written, so that no
// later pass records the same change again.
func (r *Reconciler) recordEvents(ctx context.Context, before, capture sondev1.Capture, observed observation) {
	old, status := before.CaptureStatus(), capture.CaptureStatus()
	of := ctrl.LoggerFrom(ctx).WithValues("targetNamespace", capture.Common().TargetNamespace, "target", status.Target, "captureUID", capture.GetUID())
	log := of.WithValues(audit.Requester, observed.admission.requester.Username)
	r.recordRequests(of, before, capture, observed.admission.requester.Username)
	if old.StartTime == nil && status.StartTime != nil {
		log.Info("Started capture", slices.Concat(
			[]any{audit.Key, audit.CaptureStarted, "duration", capture.Common().Duration}, r.Kind.details(capture), []any{"pods", status.Totals.Pods},
		)...)
	}
	r.recordPodEvents(before, capture)
	r.recordGateEvents(before, capture)
	if old.Phase == status.Phase || status.Phase == sondev1.PhaseEnding {
		return
	}
	reason, note := "", ""
	if c := apimeta.FindStatusCondition(status.Conditions, sondev1.ConditionComplete); c != nil {
		reason, note = c.Reason, c.Message
	}
	eventType := corev1.EventTypeNormal
	if status.Phase == sondev1.PhaseIncomplete || status.Phase == sondev1.PhaseFailed {
		eventType = corev1.EventTypeWarning
	}
	if hasFiles(capture) && status.Phase.Final() {
		note += fmt.Sprintf("; fetch the files by: kubectl sonde download %s -n %s", r.Kind.Argument(capture.GetName()), capture.GetNamespace())
	}
	r.Recorder.Eventf(capture, nil, eventType, string(status.Phase), r.Kind.action, "%s", text.OneLine(reason+": "+note, eventlimit.MaxNote))
	if status.Phase.Final() {
		metrics.Ended(status)
		log.Info("Ended capture", audit.Key, audit.CaptureEnded, "phase", status.Phase, "reason", reason, "pods", status.Totals.Pods,
			"packets", status.Totals.Packets, "bytes", status.Totals.Bytes, "dropped", status.Totals.Dropped, "events", status.Totals.Events, "lost", status.Totals.Lost)
	}
}

// recordRequests records a new capture that was admitted, and one that was stopped, with the users whose names the webhook has
// signed. The webhook's own records are claims of its callers.
func (r *Reconciler) recordRequests(log logr.Logger, before, capture sondev1.Capture, requester string) {
	old, now := before.CaptureStatus().Phase, capture.CaptureStatus().Phase
	if old == "" && now != "" && requester != "" { // a pass that failed has left the phase empty, and others follow
		log.Info("Observed new capture", audit.Key, audit.RequestAdmitted, audit.Requester, requester)
	}
	if capture.Common().Stop && !over(old) && over(now) {
		log.Info("Observed stop of capture", audit.Key, audit.StopRequested, audit.Requester, r.Stamps.StoppedBy(capture))
	}
}

// over reports whether a capture in this phase has ended or is ending.
func over(p sondev1.Phase) bool { return p == sondev1.PhaseEnding || p.Final() }

// hasFiles reports whether the capture has files to download.
func hasFiles(capture sondev1.Capture) bool {
	return slices.ContainsFunc(capture.CaptureStatus().Pods, func(e sondev1.PodResult) bool { return len(e.Files) > 0 })
}

// recordPodEvents records each Pod whose capture newly failed or is incomplete.
func (r *Reconciler) recordPodEvents(before, capture sondev1.Capture) {
	known := map[string]bool{}
	for i := range before.CaptureStatus().Pods {
		known[before.CaptureStatus().Pods[i].UID] = before.CaptureStatus().Pods[i].Phase.Final()
	}
	sent := 0
	for i := range capture.CaptureStatus().Pods {
		e := &capture.CaptureStatus().Pods[i]
		if sortRank(*e) != 0 || known[e.UID] || sent == maxPodEvents {
			continue
		}
		sent++
		r.Recorder.Eventf(capture, nil, corev1.EventTypeWarning, e.Reason, r.Kind.action, "Pod %s: %s: %s", e.Name, e.Phase, e.Message)
	}
}
