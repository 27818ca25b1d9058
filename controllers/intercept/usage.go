package intercept

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/wire/text"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// usage counts what the limits bound.
type usage struct {
	limits ceiling.Limits
	// carriers in all, of each namespace, on each node, and of each namespace on a node.
	carriers          int
	ofNamespace       map[string]int
	onNode            map[string]int
	ofNamespaceOnNode map[nodeAndNamespace]int
	// routedPods counts a Pod once for each InterceptRequest on it: in all, and by the Pod's namespace.
	routedPods            int
	routedPodsOfNamespace map[string]int
	// requests that have not ended.
	requests int
	// texts of those that wait.
	texts map[wait]string
}

// The shares of tunnel.MaxRoutedPods and tunnel.MaxCarriers that the Pods of one namespace may have.
const (
	maxRoutedPodsOfNamespace = tunnel.MaxRoutedPods / 5
	maxCarriersOfNamespace   = tunnel.MaxCarriers / 2
)

// maxMissingNode bounds the name of a node that does not exist in a text, in bytes. Whoever creates Pods makes it up, for each Pod
// another one.
const maxMissingNode = 63

type nodeAndNamespace struct{ node, namespace string }

// limit is what keeps a Pod from having a carrier for a request.
type limit int

const (
	none limit = iota
	tooManyRequests
	podsOfRequest
	routedPodsOfNamespace
	routedPods
	carriers
	carriersOfNamespace
	carriersOnNode
	carriersOfNamespaceOnNode
	nodeMissing
)

// wait is a limit, and whose it is. Pods that wait for the same share one text: there may be thousands of them.
type wait struct {
	limit           limit
	namespace, node string
}

// text says what a Pod waits for.
func (u *usage) text(w wait) string {
	if u.texts[w] == "" {
		u.texts[w] = "waiting: " + u.describe(w)
	}
	return u.texts[w]
}

func (u *usage) describe(w wait) string {
	switch w.limit {
	case tooManyRequests:
		return fmt.Sprintf("the cluster has %d InterceptRequests that have not ended, and at most %d of them intercept", u.requests, tunnel.MaxRoutes)
	case podsOfRequest:
		return fmt.Sprintf("one InterceptRequest intercepts %d Pods at a time (--%s)", u.limits.PodsPerCapture, ceiling.FlagPodsPerCapture)
	case routedPodsOfNamespace:
		return fmt.Sprintf("the InterceptRequests of namespace %s intercept %d Pods, the most for one namespace", w.namespace, maxRoutedPodsOfNamespace)
	case routedPods:
		return fmt.Sprintf("the InterceptRequests of the cluster intercept %d Pods, and no more can be", tunnel.MaxRoutedPods)
	case carriers:
		return fmt.Sprintf("%d Pods of the cluster are intercepted, and no more can be", u.carriers)
	case carriersOfNamespace:
		return fmt.Sprintf("%d Pods of namespace %s are intercepted, the most for one namespace", maxCarriersOfNamespace, w.namespace)
	case carriersOnNode:
		return fmt.Sprintf("node %s has %d carriers (--%s)", w.node, u.limits.ProbesPerNode, ceiling.FlagProbesPerNode)
	case carriersOfNamespaceOnNode:
		return fmt.Sprintf("namespace %s has %d carriers on node %s, half of what the node may have (--%s)",
			w.namespace, u.ofNamespaceOnNode[nodeAndNamespace{w.node, w.namespace}], w.node, ceiling.FlagProbesPerNode)
	case nodeMissing:
		return fmt.Sprintf("node %s does not exist, so no kubelet runs the Pod", text.Ellipsis(w.node, maxMissingNode))
	case none:
	}
	return ""
}

