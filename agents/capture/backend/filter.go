package backend

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Offsets at which a classic BPF load reads the kernel's metadata of a packet instead of its bytes
// (include/uapi/linux/filter.h: SKF_AD_OFF, SKF_AD_PROTOCOL).
const (
	skfADOff      = 0xfffff000 // -0x1000
	skfADProtocol = 0
)

// Filter makes a socket filter of a user's program, in which "accept" means snapLen bytes. nil accepts every packet.
func Filter(user bpfprog.Program, lt pcapng.LinkType, snapLen uint32) (bpfprog.Program, error) {
	var p bpfprog.Program
	if lt == pcapng.LinkTypeRaw {
		p = append(p, onlyIP...)
	}
	if user == nil {
		return append(p, bpfprog.Instruction{Code: unix.BPF_RET | unix.BPF_K, K: snapLen}), nil
	}
	if most := bpfprog.MaxInstructions - len(p); len(user) == 0 || len(user) > most {
		return nil, fmt.Errorf("filter has %d instructions, 1 to %d are possible: simplify the filter", len(user), most)
	}
	for _, in := range user {
		if in.Code == unix.BPF_RET|unix.BPF_K && in.K != 0 {
			in.K = snapLen
		}
		p = append(p, in)
	}
	return p, nil
}

// onlyIP passes only IPv4 and IPv6 to the rest of the program: link type raw has no field for another protocol.
var onlyIP = bpfprog.Program{
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: skfADOff + skfADProtocol},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.ETH_P_IP, Jt: 2},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.ETH_P_IPV6, Jt: 1},
	{Code: unix.BPF_RET | unix.BPF_K},
}
