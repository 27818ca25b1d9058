package capture

import (
	"context"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// A pass reads which Pods the target has now. It cannot find a Pod that was created and is gone again since the pass before. The
// watch has observed that Pod, so its handler records it for the next pass (docs/adr/0016-pods-between-passes.md).

// maxDeparted bounds the Pods that are recorded for one capture. Its status lists fewer.
const maxDeparted = 5 * sondev1.MaxPodEntries

// maxAllDeparted bounds the Pods that are recorded for all captures, at some 150 bytes each. Each of a namespace's captures records the same
// Pods.
const maxAllDeparted = 50 * maxDeparted

// staleFor is longer than a cached capture lags.
const staleFor = time.Minute

// departedMessage is the message of a recorded Pod's entry.
const departedMessage = "the Pod was gone before a Job was created for it: nothing of it is in a file"

// departedPods records for each capture the Pods of its target that are gone and had no Job. It extends the cache, which has only
// Pods that exist: each replica fills it from its watch, also while it is not the leader.
type departedPods struct {
	mu    sync.Mutex
	pods  map[types.NamespacedName]map[types.UID]departedPod
	total int
}

// departedPod is a Pod that had a node and is gone.
type departedPod struct {
	name, node string
	created    time.Time
	// ran is the last time at which the Pod is known to have been there, by the manager's clock.
	ran time.Time
	// deadline is the end of its grace period; zero if it was not being deleted.
	deadline time.Time
}

// add records a Pod. If there is no room, it takes the place of the one that was gone first: of its capture, or of the capture with the
// most Pods, which is Incomplete for the others.
func (d *departedPods) add(key types.NamespacedName, uid types.UID, pod departedPod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pods == nil {
		d.pods = map[types.NamespacedName]map[types.UID]departedPod{}
	}
	if d.pods[key] == nil {
		d.pods[key] = map[types.UID]departedPod{}
	}
	if _, ok := d.pods[key][uid]; ok {
		return
	}
	switch {
	case len(d.pods[key]) >= maxDeparted:
		d.remove(key, oldest(d.pods[key]))
	case d.total >= maxAllDeparted:
		most := d.most()
		d.remove(most, oldest(d.pods[most]))
	}
	d.pods[key][uid] = pod
	d.total++
}

// remove removes a recorded Pod.
func (d *departedPods) remove(key types.NamespacedName, uid types.UID) {
	delete(d.pods[key], uid)
	d.total--
}

// most returns the capture with the most Pods.
func (d *departedPods) most() (most types.NamespacedName) {
	for key, pods := range d.pods {
		if len(pods) > len(d.pods[most]) {
			most = key
		}
	}
	return most
}

// oldest returns the Pod that was gone first.
func oldest(pods map[types.UID]departedPod) (first types.UID) {
	for uid, pod := range pods {
		if first == "" || pod.ran.Before(pods[first].ran) {
			first = uid
		}
	}
	return first
}

// since returns the Pods that ran at this time or later. A Pod whose grace period was over by then does not count.
func (d *departedPods) since(key types.NamespacedName, start time.Time) map[types.UID]departedPod {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := map[types.UID]departedPod{}
	for uid, pod := range d.pods[key] {
		if !pod.ran.Before(start) && (pod.deadline.IsZero() || pod.deadline.After(start)) {
			found[uid] = pod
		}
	}
	return found
}

// forget removes the Pods that were gone before this time.
func (d *departedPods) forget(key types.NamespacedName, before time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid, pod := range d.pods[key] {
		if pod.ran.Before(before) {
			d.remove(key, uid)
		}
	}
	if len(d.pods[key]) == 0 {
		delete(d.pods, key)
	}
}

// forgetAll removes a capture that has ended or is gone.
func (d *departedPods) forgetAll(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total -= len(d.pods[key])
	delete(d.pods, key)
}

// recording records the Pods that depart before it calls next: the pass that next wakes must find them.
func (r *Reconciler) recording(wakes target.Wakes, next handler.EventHandler) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			r.recordDeparted(ctx, wakes, nil, e.Object)
			next.Create(ctx, e, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.recordDeparted(ctx, wakes, e.ObjectOld, e.ObjectNew)
			next.Update(ctx, e, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.recordDeparted(ctx, wakes, e.Object, nil)
			next.Delete(ctx, e, q)
		},
		GenericFunc: next.Generic,
	}
}