// addCarrier counts one more carrier, or says which limit does not allow it.
func (u *usage) addCarrier(pod *slim.Pod) wait {
	share := nodeAndNamespace{pod.Node(), pod.GetNamespace()}
	most := u.limits.ProbesPerNode
	switch {
	case u.carriers >= tunnel.MaxCarriers:
		return wait{limit: carriers}
	case u.ofNamespace[share.namespace] >= maxCarriersOfNamespace:
		return wait{limit: carriersOfNamespace, namespace: share.namespace}
	case most > 0 && u.onNode[share.node] >= most:
		return wait{limit: carriersOnNode, node: share.node}
	case most > 0 && u.ofNamespaceOnNode[share] >= max(most/2, 1):
		return wait{limit: carriersOfNamespaceOnNode, namespace: share.namespace, node: share.node}
	}
	u.carriers++
	u.onNode[share.node]++
	u.ofNamespace[share.namespace]++
	u.ofNamespaceOnNode[share]++
	return wait{}
}

// newUsage is for this many requests.
func newUsage(limits ceiling.Limits, requests int) *usage {
	return &usage{
		limits: limits, requests: requests, ofNamespace: map[string]int{}, onNode: map[string]int{}, ofNamespaceOnNode: map[nodeAndNamespace]int{},
		routedPodsOfNamespace: map[string]int{}, texts: map[wait]string{},
	}
}

// standing orders the Pods that may have a carrier.
type standing int

const (
	// carried Pods have a carrier, and keep it, so that a new Pod never takes an older one's place.
	carried standing = iota
	// onKnownNode: the Pod's node existed when it was last read.
	onKnownNode
	// onUnknownNode: so that made-up nodes never take the place of others, even until they are read.
	onUnknownNode
	onMissingNode
)

func (o *observation) standing(pod *slim.Pod) standing {
	node, known := o.nodes[pod.Node()]
	switch {
	case o.carriers[pod.GetUID()] != nil:
		return carried
	case !known:
		return onUnknownNode
	case node.exists:
		return onKnownNode
	}
	return onMissingNode
}

// choosePods decides which Pods have a carrier.
// It returns the UIDs of each request's Pods, by the request's UID.
func (p *plan) choosePods(o *observation, live []*request, u *usage) map[types.UID][]string {
	chosen := map[types.UID][]string{}
	for _, q := range live {
		chosen[q.UID] = nil
	}
	for _, standing := range []standing{carried, onKnownNode, onUnknownNode, onMissingNode} {
		for _, q := range live {
			for _, pod := range q.pods {
				uid := pod.GetUID()
				if o.standing(pod) != standing {
					continue
				}
				if why := excluded(pod); why != "" {
					p.excluded[uid] = why
				} else if standing == onMissingNode {
					p.wait(q, pod, wait{limit: nodeMissing, node: pod.Node()}, u)
				} else if w := p.add(u, len(chosen[q.UID]), pod); w.limit != none {
					p.wait(q, pod, w, u)
				} else {
					p.pods[uid] = pod
					chosen[q.UID] = append(chosen[q.UID], string(uid))
				}
			}
		}
	}
	return chosen
}

// wait keeps why a Pod waits for a request, if the status has an entry for it.
func (p *plan) wait(q *request, pod *slim.Pod, w wait, u *usage) {
	if len(p.waiting[q.UID]) == maxOthers {
		return
	}
	if p.waiting[q.UID] == nil {
		p.waiting[q.UID] = map[types.UID]string{}
	}
	p.waiting[q.UID][pod.GetUID()] = u.text(w)
}

// add counts a Pod for a request that has this many others, or says which limit does not allow it.
func (p *plan) add(u *usage, others int, pod *slim.Pod) wait {
	namespace := pod.GetNamespace()
	switch most := u.limits.PodsPerCapture; {
	case most > 0 && others >= most:
		return wait{limit: podsOfRequest}
	case u.routedPodsOfNamespace[namespace] >= maxRoutedPodsOfNamespace:
		return wait{limit: routedPodsOfNamespace, namespace: namespace}
	case u.routedPods >= tunnel.MaxRoutedPods:
		return wait{limit: routedPods}
	}
	if p.pods[pod.GetUID()] == nil { // no other request has it
		if w := u.addCarrier(pod); w.limit != none {
			return w
		}
	}
	u.routedPods++
	u.routedPodsOfNamespace[namespace]++
	return wait{}
}
