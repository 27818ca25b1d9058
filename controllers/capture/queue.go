package capture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// queueDelay is the delay of the next pass of a capture that waits for a ceiling, if no event wakes it before (waiting.go).
const queueDelay = time.Minute

// queueReasons are the reasons of entries that wait for a ceiling.
var queueReasons = append([]string{sondev1.ReasonQueued, sondev1.ReasonCeilingPods}, nodeReasons...)

// nodeReasons are the reasons of entries that wait for a place on their node.
var nodeReasons = []string{sondev1.ReasonCeilingNode, sondev1.ReasonCeilingTracers, sondev1.ReasonCeilingResults, sondev1.ReasonCeilingBytes}

// takesOf returns how many places on its node each Pod of a capture takes, by the reason of entries that wait for them. Places for
// bytes are bytes.
func takesOf(capture sondev1.Capture) map[string]int {
	takes := map[string]int{
		sondev1.ReasonCeilingNode: 1, sondev1.ReasonCeilingResults: 1, sondev1.ReasonCeilingBytes: int(capture.Common().MaxBytes),
	}
	if capture.Common().SlowsNode {
		takes[sondev1.ReasonCeilingTracers] = 1
	}
	return takes
}

// room holds the ceilings and what this and other captures use of them.
type room struct {
	limits ceiling.Limits
	// ahead counts the captures of the namespace that run before this one; 0 once this one has begun.
	ahead int
	// held counts the Pods of this capture that have a place (hasPlace).
	held int
	// jobs counts the Jobs of the namespace's captures, also those of ended Pods.
	jobs int
	// takes has the places that a Pod of this capture takes on its node, by the reason of entries that wait for them.
	takes map[string]int
	// onNode has the places where this capture may create a probe.
	onNode map[placeOf]places
}

// placeOf identifies the places of a node that the ceiling with this reason limits.
type placeOf struct{ node, reason string }

// places counts the probes or the results of a node, and those that older captures of the same namespace wait for.
type places struct {
	// all counts those of every namespace, own those of the capture's own.
	all, own int
	// reserved places are for older captures of other namespaces.
	reserved int
}

// full reports whether the capture may not take a place. A namespace takes at most as many places as stay free for others. So
// the first one gets half of them, and the next ones each half of the rest.
func (n places) full(limit int) bool { return n.own >= limit-n.all-n.reserved }

// over reports whether the namespace would have more than limit with so many more places. It may always have those of one Pod: a
// capture whose maxBytes is above the limit gets its turn, too.
func (n places) over(limit int64, more int) bool { return n.own > 0 && int64(n.own+more) > limit }

// full says why the Pod may not get a Job now; the reason is empty if it may.
func (m room) full(p *podState) (reason, message string) {
	node := p.before.Node
	switch l := m.limits; {
	case l.CapturesPerNamespace > 0 && m.ahead >= l.CapturesPerNamespace:
		return sondev1.ReasonQueued, fmt.Sprintf("waits for captures of its namespace to end: %d may run at the same time, and %d are ahead; ask for %s",
			l.CapturesPerNamespace, m.ahead, ceiling.Raise(ceiling.FlagCapturesPerNamespace))
	case m.fullOfJobs(): // before the next one, which needs no action of the user
		return sondev1.ReasonCeilingPods, m.waitsForJobs()
	case l.PodsPerCapture > 0 && m.held >= l.PodsPerCapture:
		return sondev1.ReasonCeilingPods, fmt.Sprintf("waits for other Pods of the capture: %d may be captured at the same time; ask for %s",
			l.PodsPerCapture, ceiling.Raise(ceiling.FlagPodsPerCapture))
	case l.ResultsPerNode > 0 && m.onNode[placeOf{node, sondev1.ReasonCeilingResults}].full(l.ResultsPerNode):
		return sondev1.ReasonCeilingResults, fmt.Sprintf("waits for results on node %s to be deleted: %d may be kept there, and a namespace leaves as many places free as it takes; delete captures that have ended (kubectl sonde delete), or ask for %s",
			node, l.ResultsPerNode, ceiling.Raise(ceiling.FlagResultsPerNode))
	case l.BytesPerNode > 0 && m.onNode[placeOf{node, sondev1.ReasonCeilingBytes}].over(l.BytesPerNode, m.takes[sondev1.ReasonCeilingBytes]):
		return sondev1.ReasonCeilingBytes, fmt.Sprintf("waits for results of its namespace on node %s to be deleted: their maxBytes may be %d there together; write a smaller maxBytes, delete captures that have ended (kubectl sonde delete), or ask for %s",
			node, l.BytesPerNode, ceiling.Raise(ceiling.FlagBytesPerNode))
	case l.ProbesPerNode > 0 && m.onNode[placeOf{node, sondev1.ReasonCeilingNode}].full(l.ProbesPerNode):
		return sondev1.ReasonCeilingNode, fmt.Sprintf("waits for other probes on node %s: %d may run there at the same time, and a namespace leaves as many places free as it takes; ask for %s",
			node, l.ProbesPerNode, ceiling.Raise(ceiling.FlagProbesPerNode))
	case l.TracersPerNode > 0 && m.takes[sondev1.ReasonCeilingTracers] > 0 && m.onNode[placeOf{node, sondev1.ReasonCeilingTracers}].full(l.TracersPerNode):
		return sondev1.ReasonCeilingTracers, fmt.Sprintf("waits for traces, and captures with processes, of other Pods on node %s to end: %d Pods may have one there at the same time, because each slows the processes of the whole node, and a namespace leaves as many places free as it takes; ask for %s",
			node, l.TracersPerNode, ceiling.Raise(ceiling.FlagTracersPerNode))
	}
	return "", ""
}

