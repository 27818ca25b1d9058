// Package ebpffilter translates the classic BPF programs that libpcap makes to eBPF instructions for a program at tc or
// tcx, so that a packet is filtered where it is seen and not copied to a socket first.
//
// A translated filter decides as the kernel does when the same classic program is a filter of an AF_PACKET socket
// (bpf_convert_filter and bpf_check_classic in net/core/filter.c): A and X have 32 bits and begin as 0, a load from
// beyond the packet and a division by an X of 0 refuse the packet, X + k wraps around at 32 bits, shifts by an X of
// more than 31 take its low five bits, and scratch memory may only be read after it was written. Of the loads of what
// the kernel knows about a packet it has those that a program at tc can see; the others are an error.
//
// A load reads the packet directly where its bytes are in the linear part, and else by the kernel's own instruction
// for such loads (LD_ABS, LD_IND), which ends the function with 0 beyond the packet. It needs Linux 5.10: older ones
// have no such instructions in functions. Nothing here touches the kernel; who loads the result is an agent.
package ebpffilter
