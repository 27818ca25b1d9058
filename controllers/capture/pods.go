package capture

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/slim"
)

// podSet brings together what is known of each Pod, by its UID.
type podSet map[types.UID]*podSeen

func (s podSet) at(uid types.UID) *podSeen {
	if s[uid] == nil {
		s[uid] = &podSeen{uid: uid, before: sondev1.PodResult{UID: string(uid)}}
	}
	return s[uid]
}

// know adds what the status lists, and the Pods that the target has.
func (s podSet) know(capture sondev1.Capture, live []*slim.Pod) {
	for _, entry := range capture.CaptureStatus().Pods {
		p := s.at(types.UID(entry.UID))
		p.before, p.known = entry, true
	}
	for _, pod := range live {
		p := s.at(pod.GetUID())
		p.pod = pod
		p.before.Name, p.before.Node = pod.GetName(), pod.Node()
	}
}

func (s podSet) addJob(job *slim.Job) {
	of := job.Target()
	p := s.at(of.UID)
	p.job = job
	p.before.Name = cmp.Or(p.before.Name, of.Name)
	p.before.Node = cmp.Or(p.before.Node, of.Node)
}

// addAgent adds the Pod of a Job that is there already. Of several, the first is the one whose account counts.
func (s podSet) addAgent(agent *slim.Pod) {
	p := s[agent.Target().UID]
	if p == nil {
		return
	}
	made := agent.GetCreationTimestamp()
	if p.agent == nil || made.Time.Before(p.agent.GetCreationTimestamp().Time) {
		p.agent = agent
	}
}

// sorted returns those Pods of which there is a name, by name.
func (s podSet) sorted() []*podSeen {
	pods := make([]*podSeen, 0, len(s))
	for uid, p := range s {
		if uid != "" && p.before.Name != "" {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *podSeen) int {
		return cmp.Or(cmp.Compare(a.before.Name, b.before.Name), cmp.Compare(a.uid, b.uid))
	})
	return pods
}
