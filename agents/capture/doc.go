// Package capture takes the packets of one network namespace and writes them to a pcapng file, or a ring of files,
// with an account that adds up: every packet that passed the filter between Open and the end is in a file, or was in
// one that gave way to a newer, or is counted as dropped.
//
// Engine is the seam between the probe and the way packets are taken from the kernel. NewAFPacket is the first one:
// a memory-mapped TPACKET_V3 ring per interface (Documentation/networking/packet_mmap.rst of the Linux source). The
// filter runs in the kernel, before the ring. A packet's way is
//
//	ring.go      the kernel fills a block of a ring and hands it over, full or after 100 ms
//	run.go       the block with the oldest packets is next
//	encode.go    its packets become pcapng blocks where they lie (frame.go: what the kernel says about each)
//
// From there on nothing knows of AF_PACKET: a recorder takes batches of whole packet blocks from whatever engine.
//
//	recorder.go  they are written as far as limits.go leaves room
//	rotate.go    into one file, or a ring of files
//	batch.go     split where a file or a limit ends
//	file.go      by writev(2) in pieces that end with a whole pcapng block, so that so does the file
//	account.go   and everything is counted
//
// One ring per interface, not one for all, because only so the kernel's drops are known for each. links.go hears of
// interfaces that come and go, interfaces.go opens and parks their rings, and finish.go takes the last packets.
//
// At the end a filter that refuses everything closes every ring, the sockets leave their interfaces, which the kernel
// lets wait for packets on their way, and only then are the kernel's counts read and the rings emptied: as many
// packets as the kernel counts must come out.
package capture
