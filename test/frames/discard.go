package frames

import (
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Discard is the UDP port that tests of captures send to.
const Discard = 9

// OnlyDiscard is libpcap's program for "udp dst port 9", shortened: IPv4 without options or IPv6, no fragments.
func OnlyDiscard() map[pcapng.LinkType]bpfprog.Program {
	return map[pcapng.LinkType]bpfprog.Program{pcapng.LinkTypeEthernet: {
		{Code: 0x28, K: 12},
		{Code: 0x15, K: unix.ETH_P_IPV6, Jf: 4},
		{Code: 0x30, K: 20},
		{Code: 0x15, K: unix.IPPROTO_UDP, Jf: 8},
		{Code: 0x28, K: 56},
		{Code: 0x15, K: Discard, Jt: 5, Jf: 6},
		{Code: 0x15, K: unix.ETH_P_IP, Jf: 5},
		{Code: 0x30, K: 23},
		{Code: 0x15, K: unix.IPPROTO_UDP, Jf: 3},
		{Code: 0x28, K: 36},
		{Code: 0x15, K: Discard, Jf: 1},
		{Code: 0x06, K: 262144},
		{Code: 0x06},
	}}
}
