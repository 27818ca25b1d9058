package capture

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/slim"
)

// podSet holds the state of each Pod by its UID.
type podSet map[types.UID]*podState

func (s podSet) get(uid types.UID) *podState {
	if s[uid] == nil {
		s[uid] = &podState{uid: uid, before: sondev1.PodResult{UID: string(uid)}}
	}
	return s[uid]
}

// addKnown adds the Pods of the status.
func (s podSet) addKnown(capture sondev1.Capture) {
	for _, entry := range capture.CaptureStatus().Pods {
		p := s.get(types.UID(entry.UID))
		p.before, p.known = entry, true
	}
}

// addLive adds live Pods of the target.
func (s podSet) addLive(live []*slim.Pod) {
	for _, pod := range live {
		p := s.get(pod.GetUID())
		p.pod = pod
		p.before.Name, p.before.Node = pod.GetName(), pod.Node()
	}
}

// addJob adds a Job. A Pod has two if a manager that has lost its lead still created one (createNamed). Then the one that the status
// names counts, or else the first one.
func (s podSet) addJob(job *slim.Job) {
	pod := job.Target()
	p := s.get(pod.UID)
	p.before.Name = cmp.Or(p.before.Name, pod.Name)
	p.before.Node = cmp.Or(p.before.Node, pod.Node)
	switch {
	case p.job == nil:
		p.job = job
	case p.before.Job == job.GetName() || p.before.Job != p.job.GetName() && olderJob(job, p.job):
		p.job, p.surplus = job, append(p.surplus, p.job)
	default:
		p.surplus = append(p.surplus, job)
	}
}

func olderJob(a, b *slim.Job) bool {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName())) < 0
}

// addAgent adds the Pod of a Job that was added before. If there are several, the account of the first one counts.
func (s podSet) addAgent(agent *slim.Pod) {
	p := s[agent.Target().UID]
	if p == nil || p.job != nil && !isAgentOf(agent.GetName(), p.job.GetName()) {
		return
	}
	created := agent.GetCreationTimestamp()
	if p.agent == nil || created.Time.Before(p.agent.GetCreationTimestamp().Time) {
		p.agent = agent
	}
}

// maxGenerated is how much of a name in bytes the API server keeps before it adds five characters.
const maxGenerated = naming.MaxLabel - 5

// isAgentOf reports whether a Pod has a name that was generated for the Job. The cache does not keep which Job owns a Pod.
func isAgentOf(pod, job string) bool {
	base := job + "-"
	if len(base) > maxGenerated {
		base = base[:maxGenerated]
	}
	end, ok := strings.CutPrefix(pod, base)
	return ok && !strings.Contains(end, "-")
}

// sorted returns the Pods whose name is known, by name.
func (s podSet) sorted() []*podState {
	pods := make([]*podState, 0, len(s))
	for uid, p := range s {
		if uid != "" && p.before.Name != "" {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *podState) int {
		return cmp.Or(cmp.Compare(a.before.Name, b.before.Name), cmp.Compare(a.uid, b.uid))
	})
	return pods
}
