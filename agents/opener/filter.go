package opener

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

const (
	// netOffset is SKF_NET_OFF: offsets from here count from the IP header. On a TCP socket others count from the TCP header.
	netOffset int32 = -0x100000
	// tcpFlags is the offset of the flags in a TCP header.
	tcpFlags int32 = 13
	// synAck are the flags of the answer to a new connection.
	synAck = 0x12
	// skbSocket and socketState are offsets in struct __sk_buff and struct bpf_sock. From Linux 5.1 a filter sees its socket.
	skbSocket, socketState = 168, 72
	// synSent is the state of a socket that connects (TCP_SYN_SENT).
	synSent = 2

	protocol4, source4, destination4 = 4, 12, 16
	protocol6, source6, destination6 = 6, 8, 24
	words4, words6                   = 1, 4
)

// filter confines the sockets that the carrier gets to the Pod. A carrier that was taken over can disconnect such a socket and connect
// it to any host, from the Pod's address. The filter drops the host's answer: while a socket connects, a segment passes only if it comes
// from the address to which it is sent. So the dialer's own connections pass, because they connect an address to itself. A RST is dropped,
// too. The kernel counts what the filter drops (SO_MEMINFO), so the carrier still learns how often a host has answered.
//
// Sockets that a listener accepts inherit its filter and its lock. It is an eBPF program and not a classic one, because all sockets
// share it: the kernel compiles a classic one for each socket, which takes several KiB of memory.
type filter struct{ program *ebpf.Program }

func loadFilter() (filter, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sonde_confine", Type: ebpf.SocketFilter, License: "GPL", Instructions: filterInstructions(),
	})
	if err != nil {
		return filter{}, fmt.Errorf("load filter of sockets (needs CAP_SYS_ADMIN): %w", err)
	}
	return filter{p}, nil
}

// filterInstructions drops what it cannot read: the kernel ends a program with 0 if a load fails.
func filterInstructions() asm.Instructions {
	const pass, drop, flags, version, ipv4 = "pass", "drop", "flags", "version", "ipv4"
	program := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // where the loads expect the context
		asm.LoadMem(asm.R2, asm.R6, skbSocket, asm.DWord),
		asm.JEq.Imm(asm.R2, 0, flags),
		asm.LoadMem(asm.R2, asm.R2, socketState, asm.Word),
		asm.JEq.Imm(asm.R2, synSent, version),
		asm.LoadAbs(tcpFlags, asm.Byte).WithSymbol(flags),
		asm.And.Imm(asm.R0, synAck),
		asm.JNE.Imm(asm.R0, synAck, pass),
		asm.LoadAbs(netOffset, asm.Byte).WithSymbol(version),
		asm.RSh.Imm(asm.R0, 4), // the version of IP: an IPv6 socket may get either
		asm.JEq.Imm(asm.R0, protocol4, ipv4),
		asm.JNE.Imm(asm.R0, protocol6, drop),
	}
	program = append(program, sameAddress(source6, destination6, words6, drop)...)
	program = append(program, asm.Ja.Label(pass))
	first := len(program)
	program = append(program, sameAddress(source4, destination4, words4, drop)...)
	program[first] = program[first].WithSymbol(ipv4)
	return append(program,
		asm.Mov.Imm32(asm.R0, -1).WithSymbol(pass), // all bytes
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(drop),
		asm.Return(),
	)
}

// sameAddress jumps to other if the source differs from the destination.
func sameAddress(source, destination, words int32, other string) (program asm.Instructions) {
	for offset := netOffset; offset < netOffset+4*words; offset += 4 {
		program = append(program,
			asm.LoadAbs(offset+source, asm.Word),
			asm.Mov.Reg(asm.R7, asm.R0),
			asm.LoadAbs(offset+destination, asm.Word),
			asm.JNE.Reg(asm.R0, asm.R7, other),
		)
	}
	return program
}

// confine attaches the filter to a TCP socket for good: no process can remove or replace it, whatever its rights.
func (f filter) confine(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, f.program.FD()); err != nil {
		return fmt.Errorf("attach filter to socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1); err != nil {
		return fmt.Errorf("lock filter of socket: %w", err)
	}
	return nil
}

// close frees the program when no socket has it any more.
func (f filter) close() error { return f.program.Close() }
