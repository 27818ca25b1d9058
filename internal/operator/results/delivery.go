package results

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/audit"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Outcomes of a delivery, for the audit record and the Event.
const (
	outcomeWhole       = "whole"
	outcomeRest        = "rest" // from some byte to the end
	outcomePart        = "part" // a range before the end
	outcomeLive        = "live" // lines or packets until the capture had ended
	outcomeInterrupted = "interrupted"
	outcomeBrokenOff   = "broken off"
)

// delivery of a file, or of a part of it, to a user.
type delivery struct {
	h         *Handler
	s         session
	pod, name string
	from      int64
	log       logr.Logger
}

func (h *Handler) delivery(r *http.Request, s session, agent *corev1.Pod, name string, from int64) delivery {
	pod := agent.Annotations[sondev1.AnnotationTargetPod]
	log := ctrl.LoggerFrom(r.Context()).WithValues("captureUID", s.capture.GetUID(), "targetNamespace", s.capture.Common().TargetNamespace, "pod", pod, "file", name, "from", from)
	return delivery{h: h, s: s, pod: pod, name: name, from: from, log: log}
}

// end leaves the record of n bytes, with outcome if there is no error.
func (d delivery) end(ctx context.Context, n int64, err error, outcome string) error {
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	log := d.log
	if err != nil {
		outcome = outcomeBrokenOff
		if interrupted(err) {
			outcome = outcomeInterrupted
		}
		log = log.WithValues("cause", err.Error())
	}
	log.Info("Served result", audit.Key, audit.ResultServed, "bytes", n, "outcome", outcome)
	d.record(n, outcome)
	if err != nil {
		return fmt.Errorf("%w after %d bytes: %w", errBroken, n, err)
	}
	return nil
}

// record writes the Event. The recorder merges Events that differ in their note alone, and keeps the first note. So the
// related object differs as the note does: an Event with a count means that this very part was read so often.
func (d delivery) record(n int64, outcome string) {
	event := func(related runtime.Object, note string, args ...any) {
		d.h.Recorder.Eventf(d.s.capture, related, corev1.EventTypeNormal, "ResultServed", "Serve", note, args...)
	}
	if !d.h.events.Allow(d.s.capture.Common().TargetNamespace) {
		event(nil, "More results were read than there are Events of: the audit record %s in the manager's log has each", audit.ResultServed)
		return
	}
	part := fmt.Sprintf("%d bytes", n)
	if d.from > 0 {
		part += fmt.Sprintf(" from byte %d on", d.from)
	}
	event(&corev1.ObjectReference{
		APIVersion: sondev1.GroupVersion.String(), Kind: stamp.KindResultAccess,
		Namespace: d.s.access.Namespace, Name: d.s.access.Name, UID: d.s.access.UID,
		FieldPath: fmt.Sprintf("%s[%d:%d] %s", d.name, d.from, d.from+n, outcome),
	}, "%s read %s of %s of Pod %s (%s)", shortName(d.s.who.Username), part, d.name, d.pod, outcome)
}

// shortName bounds a user's name in an Event.
func shortName(name string) string { return text.Ellipsis(name, 128) }
