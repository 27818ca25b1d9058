// Package capture takes the packets of one network namespace and writes them to a pcapng file, with an account that
// adds up: every packet that passed the filter between Open and the end is either in the file or counted as dropped.
//
// Engine is the seam between the probe and the way packets are taken from the kernel. NewAFPacket is the first one:
// a memory-mapped TPACKET_V3 ring per interface (Documentation/networking/packet_mmap.rst of the Linux source).
package capture