// take counts a Job for the Pod. It changes onNode, so each plan needs its own copy.
func (m *room) take(p *podState) {
	m.held++
	m.jobs++
	if m.onNode == nil {
		m.onNode = map[placeOf]places{}
	}
	for _, reason := range nodeReasons {
		at := placeOf{p.before.Node, reason}
		n := m.onNode[at]
		n.all, n.own = n.all+m.takes[reason], n.own+m.takes[reason]
		m.onNode[at] = n
	}
}

// hasPlace reports whether the Pod has one of the places of its capture: a probe that has not ended. Its entry alone does not show
// that, because the status of a large capture has no room for all entries that are final.
func (p *podState) hasPlace() bool {
	ended := p.before.Phase.Final() || p.agent != nil && probeEnded(p.agent.Expand()) || p.job != nil && target.JobEnded(p.job.Expand())
	return p.hadJob() && !ended
}

// isQueued reports whether an entry waits for a ceiling.
func isQueued(e sondev1.PodResult) bool {
	return e.Phase == sondev1.PhasePending && slices.Contains(queueReasons, e.Reason)
}

// mayCreateJobs reports whether this pass may create a Job.
func (observed observation) mayCreateJobs() bool {
	return slices.ContainsFunc(observed.pods, observed.mayCreateJob)
}

func (observed observation) mayCreateJob(p *podState) bool {
	reason, _ := observed.room.full(p)
	return p.needsJob() && reason == ""
}

// observeRoom counts what other captures use. It reads the cache, and passes run concurrently: a node may exceed its ceiling by a
// few probes for a moment.
func (r *Reconciler) observeRoom(ctx context.Context, capture sondev1.Capture, observed *observation) error {
	observed.room = room{limits: r.Ceilings, jobs: observed.jobs, takes: takesOf(capture), onNode: map[placeOf]places{}}
	gates := capture.Common().Gate != nil && !capture.CaptureStatus().Phase.Final() // new Pods would need Jobs (gateClosedByPods)
	if !gates && !slices.ContainsFunc(observed.pods, (*podState).needsJob) {
		return nil
	}
	for _, p := range observed.pods {
		if p.hasPlace() {
			observed.room.held++
		}
	}
	if r.Ceilings.CapturesPerNamespace == 0 && r.Ceilings.PodsPerCapture == 0 && !r.limitsNodes() {
		return nil // without these ceilings other captures do not matter
	}
	captures, err := r.captures(ctx)
	if err != nil {
		return fmt.Errorf("list other captures: %w", err)
	}
	counts, err := r.observeProbes(ctx, observed, takesByUID(captures))
	if err != nil {
		return err
	}
	observeOthers(capture, captures, observed, counts)
	observed.room.jobs += jobsOfOthers(capture, captures, observed.now)
	return nil
}

// takesByUID returns what each Pod of the captures takes on its node, by their UIDs.
func takesByUID(captures []sondev1.Capture) map[string]map[string]int {
	takes := make(map[string]map[string]int, len(captures))
	for _, c := range captures {
		takes[string(c.GetUID())] = takesOf(c)
	}
	return takes
}

// limitsNodes reports whether a ceiling limits what runs on a node.
func (r *Reconciler) limitsNodes() bool {
	l := r.Ceilings
	return l.ProbesPerNode > 0 || l.TracersPerNode > 0 || l.ResultsPerNode > 0 || l.BytesPerNode > 0
}

