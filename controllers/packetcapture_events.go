package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/audit"
	"github.com/sonde-operator/sonde/internal/metrics"
	"github.com/sonde-operator/sonde/internal/outcome"
	"github.com/sonde-operator/sonde/internal/target"
)

const (
	// actionCapture is the action of all Events on captures.
	actionCapture = "Capture"
	// maxPodEvents bounds the Events of one pass: the status names all Pods.
	maxPodEvents = 10
	// maxNote is the length that the API server allows, less a little.
	maxNote = 1000
)

// announce tells what changed by Events, and writes the audit log. It is called when the status is
// written: what was told will not be told again.
func (r *PacketCaptureReconciler) announce(ctx context.Context, before, pc *sondev1.PacketCapture, seen observed) {
	log := ctrl.LoggerFrom(ctx).WithValues(audit.Requester, seen.admission.requester.Username,
		"targetNamespace", target.Namespace(pc), "target", pc.Status.Target, "captureUID", pc.UID)
	if before.Status.StartTime == nil && pc.Status.StartTime != nil {
		log.Info("Started capture", audit.Key, audit.CaptureStarted, "duration", pc.Spec.Duration, "filter", pc.Spec.Filter, "pods", pc.Status.Totals.Pods)
	}
	r.announcePods(before, pc)
	if before.Status.Phase == pc.Status.Phase {
		return
	}
	reason, note := "", ""
	if c := apimeta.FindStatusCondition(pc.Status.Conditions, sondev1.ConditionComplete); c != nil {
		reason, note = c.Reason, c.Message
	}
	eventType := corev1.EventTypeNormal
	if pc.Status.Phase == sondev1.PhaseIncomplete || pc.Status.Phase == sondev1.PhaseFailed {
		eventType = corev1.EventTypeWarning
	}
	if hasFiles(pc) && pc.Status.Phase.Final() {
		note += fmt.Sprintf("; fetch the files by: kubectl sonde download %s -n %s", pc.Name, pc.Namespace)
	}
	r.Recorder.Eventf(pc, nil, eventType, string(pc.Status.Phase), actionCapture, "%s: %s", reason, outcome.Text(note, maxNote))
	if pc.Status.Phase.Final() {
		metrics.Ended(&pc.Status)
		log.Info("Ended capture", audit.Key, audit.CaptureEnded, "phase", pc.Status.Phase, "reason", reason, "pods", pc.Status.Totals.Pods,
			"packets", pc.Status.Totals.Packets, "bytes", pc.Status.Totals.Bytes, "dropped", pc.Status.Totals.Dropped)
	}
}

// hasFiles says whether there is something to download.
func hasFiles(pc *sondev1.PacketCapture) bool {
	return slices.ContainsFunc(pc.Status.Pods, func(e sondev1.PodResult) bool { return len(e.Files) > 0 })
}

// announcePods tells of each Pod whose capture ended in trouble.
func (r *PacketCaptureReconciler) announcePods(before, pc *sondev1.PacketCapture) {
	known := map[string]bool{}
	for i := range before.Status.Pods {
		known[before.Status.Pods[i].UID] = before.Status.Pods[i].Phase.Final()
	}
	told := 0
	for i := range pc.Status.Pods {
		e := &pc.Status.Pods[i]
		if trouble(*e) != 0 || known[e.UID] || told == maxPodEvents {
			continue
		}
		told++
		r.Recorder.Eventf(pc, nil, corev1.EventTypeWarning, e.Reason, actionCapture, "Pod %s: %s: %s", e.Name, e.Phase, e.Message)
	}
}