// recordDeparted records a Pod that is gone by this event, for each capture that has it as a target and no Job for it. before and
// now are the Pod's states; nil if it did not, or does not, exist.
func (r *Reconciler) recordDeparted(ctx context.Context, wakes target.Wakes, before, now client.Object) {
	if before != nil && now != nil && before.GetUID() != now.GetUID() { // replaced under its name, and an event was skipped
		r.recordDeparted(ctx, wakes, before, nil)
		before = nil
	}
	r.PodWatch.Observed()
	o, ran := departs(before, now), r.Clock.Now()
	if o == nil {
		return
	}
	pod := departedPod{name: o.GetName(), node: nodeOf(o), created: o.GetCreationTimestamp().Time, ran: ran}
	if deleted := o.GetDeletionTimestamp(); deleted != nil {
		pod.deadline = deleted.Time
	}
	for _, capture := range wakes.Captures(ctx, o) {
		if before == nil {
			// Only that the Pod was created is known. A manager that starts finds Pods that ended long ago.
			start := capture.CaptureStatus().StartTime
			if pod.ran = pod.created; start == nil || pod.ran.Before(start.Time) {
				continue
			}
		}
		if !r.hasJob(ctx, capture, o) {
			r.departed.add(client.ObjectKeyFromObject(capture), o.GetUID(), pod)
		}
	}
}

// departs returns the Pod that has ended, or was deleted, by an event; nil if none has. A Pod without a node never ran, and neither
// did one that the kubelet refused: it ends without an address.
func departs(before, now client.Object) client.Object {
	switch {
	case before != nil && hasEnded(before):
		return nil // recorded when it ended
	case now == nil && nodeOf(before) != "":
		return before
	case now != nil && hasEnded(now) && nodeOf(now) != "" && addressOf(now) != "":
		return now
	default:
		return nil
	}
}

// hasJob reports whether the cache has the capture's Job for a Pod.
func (r *Reconciler) hasJob(ctx context.Context, capture sondev1.Capture, pod client.Object) bool {
	for _, name := range naming.Jobs(pod.GetName(), pod.GetUID(), capture.CaptureStatus().JobID, capture.GetUID()) {
		var job batchv1.Job
		err := r.Get(ctx, client.ObjectKey{Namespace: r.Options.Namespace, Name: name}, &job)
		if err == nil && job.Labels[sondev1.LabelUID] == string(capture.GetUID()) && job.Labels[sondev1.LabelTargetPodUID] == string(pod.GetUID()) {
			return true
		}
	}
	return false
}

// addDeparted adds the Pods that departed since the capture began and have neither an entry nor a Job.
func (r *Reconciler) addDeparted(capture sondev1.Capture, observed *observation, pods podSet) {
	key, start := client.ObjectKeyFromObject(capture), started(capture, *observed)
	if stored := capture.CaptureStatus().StartTime; stored != nil {
		r.departed.forget(key, stored.Time) // these Pods would take the places of later ones
	}
	switch {
	case capture.CaptureStatus().Phase.Final():
		r.departed.forgetAll(key)
	case start.IsZero():
		r.departed.forget(key, observed.now.Add(-staleFor)) // the cached capture may lack a start that was written before
	case !observed.admission.refused():
		for uid, departed := range r.departed.since(key, start) {
			if pods[uid] == nil {
				p := pods.get(uid)
				p.departed, p.before.Name, p.before.Node = &departed, departed.name, departed.node
			}
		}
	}
}

// Fields of a Pod that the cache keeps in its slim form, and copies of it as a whole.

func hasEnded(o client.Object) bool {
	var phase corev1.PodPhase
	switch pod := o.(type) {
	case *slim.Pod:
		phase = pod.Phase()
	case *corev1.Pod:
		phase = pod.Status.Phase
	}
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

func nodeOf(o client.Object) string {
	switch pod := o.(type) {
	case *slim.Pod:
		return pod.Node()
	case *corev1.Pod:
		return pod.Spec.NodeName
	}
	return ""
}

func addressOf(o client.Object) string {
	switch pod := o.(type) {
	case *slim.Pod:
		return pod.IP()
	case *corev1.Pod:
		return pod.Status.PodIP
	}
	return ""
}