// observeOthers counts the captures that run before this one, and the places on nodes that are not for it. counts has the probes
// and results by namespace.
func observeOthers(capture sondev1.Capture, captures []sondev1.Capture, observed *observation, counts map[placeOf]map[string]int) {
	begun := !started(capture, *observed).IsZero()
	waiting := map[placeOf]map[string]int{} // by namespace, in older captures
	for _, o := range captures {
		if o.GetUID() == capture.GetUID() || o.CaptureStatus().Phase.Final() || !o.GetDeletionTimestamp().IsZero() {
			continue
		}
		if !begun && o.GetNamespace() == capture.GetNamespace() && (o.CaptureStatus().StartTime != nil || older(o, capture)) {
			observed.room.ahead++
		}
		if older(o, capture) {
			addWaiting(waiting, o)
		}
	}
	for at, byNamespace := range counts {
		observed.room.onNode[at] = placesFor(capture.GetNamespace(), byNamespace, waiting[at])
	}
}

// addWaiting counts the places on nodes that a capture waits for.
func addWaiting(waiting map[placeOf]map[string]int, o sondev1.Capture) {
	pods := o.CaptureStatus().Pods
	for i := range pods {
		e := &pods[i]
		if !slices.Contains(nodeReasons, e.Reason) || !isQueued(*e) {
			continue
		}
		at := placeOf{e.Node, e.Reason}
		if waiting[at] == nil {
			waiting[at] = map[string]int{}
		}
		waiting[at][o.GetNamespace()] += takesOf(o)[e.Reason]
	}
}

// waitsFor reports whether an entry waits for such a place.
func waitsFor(e sondev1.PodResult, at placeOf) bool {
	return e.Node == at.node && e.Reason == at.reason && isQueued(e)
}

// placesFor returns the places of a node from the view of a capture in a namespace. A namespace that has waited longer, and has no
// more probes there, gets a place first.
func placesFor(namespace string, probes, waiting map[string]int) places {
	n := places{all: waiting[namespace], own: probes[namespace] + waiting[namespace]}
	for _, count := range probes {
		n.all += count
	}
	for other := range waiting {
		if other != namespace && probes[other] <= probes[namespace] {
			n.reserved++
		}
	}
	return n
}

// observeProbes counts by namespace what is on each node where this capture may create a probe.
func (r *Reconciler) observeProbes(ctx context.Context, observed *observation, takes map[string]map[string]int) (map[placeOf]map[string]int, error) {
	counts := map[placeOf]map[string]int{}
	if !r.limitsNodes() {
		return counts, nil
	}
	for _, p := range observed.pods {
		node := p.before.Node
		if counts[placeOf{node, sondev1.ReasonCeilingNode}] != nil || !p.needsJob() {
			continue
		}
		onNode, err := r.jobsOn(ctx, node, takes)
		if err != nil {
			return nil, err
		}
		maps.Copy(counts, onNode)
	}
	return counts, nil
}

// jobsOn counts by namespace the Jobs on a node whose probe has not ended, and all that have not ended: these keep a result, or
// will, which takes up to maxBytes. takes says what each Pod of a capture takes, by the capture's UID.
func (r *Reconciler) jobsOn(ctx context.Context, node string, takes map[string]map[string]int) (map[placeOf]map[string]int, error) {
	var jobs batchv1.JobList
	var agents corev1.PodList
	for _, list := range []client.ObjectList{&jobs, &agents} {
		if err := r.List(ctx, list, client.InNamespace(r.Options.Namespace), client.MatchingFields{target.IndexNode: node}); err != nil {
			return nil, fmt.Errorf("list probes: %w", err)
		}
	}
	ended := map[string]bool{}
	for i := range agents.Items {
		if a := &agents.Items[i]; probeEnded(a) {
			ended[targetKey(a)] = true
		}
	}
	probes, tracers, results, bytes := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if _, ours := kind.Of(job.Labels[sondev1.LabelKind]); !ours {
			continue
		}
		each, exists := takes[job.Labels[sondev1.LabelUID]]
		owner, _ := naming.ParseOwner(job.Annotations[sondev1.AnnotationOwner])
		results[owner.Namespace]++
		bytes[owner.Namespace] += each[sondev1.ReasonCeilingBytes]
		if ended[targetKey(job)] {
			continue
		}
		probes[owner.Namespace]++
		if !exists || each[sondev1.ReasonCeilingTracers] > 0 { // the probe of a deleted capture may still slow the node
			tracers[owner.Namespace]++
		}
	}
	return map[placeOf]map[string]int{
		{node, sondev1.ReasonCeilingNode}: probes, {node, sondev1.ReasonCeilingTracers}: tracers,
		{node, sondev1.ReasonCeilingResults}: results, {node, sondev1.ReasonCeilingBytes}: bytes,
	}, nil
}

// targetKey identifies the Pod of a capture that a Job, or its Pod, is for.
func targetKey(o client.Object) string {
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

// older is the order of the queue: by creation, then by UID.
func older(a, b sondev1.Capture) bool {
	if at, other := a.GetCreationTimestamp(), b.GetCreationTimestamp(); !at.Equal(&other) {
		return at.Before(&other)
	}
	return strings.Compare(string(a.GetUID()), string(b.GetUID())) < 0
}
