package webhooks

import (
	"context"
	"fmt"

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

// TraceGates are the Gates of this cluster's Traces.
type TraceGates struct {
	// Cache of Traces and ReplicaSets, with target.IndexFields. It is that of every replica, the leader's or not: what the
	// leader knows beyond it stands in the Traces' condition Gating.
	Cache client.Reader
	// Live is asked for a ReplicaSet that the cache does not have yet: it is made a moment before its first Pod.
	Live client.Reader
	// Key of the stamps.
	Key []byte
	// Image of the gate: the operator's own.
	Image string
	// Ceilings say how long a trace lasts that names no duration.
	Ceilings ceiling.Limits
	Clock    clock.PassiveClock
}

// For implements Gates. Of several Traces the oldest has the Pod: the others trace it too, from when they are attached.
func (g *TraceGates) For(ctx context.Context, namespace string, pod *metav1.ObjectMeta) (gate.Options, bool, error) {
	traces, err := g.live(ctx, namespace)
	if err != nil || len(traces) == 0 {
		return gate.Options{}, false, err
	}
	names, err := g.names(ctx, namespace, pod)
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
	o, err := g.options(first)
	return o, err == nil, err
}

// live Traces that gate in a namespace. The stamp says that the spec is what was admitted: whoever can write a status, and
// no spec, cannot have Pods gated by it.
func (g *TraceGates) live(ctx context.Context, namespace string) ([]*sondev1.Trace, error) {
	var all sondev1.TraceList
	if err := g.Cache.List(ctx, &all, client.MatchingFields{target.IndexTargetNamespace: namespace}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list traces: %w", err)
	}
	var live []*sondev1.Trace
	for i := range all.Items {
		t := &all.Items[i]
		if !gate.Live(t) {
			continue
		}
		if _, err := stamp.VerifyCapture(g.Key, t); err != nil {
			continue
		}
		// One whose time is over may still say that it gates: while no leader is there, nobody ends it.
		if o, err := g.options(t); err == nil && !g.Clock.Now().Before(o.Until) {
			continue
		}
		live = append(live, t)
	}
	return live, nil
}

// names that the Pod is a target by.
func (g *TraceGates) names(ctx context.Context, namespace string, pod *metav1.ObjectMeta) ([]sondev1.TargetReference, error) {
	names, err := target.Names(ctx, target.CachedSets(g.Cache), namespace, pod)
	if apierrors.IsNotFound(err) {
		names, err = target.Names(ctx, target.ListedSets(g.Live), namespace, pod)
	}
	if apierrors.IsNotFound(err) {
		return names, nil // of no ReplicaSet that there is
	}
	return names, err
}

func (g *TraceGates) options(t *sondev1.Trace) (gate.Options, error) {
	lasts, err := g.Ceilings.DurationOf(t.Common())
	if err != nil {
		return gate.Options{}, fmt.Errorf("spec.duration: %w", err)
	}
	return gate.OfTrace(t, g.Image, lasts)
}
