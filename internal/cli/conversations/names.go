package conversations

import (
	"net/netip"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// names learns which address is which Pod's: the one from which a Pod's network namespace sends.
type names map[string]map[netip.Addr]bool

// maxSources of one Pod, of either family, beyond which its addresses are not its own: a Pod in the
// node's network forwards other Pods' packets.
const maxSources = 1

// learn notes the source of a packet that left the Pod that the interface's description names.
func (n names) learn(iface *pcapng.Interface, p *pcapng.Packet, source netip.Addr) {
	if p.Flags.Direction() != pcapng.Outbound || !source.IsGlobalUnicast() || iface.Name == "lo" {
		return
	}
	pod := podOf(iface.Description)
	if pod == "" {
		return
	}
	sources := n[pod]
	if sources == nil {
		sources = map[netip.Addr]bool{}
		n[pod] = sources
	}
	if len(sources) <= 2*maxSources { // one more than allowed is enough to know
		sources[source] = true
	}
}

// podOf reads "namespace/pod, node name", as the probe describes its interfaces.
func podOf(description string) string {
	pod, _, ok := strings.Cut(description, ", node ")
	if !ok || strings.Count(pod, "/") != 1 || strings.ContainsRune(pod, ' ') {
		return ""
	}
	return pod
}

// known returns the addresses that are one Pod's and no other's.
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
