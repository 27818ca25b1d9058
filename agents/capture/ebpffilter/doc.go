// Package ebpffilter translates libpcap's classic BPF programs to eBPF instructions for a program at tc or tcx, so that a
// packet is filtered before it is copied.
//
// A translated filter decides as the kernel does for the same classic program on an AF_PACKET socket
// (bpf_convert_filter and bpf_check_classic in net/core/filter.c). A and X have 32 bits and begin as 0. A load from
// beyond the packet and a division by an X of 0 refuse the packet. X + k wraps around at 32 bits. Shifts by an X of
// more than 31 use its low five bits. Scratch memory must be written before it is read. Loads of packet metadata that
// programs at tc cannot read are an error.
//
// A load reads bytes in the packet's linear part directly. For other bytes it uses the kernel's instructions LD_ABS and
// LD_IND, which end the function with 0 beyond the packet. They need Linux 5.10: older kernels do not allow them in
// functions. The package does not call the kernel; tc loads the result.
package ebpffilter
