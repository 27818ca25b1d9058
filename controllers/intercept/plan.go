package intercept

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
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
	// create carriers for these Pods, each with its attempt.
	create []creation
	// remove these carriers, and these Secrets of carriers that are gone.
	remove        []*carrier
	removeSecrets []string
	// routes are part of the state that Stowaway is to have.
	routes []tunnel.Route
	// pods has the Pods that are to be intercepted.
	pods map[types.UID]*slim.Pod
	// excluded says why no port of a Pod can be intercepted, by its UID.
	excluded map[types.UID]string
	// again is when the next pass is due; zero if only a change matters.
	again time.Duration
}

type creation struct {
	pod     *corev1.Pod
	attempt int
}

// maxAttempts bounds the doubling of the wait between carriers of one Pod that fail.
const maxAttempts = 6

// retryDelay is how long after a failed carrier the next one starts: 1 s, doubled by each failure.
func retryDelay(attempt int) time.Duration { return time.Second << min(attempt, maxAttempts) }

// planFor decides on what was observed.
func planFor(o *observation, limits ceiling.Limits, now time.Time) *plan {
	p := &plan{pods: map[types.UID]*slim.Pod{}, excluded: map[types.UID]string{}}
	var live []*request
	for _, q := range o.requests {
		if q.refusal != "" || !now.Before(q.expires) {
			continue
		}
		p.stowaway = true
		p.again = sooner(p.again, min(pollInterval, q.expires.Sub(now)))
		live = append(live, q)
	}
	// The oldest request has the first choice of what is bounded.
	slices.SortFunc(live, func(a, b *request) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	live = live[:min(len(live), tunnel.MaxRoutes)]
	chosen := p.choosePods(o, live, limits)
	for _, q := range live {
		if built, err := route.Build(q.InterceptRequest, chosen[q.UID]); err == nil { // the schema has checked what it parses
			p.routes = append(p.routes, built)
		}
	}
	slices.SortFunc(p.routes, func(a, b tunnel.Route) int { return cmp.Compare(a.ID, b.ID) })
	p.planCarriers(o, now)
	if !p.stowaway && (o.stowaway.deployment || o.stowaway.service || o.stowaway.secret) {
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

func (p *plan) planCarriers(o *observation, now time.Time) {
	for uid, carriers := range o.carriers {
		for _, c := range carriers {
			if c.job.GetDeletionTimestamp() == nil && (p.pods[uid] == nil || c.lost(&o.stowaway)) {
				p.remove = append(p.remove, c)
			}
		}
	}
	for name, uid := range o.secrets {
		if p.pods[uid] == nil { // otherwise its Job is created again, or is not in the cache yet
			p.removeSecrets = append(p.removeSecrets, name)
		}
	}
	if !o.stowaway.secret || !o.stowaway.service {
		return // carriers need its key and address
	}
	for uid, pod := range p.pods {
		attempt, blocked := 0, false
		for _, c := range o.carriers[uid] {
			switch {
			case c.job.GetDeletionTimestamp() != nil || c.lost(&o.stowaway) || !c.ended():
				blocked = true
			default:
				attempt = max(attempt, attemptOf(c.job.GetName())+1)
				if due := c.job.GetCreationTimestamp().Add(retryDelay(attempt)); now.Before(due) {
					blocked = true
				} else {
					p.remove = append(p.remove, c)
				}
			}
		}
		if !blocked {
			p.create = append(p.create, creation{pod: pod.Expand(), attempt: attempt})
		}
	}
	slices.SortFunc(p.create, func(a, b creation) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
}

// attemptOf returns the number at the end of a carrier's name.
func attemptOf(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return 0
	}
	return n
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
