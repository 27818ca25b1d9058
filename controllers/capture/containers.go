package capture

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// lacking is what a Pod does not have of the containers that were asked for.
type lacking struct {
	names []string
	// instead are those that it has, where it has none of them.
	instead string
}

// all reports whether the Pod has none of them.
func (l lacking) all() bool { return l.instead != "" }

// lacks compares a Pod with the containers that were asked for, just before its Job is made. The cache does not keep
// containers, of which the API server knows the ephemeral ones, too.
func (r *Reconciler) lacks(ctx context.Context, capture sondev1.Capture, p *podSeen) (lacking, error) {
	wanted := capture.Common().Containers
	if len(wanted) == 0 {
		return lacking{}, nil
	}
	var pod corev1.Pod
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(p.pod), &pod); sweep.IgnoreGone(err) != nil {
		return lacking{}, fmt.Errorf("get target pod %s: %w", p.before.Name, err)
	}
	if pod.UID != p.uid {
		return lacking{}, nil // it is gone, and its probe will find nobody
	}
	l := lacking{names: target.ContainersNotFound(&pod.Spec, wanted)}
	if len(l.names) == len(wanted) {
		l.instead = target.ContainersText(&pod.Spec)
	}
	return l, nil
}

// into an entry: of a Pod that has none of the containers nothing is traced.
func (l lacking) into(e *sondev1.PodResult) {
	e.ContainersNotFound = l.names
	if l.all() {
		e.Phase, e.Reason = sondev1.PhaseFailed, sondev1.ReasonContainerNotFound
		e.Message = text.OneLine("the Pod has none of the containers that spec.containers names: it has "+l.instead+". Create a Trace that names one of these", 512)
	}
}
