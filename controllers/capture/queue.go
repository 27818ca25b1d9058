package capture

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// queueDelay is how soon what waits for a ceiling looks again. No watch tells it when there is room:
// room is made by objects of other captures.
const queueDelay = 5 * time.Second

// queueReasons are those of entries that wait for a ceiling.
var queueReasons = []string{sondev1.ReasonQueued, sondev1.ReasonCeilingPods, sondev1.ReasonCeilingNode}

// room is what the operator-wide ceilings and the other captures leave to this one.
type room struct {
	limits ceiling.Limits
	// ahead are the captures of the namespace that go before this one; 0 once it has begun.
	ahead int
	// held are Pods of this capture whose probes were not over before this pass.
	held int
	// onNode are probes of all captures by node, and what older captures are waiting for there.
	onNode map[string]int
}

// full says why no Job may be made for the Pod now; the reason is empty if one may.
func (m room) full(p *podSeen) (reason, message string) {
	node := p.before.Node
	switch l := m.limits; {
	case l.CapturesPerNamespace > 0 && m.ahead >= l.CapturesPerNamespace:
		return sondev1.ReasonQueued, fmt.Sprintf("waits for captures of its namespace to end: %d may run at the same time, and %d go before; ask for %s",
			l.CapturesPerNamespace, m.ahead, ceiling.Raise(ceiling.FlagCapturesPerNamespace))
	case l.PodsPerCapture > 0 && m.held >= l.PodsPerCapture:
		return sondev1.ReasonCeilingPods, fmt.Sprintf("waits for other Pods of the capture: %d may be captured at the same time; ask for %s",
			l.PodsPerCapture, ceiling.Raise(ceiling.FlagPodsPerCapture))
	case l.ProbesPerNode > 0 && m.onNode[node] >= l.ProbesPerNode:
		return sondev1.ReasonCeilingNode, fmt.Sprintf("waits for other probes on node %s: %d may run there at the same time; ask for %s",
			node, l.ProbesPerNode, ceiling.Raise(ceiling.FlagProbesPerNode))
	}
	return "", ""
}

// taken is the room after a Job for the Pod. It changes m's counts: each plan needs a room of its own.
func (m *room) taken(p *podSeen) {
	m.held++
	if m.onNode == nil {
		m.onNode = map[string]int{}
	}
	m.onNode[p.before.Node]++
}

// waits reports whether an entry waits for a ceiling.
func waits(e sondev1.PodResult) bool {
	return e.Phase == sondev1.PhasePending && slices.Contains(queueReasons, e.Reason)
}

// hasRoom reports whether a Job may have to be made for some Pod in this pass.
func (seen observed) hasRoom() bool {
	return slices.ContainsFunc(seen.pods, func(p *podSeen) bool {
		reason, _ := seen.room.full(p)
		return p.lacksJob() && reason == ""
	})
}

// observeRoom counts what others take. It reads the cache, and passes run at the same time: a node
// may for a moment have a few probes more than its ceiling.
func (r *Reconciler) observeRoom(ctx context.Context, capture sondev1.Capture, seen *observed) error {
	seen.room = room{limits: r.Ceilings, onNode: map[string]int{}}
	if !slices.ContainsFunc(seen.pods, (*podSeen).lacksJob) {
		return nil
	}
	for _, p := range seen.pods {
		if p.made() && !p.before.Phase.Final() {
			seen.room.held++
		}
	}
	if r.Ceilings.CapturesPerNamespace == 0 && r.Ceilings.ProbesPerNode == 0 {
		return nil // the others take nothing from this one
	}
	if err := r.observeOthers(ctx, capture, seen); err != nil {
		return err
	}
	return r.observeProbes(ctx, seen)
}

// observeOthers counts the captures that go before this one, and what older ones wait for.
func (r *Reconciler) observeOthers(ctx context.Context, capture sondev1.Capture, seen *observed) error {
	captures, err := r.captures(ctx)
	if err != nil {
		return fmt.Errorf("list captures that go before: %w", err)
	}
	begun := !started(capture, *seen).IsZero()
	for _, o := range captures {
		if o.GetUID() == capture.GetUID() || o.CaptureStatus().Phase.Final() || !o.GetDeletionTimestamp().IsZero() {
			continue
		}
		if !begun && o.GetNamespace() == capture.GetNamespace() && (o.CaptureStatus().StartTime != nil || older(o, capture)) {
			seen.room.ahead++
		}
		if older(o, capture) {
			seen.room.owe(o)
		}
	}
	return nil
}

// owe keeps free what an older capture waits for.
func (m *room) owe(o sondev1.Capture) {
	pods := o.CaptureStatus().Pods
	for i := range pods {
		if e := &pods[i]; waits(*e) && e.Reason == sondev1.ReasonCeilingNode {
			m.onNode[e.Node]++
		}
	}
}

// observeProbes counts the probes on each node where one may be made: Jobs whose probe has not ended. What only keeps its
// result takes nobody's place.
func (r *Reconciler) observeProbes(ctx context.Context, seen *observed) error {
	if r.Ceilings.ProbesPerNode == 0 {
		return nil
	}
	nodes := map[string]bool{}
	for _, p := range seen.pods {
		if p.lacksJob() {
			nodes[p.before.Node] = true
		}
	}
	for node := range nodes {
		n, err := r.probesOn(ctx, node)
		if err != nil {
			return err
		}
		seen.room.onNode[node] += n
	}
	return nil
}

func (r *Reconciler) probesOn(ctx context.Context, node string) (int, error) {
	var jobs batchv1.JobList
	var agents corev1.PodList
	for _, list := range []client.ObjectList{&jobs, &agents} {
		if err := r.List(ctx, list, client.InNamespace(r.Options.Namespace), client.MatchingFields{target.IndexNode: node}); err != nil {
			return 0, fmt.Errorf("list probes: %w", err)
		}
	}
	ended := map[string]bool{}
	for i := range agents.Items {
		if a := &agents.Items[i]; probeEnded(a) {
			ended[partOf(a)] = true
		}
	}
	n := 0
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if _, ours := kind.Of(job.Labels[sondev1.LabelKind]); ours && !jobEnded(job) && !ended[partOf(job)] {
			n++
		}
	}
	return n, nil
}

// partOf names the Pod of a capture that a Job, or its Pod, is for.
func partOf(o client.Object) string {
	return o.GetLabels()[sondev1.LabelUID] + "/" + o.GetLabels()[sondev1.LabelTargetPodUID]
}

func probeEnded(agent *corev1.Pod) bool {
	if agent.Status.Phase == corev1.PodSucceeded || agent.Status.Phase == corev1.PodFailed {
		return true
	}
	return slices.ContainsFunc(agent.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == captureconfig.ContainerProbe && c.State.Terminated != nil
	})
}

func jobEnded(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// older is the order of the queue: by creation, then by UID.
func older(a, b sondev1.Capture) bool {
	if at, other := a.GetCreationTimestamp(), b.GetCreationTimestamp(); !at.Equal(&other) {
		return at.Before(&other)
	}
	return strings.Compare(string(a.GetUID()), string(b.GetUID())) < 0
}
