package gate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// TraceLookup finds gates in the Traces of this cluster.
type TraceLookup struct {
	// Cache of Traces and ReplicaSets, with target.IndexFields. Every replica answers from its own, whether it leads or not.
	// The leader publishes its decisions in the condition Gating of the Traces.
	Cache client.Reader
	// Live reads a ReplicaSet that the cache does not have yet: it is created a moment before its first Pod.
	Live client.Reader
	// Key of the stamps.
	Key []byte
	// Image of the gate, which is the operator's own.
	Image string
	// Ceilings bound the duration of a Trace that names none.
	Ceilings ceiling.Limits
	Clock    clock.PassiveClock
}

// Find implements Lookup. If several Traces target the Pod, the oldest gates it. The others trace it as soon as they are
// attached.
func (l *TraceLookup) Find(ctx context.Context, namespace string, pod *metav1.ObjectMeta) (gate.Options, bool, error) {
	traces, err := l.live(ctx, namespace)
	if err != nil || len(traces) == 0 {
		return gate.Options{}, false, err
	}
	names, err := l.names(ctx, namespace, pod)
	if err != nil {
		return gate.Options{}, false, err
	}
	var first *sondev1.Trace
	for _, t := range traces {
		if len(names) > 0 && target.Matches(t.Common().Target, names) && (first == nil || gate.Before(t, first)) {
			first = t
		}
	}
	if first == nil {
		return gate.Options{}, false, nil
	}
	o, err := l.options(first)
	return o, err == nil, err
}

// live returns the Traces that gate in a namespace. It verifies their stamps: a user who can write a status, but no spec,
// cannot have Pods gated.
func (l *TraceLookup) live(ctx context.Context, namespace string) ([]*sondev1.Trace, error) {
	var all sondev1.TraceList
	if err := l.Cache.List(ctx, &all, client.MatchingFields{target.IndexTargetNamespace: namespace}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list traces: %w", err)
	}
	var gating []*sondev1.Trace
	for i := range all.Items {
		if t := &all.Items[i]; gate.Live(t) {
			gating = append(gating, t)
		}
	}
	if len(gating) == 0 {
		return nil, nil
	}
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := l.Cache.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return nil, fmt.Errorf("get namespace %s: %w", namespace, err)
	}
	var live []*sondev1.Trace
	for _, t := range gating {
		// A Trace in a hub outlives its target's namespace. It must not hold the Pods of a later one of this name.
		if claim, err := stamp.VerifyCapture(l.Key, t); err != nil || claim.TargetNamespaceUID != string(ns.UID) {
			continue
		}
		// Without a leader, a Trace keeps its condition Gating beyond its end. Its gates must not hold Pods for ever.
		if o, err := l.options(t); err == nil && !l.Clock.Now().Before(o.Until) {
			continue
		}
		live = append(live, t)
	}
	return live, nil
}

// names returns the targets that include the Pod.
func (l *TraceLookup) names(ctx context.Context, namespace string, pod *metav1.ObjectMeta) ([]sondev1.TargetReference, error) {
	names, err := target.Names(ctx, target.CachedSets(l.Cache), namespace, pod)
	if apierrors.IsNotFound(err) {
		names, err = target.Names(ctx, target.ListedSets(l.Live), namespace, pod)
	}
	if apierrors.IsNotFound(err) {
		return names, nil // its ReplicaSet has been deleted
	}
	return names, err
}

func (l *TraceLookup) options(t *sondev1.Trace) (gate.Options, error) {
	lasts, err := l.Ceilings.DurationOf(t.Common())
	if err != nil {
		return gate.Options{}, fmt.Errorf("spec.duration: %w", err)
	}
	return gate.OfTrace(t, l.Image, lasts)
}
