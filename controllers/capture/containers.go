package capture

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// missingContainers are the containers of spec.containers that a Pod does not have.
type missingContainers struct {
	names []string
	// present lists the Pod's containers if it has none of spec.containers.
	present string
}

// all reports whether the Pod has none of spec.containers.
func (m missingContainers) all() bool { return m.present != "" }

// missingContainers compares a Pod with spec.containers just before its Job is created. It reads the Pod live: the cache keeps
// no containers, and ephemeral ones may have been added since.
func (r *Reconciler) missingContainers(ctx context.Context, capture sondev1.Capture, p *podState) (missingContainers, error) {
	wanted := capture.Common().Containers
	if len(wanted) == 0 {
		return missingContainers{}, nil
	}
	var pod corev1.Pod
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(p.pod), &pod); gone.Ignore(err) != nil {
		return missingContainers{}, fmt.Errorf("get target pod %s: %w", p.before.Name, err)
	}
	if pod.UID != p.uid {
		return missingContainers{}, nil // the Pod is gone, so its probe will find no process
	}
	m := missingContainers{names: target.ContainersNotFound(&pod.Spec, wanted)}
	if len(m.names) == len(wanted) {
		m.present = target.ContainersText(&pod.Spec)
	}
	return m, nil
}

// containersNotFound returns what the entry has, else what the Job's annotation has. A status that had the names may not have been written, or
// it had no room for the Pod.
func (p *podState) containersNotFound(capture sondev1.Capture, listed []string) []string {
	if len(capture.Common().Containers) == 0 || len(listed) > 0 || p.job == nil {
		return listed
	}
	if names := p.job.GetAnnotations()[sondev1.AnnotationContainersNotFound]; names != "" {
		return strings.Split(names, ",")
	}
	return nil
}

// addTo writes the names into an entry. The entry of a Pod that has none of spec.containers is final: nothing is traced there.
func (m missingContainers) addTo(e *sondev1.PodResult) {
	e.ContainersNotFound = m.names
	if m.all() {
		e.Phase, e.Reason = sondev1.PhaseFailed, sondev1.ReasonContainerNotFound
		e.Message = text.OneLine("the Pod has none of the containers that spec.containers names: it has "+m.present+". Create a Trace that names one of these", 512)
	}
}
