package capture

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// observeCause reads live whether a probe has ended for the cause that it claims: another replica may have asked it to end, and the
// cache may lag.
func (r *Reconciler) observeCause(ctx context.Context, capture sondev1.Capture, observed *observation, p *podState, claimed outcome.Cause) error {
	switch {
	case claimed == outcome.CausePod && p.absent && p.job != nil && observed.now.After(p.job.GetCreationTimestamp().Add(staleFor)):
		// The cache had the Pod when the Job was created, so it was deleted. Unlisted Pods would be read again in each pass.
		return nil
	case claimed == outcome.CausePod:
		return r.observeLeaving(ctx, r.Live, capture, p)
	case claimed == outcome.CauseStop && !capture.Common().Stop:
		return r.upToDate(ctx, capture)
	case claimed == outcome.CauseStop && observed.stop == nil:
		return r.observeStop(ctx, capture, observed)
	default:
		return nil
	}
}

// observeLeaving reads whether a Pod has ended, does not exist any more, or is being deleted. The API server does not tell when a Pod
// was deleted that does not exist any more.
func (r *Reconciler) observeLeaving(ctx context.Context, reader client.Reader, capture sondev1.Capture, p *podState) error {
	var pod corev1.Pod
	err := reader.Get(ctx, client.ObjectKey{Namespace: capture.Common().TargetNamespace, Name: p.before.Name}, &pod)
	p.absent = gone.Is(err) || err == nil && pod.UID != p.uid
	switch {
	case p.absent:
		p.gone, p.goneAt = true, time.Time{}
	case err != nil:
		return fmt.Errorf("get target pod %s: %w", p.before.Name, err)
	case !target.Live(&pod):
		p.gone, p.goneAt = true, endOf(&pod)
	default:
		p.gone, p.leaving, p.leavingAt = false, pod.DeletionTimestamp != nil, deletedAt(&pod)
		p.onNode = r.Kind.OnNode(&pod.Spec) // its probe goes on, and still needs the right on nodes
	}
	return nil
}

// leaves returns whether and since when the Pod is leaving its node.
func (p *podState) leaves() outcome.Event {
	if p.gone {
		return outcome.Event{Happened: true, At: p.goneAt}
	}
	return outcome.Event{Happened: p.leaving, At: p.leavingAt}
}

// endOf returns when the last container of a Pod ended, by its node's clock; zero if the status does not say so.
func endOf(pod *corev1.Pod) time.Time {
	var end time.Time
	for i := range pod.Status.ContainerStatuses {
		t := pod.Status.ContainerStatuses[i].State.Terminated
		if t == nil || t.FinishedAt.IsZero() {
			return time.Time{}
		}
		if t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	return end
}

// deletedAt returns when the deletion of a Pod was requested; zero if it was not. The deletionTimestamp is the end of the grace period.
func deletedAt(pod *corev1.Pod) time.Time {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return time.Time{}
	}
	return pod.DeletionTimestamp.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
}

// observeStop reads when spec.stop was set.
func (r *Reconciler) observeStop(ctx context.Context, capture sondev1.Capture, observed *observation) error {
	metadata, err := r.metadataOf(ctx, capture)
	if gone.Ignore(err) != nil {
		return fmt.Errorf("read when the capture was stopped: %w", err)
	}
	observed.stop = &outcome.Event{Happened: true}
	if err == nil && metadata.UID == capture.GetUID() {
		observed.stop.At = stoppedAt(metadata.ManagedFields)
	}
	return nil
}

// ownAnnotations are set by the webhook when a capture is created or stopped, and change at no other time.
var ownAnnotations = []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp, sondev1.AnnotationStoppedBy}

// stoppedAt returns when spec.stop was set, by the record that the API server keeps of who wrote which field. An entry has the time of
// its writer's last change. So the time is known only if the writer owns nothing that can change after the stop: zero if it does, and
// if several writers own the field.
func stoppedAt(entries []metav1.ManagedFieldsEntry) time.Time {
	var at time.Time
	owners := 0
	for i := range entries {
		e := &entries[i]
		if e.Subresource != "" || e.FieldsV1 == nil || e.Time == nil {
			continue
		}
		stops, only := ownsStop(e.FieldsV1.GetRawBytes())
		if !stops {
			continue
		}
		if owners++; owners > 1 || !only {
			return time.Time{}
		}
		at = e.Time.Time
	}
	return at
}

// ownsStop reports whether a writer owns spec.stop, and whether it owns nothing that can change after the stop: all other fields of a
// spec are immutable.
func ownsStop(raw []byte) (stops, only bool) {
	var fields map[string]map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return false, false
	}
	_, stops = fields["f:spec"]["f:stop"]
	var annotations map[string]json.RawMessage
	for name, of := range fields["f:metadata"] {
		switch {
		case name == "f:generateName":
		case name != "f:annotations", json.Unmarshal(of, &annotations) != nil:
			return stops, false
		}
	}
	for name := range annotations {
		if name != "." && !slices.ContainsFunc(ownAnnotations, func(own string) bool { return name == "f:"+own }) {
			return stops, false
		}
	}
	for name := range fields {
		if name != "f:spec" && name != "f:metadata" {
			return stops, false
		}
	}
	return stops, true
}
