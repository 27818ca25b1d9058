package conversations

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// names maps Pods to the source addresses that their network namespaces use.
type names map[string]map[netip.Addr]bool

// maxSources is how many addresses of each family a Pod may have. A Pod with more forwards packets of other Pods, as in
// the node's network, and its addresses are ignored.
const maxSources = 1

// learn adds the source address of a packet that left the Pod named by the interface's description.
func (n names) learn(iface *pcapng.Interface, p *pcapng.Packet, source netip.Addr) {
	if p.Flags.Direction() != pcapng.Outbound || !source.IsGlobalUnicast() || iface.Name == "lo" {
		return
	}
	pod := PodOf(iface)
	if pod == "" {
		return
	}
	sources := n[pod]
	if sources == nil {
		sources = map[netip.Addr]bool{}
		n[pod] = sources
	}
	if len(sources) <= 2*maxSources { // one more than allowed is enough to reject the Pod
		sources[source] = true
	}
}

// PodOf returns "namespace/name" of the Pod whose interface this is; empty if the file does not say it. The probe describes
// interfaces as "namespace/name, node name".
func PodOf(iface *pcapng.Interface) string {
	pod, _, ok := strings.Cut(iface.Description, ", node ")
	if !ok || strings.Count(pod, "/") != 1 || strings.ContainsRune(pod, ' ') {
		return ""
	}
	return pod
}

// known returns the addresses that only one Pod has.
func (n names) known() map[netip.Addr]string {
	pods := map[netip.Addr]string{}
	for pod, sources := range n {
		four, six := 0, 0
		for a := range sources {
			if a.Is4() {
				four++
			} else {
				six++
			}
		}
		for a := range sources {
			if four > maxSources || six > maxSources {
				continue
			}
			if _, taken := pods[a]; taken {
				pods[a] = ""
				continue
			}
			pods[a] = pod
		}
	}
	return pods
}

// Endpoint returns the name of the Pod or else the address, with the port if there is one.
func Endpoint(a netip.AddrPort, pod string) string {
	switch {
	case !a.IsValid():
		return "-"
	case pod != "" && a.Port() != 0:
		return fmt.Sprintf("%s:%d", pod, a.Port())
	case pod != "":
		return pod
	case a.Port() == 0:
		return a.Addr().String()
	}
	return a.String()
}
