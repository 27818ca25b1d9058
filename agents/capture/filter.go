package capture

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Offsets at which a classic BPF load reads what the kernel knows about a packet instead of its bytes
// (include/uapi/linux/filter.h: SKF_AD_OFF, SKF_AD_PROTOCOL).
const (
	skfADOff      = 0xfffff000 // -0x1000
	skfADProtocol = 0
)

// maxInstructions is BPF_MAXINSNS (include/uapi/linux/bpf_common.h).
const maxInstructions = 4096

// program makes a socket filter for one link type: the user's program, with "accept" meaning snapLen bytes. nil
// accepts every packet.
func program(user bpfprog.Program, lt pcapng.LinkType, snapLen uint32) (bpfprog.Program, error) {
	var p bpfprog.Program
	if lt == pcapng.LinkTypeRaw {
		p = append(p, onlyIP...)
	}
	if user == nil {
		return append(p, bpfprog.Instruction{Code: unix.BPF_RET | unix.BPF_K, K: snapLen}), nil
	}
	if len(user) == 0 || len(p)+len(user) > maxInstructions {
		return nil, fmt.Errorf("filter has %d instructions, 1 to %d are possible: simplify the filter", len(user), maxInstructions-len(p))
	}
	for _, in := range user {
		if in.Code == unix.BPF_RET|unix.BPF_K && in.K != 0 {
			in.K = snapLen
		}
		p = append(p, in)
	}
	return p, nil
}

// onlyIP lets nothing but IPv4 and IPv6 through to the rest of the program: a file of link type raw has no other way
// to say what a packet is.
var onlyIP = bpfprog.Program{
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: skfADOff + skfADProtocol},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.ETH_P_IP, Jt: 2},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.ETH_P_IPV6, Jt: 1},
	{Code: unix.BPF_RET | unix.BPF_K},
}
