package intercept

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/route"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// plan is what a pass does.
type plan struct {
	// stowaway is wanted; without it, removeStowaway is set once it has been idle.
	stowaway, removeStowaway bool
	// nodes are to be read before the Pods on them get carriers.
	nodes []string
	// create carriers for these Pods.
	create []*corev1.Pod
	// remove these carriers, and these Secrets of carriers that are gone.
	remove        []*carrier
	removeSecrets []string
	// routes are part of the state that Stowaway is to have.
	routes []tunnel.Route
	// chosen has the UIDs of the Pods that a request is to intercept, by the request's UID. It has no entry for a request that waits for
	// others to end.
	chosen map[types.UID][]string
	// pods has the Pods that are to be intercepted.
	pods map[types.UID]*slim.Pod
	// excluded says why no port of a Pod can be intercepted, by its UID.
	excluded map[types.UID]string
	// waiting says why a Pod has no carrier for a request yet, by the UIDs of the request and the Pod. It has maxOthers Pods of a request
	// at most.
	waiting map[types.UID]map[types.UID]string
	// again is when the next pass is due; zero if only a change matters.
	again time.Duration
}

const (
	// maxDoublings of the wait between carriers of one Pod that fail.
	maxDoublings = 6
	// healthyAfter is the age after which the failures of earlier carriers no longer count.
	healthyAfter = 10 * time.Minute
)

// retryDelay is how long after the creation of a failed carrier the next one may be created: 2 s, and twice as long for each earlier
// failure.
func retryDelay(failures int) time.Duration { return 2 * time.Second << min(failures, maxDoublings) }

// planFor decides on what was observed.
func planFor(o *observation, limits ceiling.Limits, now time.Time) *plan {
	p := &plan{pods: map[types.UID]*slim.Pod{}, excluded: map[types.UID]string{}, waiting: map[types.UID]map[types.UID]string{}}
	var live []*request
	for _, q := range o.requests {
		if q.refusal != "" || !now.Before(q.expires) {
			continue
		}
		p.stowaway = true
		p.again = sooner(p.again, min(pollInterval, q.expires.Sub(now)))
		live = append(live, q)
	}
	// The limits apply in order of age: the oldest request gets its Pods first.
	slices.SortFunc(live, func(a, b *request) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	u := newUsage(limits, len(live))
	most := min(len(live), tunnel.MaxRoutes)
	for _, q := range live[most:] {
		for _, pod := range q.pods {
			p.wait(q, pod, wait{limit: tooManyRequests}, u)
		}
	}
	live = live[:most]
	p.chosen = p.choosePods(o, live, u)
	for _, q := range live {
		if built, err := route.Build(q.InterceptRequest, p.chosen[q.UID]); err == nil { // the schema has checked what it parses
			p.routes = append(p.routes, built)
		}
	}
	slices.SortFunc(p.routes, func(a, b tunnel.Route) int { return cmp.Compare(a.ID, b.ID) })
	more := p.planRemovals(o, now)
	if p.planCreations(o, now) {
		more = true
	}
	if more {
		p.again = sooner(p.again, nextBatch)
	}
	if !p.stowaway && o.stowaway.exist() {
		p.removeStowaway = true
	}
	return p
}

// excluded says why no port of a Pod can be intercepted.
func excluded(pod *slim.Pod) string {
	spec := pod.Spec()
	switch {
	case spec.HostNetwork:
		return "the Pod uses its node's network, so its ports are the node's"
	case spec.RuntimeClassName != nil && target.Sandboxed(*spec.RuntimeClassName, ""):
		return "the Pod runs in a sandbox (RuntimeClass " + *spec.RuntimeClassName + "), whose connections the node's kernel does not see"
	}
	return ""
}

// planRemovals reports whether it leaves some to the next pass.
func (p *plan) planRemovals(o *observation, now time.Time) bool {
	for uid, c := range o.carriers {
		if c.job.GetDeletionTimestamp() != nil {
			continue
		}
		due := c.job.GetCreationTimestamp().Add(retryDelay(o.failures[uid]))
		if p.pods[uid] == nil || c.outdated(&o.stowaway) || c.stuck(now) || c.ended() && !now.Before(due) {
			p.remove = append(p.remove, c)
		}
	}
	for name, uid := range o.secrets {
		if p.pods[uid] == nil { // for the others a Job is created again, or is not in the cache yet
			p.removeSecrets = append(p.removeSecrets, name)
		}
	}
	more := max(len(p.remove), len(p.removeSecrets)) > maxChanges
	slices.SortFunc(p.remove, func(a, b *carrier) int { return cmp.Compare(a.job.GetName(), b.job.GetName()) })
	p.remove = batch(p.remove, (*carrier).namespace, now)
	slices.Sort(p.removeSecrets)
	p.removeSecrets = batch(p.removeSecrets, func(string) string { return "" }, now)
	return more
}

// planCreations reports whether it leaves some to the next pass.
func (p *plan) planCreations(o *observation, now time.Time) bool {
	if !o.stowaway.secret || !o.stowaway.service || o.stowaway.old {
		return false // carriers need its key and address of now. And the API server may hang: what ends does not wait for a reading of nodes
	}
	p.nodes = o.missingNodes(now)
	var missing []*slim.Pod
	for uid, pod := range p.pods {
		if o.carriers[uid] == nil && !o.leftover[uid] { // two carriers would intercept each other
			missing = append(missing, pod)
		}
	}
	slices.SortFunc(missing, func(a, b *slim.Pod) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetUID(), b.GetUID()))
	})
	for _, pod := range batch(missing, (*slim.Pod).GetNamespace, now) {
		if node := o.nodes[pod.Node()]; node.exists && node.recent(now) {
			p.create = append(p.create, pod.Expand())
		} else if !slices.Contains(p.nodes, pod.Node()) {
			p.nodes = append(p.nodes, pod.Node())
		}
	}
	return len(missing) > maxChanges
}

// state returns the state that Stowaway is to have. Its generation is a hash of the rest.
func (p *plan) state(carriers []tunnel.Carrier) tunnel.State {
	s := tunnel.State{Version: tunnel.Version, Routes: p.routes, Carriers: carriers}
	slices.SortFunc(s.Carriers, func(a, b tunnel.Carrier) int { return cmp.Compare(a.Pod, b.Pod) })
	if b, err := json.Marshal(s); err == nil { // it has no type that fails
		sum := sha256.Sum256(b)
		s.Generation = hex.EncodeToString(sum[:16])
	}
	return s
}

// sooner returns the shorter of two delays; zero means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}
