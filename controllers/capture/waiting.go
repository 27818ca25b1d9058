package capture

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// A capture that waits for a ceiling is woken when room becomes free: when a capture of its namespace has ended, or when a probe,
// or a Job that kept its result, is gone from the node of one of its Pods. For room for Jobs in its namespace it looks each queueDelay.

// mostWoken bounds the captures that one free place on a node wakes. Only one takes it.
const mostWoken = 4

// captureEnded selects the end of a capture.
func captureEnded() predicate.Predicate {
	final := func(o client.Object) bool {
		c, ok := o.(sondev1.Capture)
		return !ok || c.CaptureStatus().Phase.Final()
	}
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return !final(e.ObjectOld) && final(e.ObjectNew) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return !final(e.Object) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// probeGone selects the end of a probe, by its Pod or its Job.
func probeGone(operatorNamespace string) predicate.Predicate {
	probeRuns := func(o client.Object) bool { return o.GetNamespace() == operatorNamespace && probeRuns(o) }
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return probeRuns(e.ObjectOld) && !probeRuns(e.ObjectNew) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return probeRuns(e.Object) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// probeRuns reports whether a Pod or Job of the operator's namespace is an agent's and takes a place on its node.
func probeRuns(o client.Object) bool {
	if o.GetLabels()[sondev1.LabelUID] == "" {
		return false
	}
	switch o := o.(type) {
	case *slim.Pod:
		return !probeEnded(o.Expand())
	case *corev1.Pod:
		return !probeEnded(o)
	case *slim.Job:
		return !target.JobEnded(o.Expand())
	case *batchv1.Job:
		return !target.JobEnded(o)
	default:
		return false
	}
}

// queuedBehind wakes the captures that may begin now that one of their namespace has ended: as many as there is room for.
func (r *Reconciler) queuedBehind(ctx context.Context, ended client.Object) []reconcile.Request {
	if c, ok := ended.(sondev1.Capture); ok && c.KindName() == r.Kind.Name {
		r.departed.forgetAll(client.ObjectKeyFromObject(ended))
	}
	all, ok := r.unfinished(ctx, client.InNamespace(ended.GetNamespace()))
	if !ok || r.Ceilings.CapturesPerNamespace == 0 {
		return nil
	}
	free := r.Ceilings.CapturesPerNamespace
	for _, c := range all {
		if c.CaptureStatus().StartTime != nil {
			free--
		}
	}
	var requests []reconcile.Request
	for _, c := range all {
		if c.CaptureStatus().StartTime != nil {
			continue
		}
		if free--; free < 0 {
			break
		}
		requests = r.appendOwn(requests, c)
	}
	return requests
}

// queuedForNode wakes captures that wait for a place on the node of a probe, or of a kept result, that is gone.
func (r *Reconciler) queuedForNode(ctx context.Context, gone client.Object) []reconcile.Request {
	node := gone.GetAnnotations()[sondev1.AnnotationTargetNode]
	if pod, ok := gone.(*slim.Pod); ok {
		node = pod.Node()
	}
	if !r.limitsNodes() || node == "" {
		return nil
	}
	all, _ := r.unfinished(ctx)
	var requests []reconcile.Request
	for _, reason := range nodeReasons {
		for _, c := range r.oldestFor(ctx, all, placeOf{node, reason}) {
			requests = r.appendOwn(requests, c)
		}
	}
	return requests
}

// oldestFor selects captures that wait for such a place: the oldest one of each namespace, the namespaces that have the fewest
// first.
func (r *Reconciler) oldestFor(ctx context.Context, all []sondev1.Capture, at placeOf) []sondev1.Capture {
	var oldest []sondev1.Capture
	namespaces := map[string]bool{}
	for _, c := range all {
		waits := func(e sondev1.PodResult) bool { return waitsFor(e, at) }
		if !namespaces[c.GetNamespace()] && slices.ContainsFunc(c.CaptureStatus().Pods, waits) {
			namespaces[c.GetNamespace()] = true
			oldest = append(oldest, c)
		}
	}
	if len(oldest) > mostWoken {
		captures, err := r.captures(ctx)
		var counts map[placeOf]map[string]int
		if err == nil {
			counts, err = r.jobsOn(ctx, at.node, takesByUID(captures))
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Counting probes for captures that wait")
		}
		slices.SortStableFunc(oldest, func(a, b sondev1.Capture) int { return counts[at][a.GetNamespace()] - counts[at][b.GetNamespace()] })
		oldest = oldest[:mostWoken]
	}
	return oldest
}

// unfinished returns the captures of all kinds that have not ended, the oldest first.
func (r *Reconciler) unfinished(ctx context.Context, selectors ...client.ListOption) ([]sondev1.Capture, bool) {
	all, err := r.captures(ctx, selectors...)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing captures that wait")
		return nil, false
	}
	all = slices.DeleteFunc(all, func(c sondev1.Capture) bool {
		return c.CaptureStatus().Phase.Final() || !c.GetDeletionTimestamp().IsZero()
	})
	slices.SortFunc(all, func(a, b sondev1.Capture) int {
		if older(a, b) {
			return -1
		}
		return 1
	})
	return all, true
}

// appendOwn appends the request of a capture of this reconciler's kind. The other kind's reconciler wakes the others.
func (r *Reconciler) appendOwn(requests []reconcile.Request, c sondev1.Capture) []reconcile.Request {
	if c.KindName() != r.Kind.Name {
		return requests
	}
	return append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
}
