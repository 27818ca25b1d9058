package tc

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
)

// TestUnfit: a VRF device keeps BPF programs, and with them processes, from a capture only if the spec names it.
func TestUnfit(t *testing.T) {
	for name, tc := range map[string]struct {
		interfaces []string
		link       links.Link
		unfit      bool
	}{
		"Ethernet":            {link: links.Link{Name: "eth0", HardwareType: unix.ARPHRD_ETHER}},
		"GRE":                 {link: links.Link{Name: "gre1", HardwareType: unix.ARPHRD_IPGRE}, unfit: true},
		"VRF among all":       {link: links.Link{Name: "blue", HardwareType: unix.ARPHRD_ETHER, VRF: true}},
		"VRF that is named":   {interfaces: []string{"eth0", "blue"}, link: links.Link{Name: "blue", HardwareType: unix.ARPHRD_ETHER, VRF: true}, unfit: true},
		"its interface named": {interfaces: []string{"eth1"}, link: links.Link{Name: "eth1", HardwareType: unix.ARPHRD_ETHER}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Backend{cfg: &backend.Config{Interfaces: tc.interfaces}}
			if err := b.unfit(&tc.link); (err != nil) != tc.unfit {
				t.Errorf("error %v, want one: %v", err, tc.unfit)
			}
		})
	}
}
