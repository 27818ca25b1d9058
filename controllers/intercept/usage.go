package intercept

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// usage counts what the limits bound.
type usage struct {
	limits ceiling.Limits
	// carriers in all, on each node, and of each namespace on a node.
	carriers    int
	onNode      map[string]int
	ofNamespace map[nodeAndNamespace]int
	// routedPods counts a Pod once for each InterceptRequest on it: in all, and by the Pod's namespace.
	routedPods            int
	routedPodsOfNamespace map[string]int
}

// maxRoutedPodsOfNamespace is what one namespace may have of tunnel.MaxRoutedPods.
const maxRoutedPodsOfNamespace = tunnel.MaxRoutedPods / 5

type nodeAndNamespace struct{ node, namespace string }

// addCarrier counts one more carrier, or says which limit does not allow it.
func (u *usage) addCarrier(pod *slim.Pod) string {
	share := nodeAndNamespace{pod.Node(), pod.GetNamespace()}
	most := u.limits.ProbesPerNode
	switch {
	case u.carriers >= tunnel.MaxCarriers:
		return fmt.Sprintf("waiting: %d Pods of the cluster are intercepted, and no more can be", u.carriers)
	case most > 0 && u.onNode[share.node] >= most:
		return fmt.Sprintf("waiting: node %s has %d carriers (--%s)", share.node, most, ceiling.FlagProbesPerNode)
	case most > 0 && u.ofNamespace[share] >= max(most/2, 1):
		return fmt.Sprintf("waiting: namespace %s has %d carriers on node %s, half of what the node may have (--%s)",
			share.namespace, u.ofNamespace[share], share.node, ceiling.FlagProbesPerNode)
	}
	u.carriers++
	u.onNode[share.node]++
	u.ofNamespace[share]++
	return ""
}

// choosePods decides which Pods have a carrier. Pods that have one keep it, so that a new Pod never takes an older one's place.
// It returns the UIDs of each request's Pods, by the request's UID.
func (p *plan) choosePods(o *observation, live []*request, limits ceiling.Limits) map[types.UID][]string {
	u := &usage{limits: limits, onNode: map[string]int{}, ofNamespace: map[nodeAndNamespace]int{}, routedPodsOfNamespace: map[string]int{}}
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
				} else if why := p.add(u, len(chosen[q.UID]), pod); why != "" {
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

// add counts a Pod for a request that has this many others, or says which limit does not allow it.
func (p *plan) add(u *usage, others int, pod *slim.Pod) string {
	namespace := pod.GetNamespace()
	switch most := u.limits.PodsPerCapture; {
	case most > 0 && others >= most:
		return fmt.Sprintf("waiting: one InterceptRequest intercepts %d Pods at a time (--%s)", most, ceiling.FlagPodsPerCapture)
	case u.routedPodsOfNamespace[namespace] >= maxRoutedPodsOfNamespace:
		return fmt.Sprintf("waiting: the InterceptRequests of namespace %s intercept %d Pods, the most for one namespace", namespace, maxRoutedPodsOfNamespace)
	case u.routedPods >= tunnel.MaxRoutedPods:
		return fmt.Sprintf("waiting: the InterceptRequests of the cluster intercept %d Pods, and no more can be", tunnel.MaxRoutedPods)
	}
	if p.pods[pod.GetUID()] == nil { // no other request has it
		if why := u.addCarrier(pod); why != "" {
			return why
		}
	}
	u.routedPods++
	u.routedPodsOfNamespace[namespace]++
	return ""
}
