package intercept

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// room counts carriers against the limits.
type room struct {
	limits ceiling.Limits
	nodes  map[string]int
	// shares are the carriers of a namespace on a node.
	shares map[nodeShare]int
	total  int
	// pairs of a request and a Pod, and those of each target namespace.
	pairs map[string]int
	all   int
}

// pairsShare is the part of all pairs that one namespace may have.
const pairsShare = tunnel.MaxPairs / 5

type nodeShare struct{ node, namespace string }

// take counts one more carrier, or says why there is no room.
func (r *room) take(pod *slim.Pod) string {
	share := nodeShare{pod.Node(), pod.GetNamespace()}
	most := r.limits.ProbesPerNode
	switch {
	case r.total >= tunnel.MaxCarriers:
		return fmt.Sprintf("waiting: %d Pods of the cluster are intercepted, and no more can be", r.total)
	case most > 0 && r.nodes[share.node] >= most:
		return fmt.Sprintf("waiting: node %s has %d carriers (--%s)", share.node, most, ceiling.FlagProbesPerNode)
	case most > 0 && r.shares[share] >= max(most/2, 1):
		return fmt.Sprintf("waiting: namespace %s has %d carriers on node %s, half of what the node may have (--%s)",
			share.namespace, r.shares[share], share.node, ceiling.FlagProbesPerNode)
	}
	r.total++
	r.nodes[share.node]++
	r.shares[share]++
	return ""
}

// choosePods decides which Pods have a carrier. Pods that have one keep it, so that a new Pod never takes an older one's place.
// It returns the UIDs of each request's Pods, by the request's UID.
func (p *plan) choosePods(o *observation, live []*request, limits ceiling.Limits) map[types.UID][]string {
	r := &room{limits: limits, nodes: map[string]int{}, shares: map[nodeShare]int{}, pairs: map[string]int{}}
	chosen := map[types.UID][]string{}
	for _, carried := range []bool{true, false} {
		for _, q := range live {
			for _, pod := range q.pods {
				uid := pod.GetUID()
				if (o.carriers[uid] != nil) != carried {
					continue
				}
				if why := excluded(pod); why != "" {
					p.excluded[uid] = why
				} else if why := p.room(r, len(chosen[q.UID]), pod); why != "" {
					q.waiting[uid] = why
				} else {
					p.pods[uid] = pod
					chosen[q.UID] = append(chosen[q.UID], string(uid))
				}
			}
		}
	}
	return chosen
}

// room says why a Pod cannot be intercepted for a request that has this many Pods, or takes the room for it.
func (p *plan) room(r *room, taken int, pod *slim.Pod) string {
	if most := r.limits.PodsPerCapture; most > 0 && taken >= most {
		return fmt.Sprintf("waiting: one InterceptRequest intercepts %d Pods at a time (--%s)", most, ceiling.FlagPodsPerCapture)
	}
	if r.all >= tunnel.MaxPairs || r.pairs[pod.GetNamespace()] >= pairsShare {
		return fmt.Sprintf("waiting: the InterceptRequests of namespace %s have %d Pods in all, those of all namespaces %d, and they may have %d and %d",
			pod.GetNamespace(), r.pairs[pod.GetNamespace()], r.all, pairsShare, tunnel.MaxPairs)
	}
	if p.pods[pod.GetUID()] == nil { // no other request has it
		if why := r.take(pod); why != "" {
			return why
		}
	}
	r.all++
	r.pairs[pod.GetNamespace()]++
	return ""
}
