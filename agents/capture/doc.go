// Package capture takes the packets of one network namespace and writes them to a pcapng file, or a ring of files,
// with an account that adds up: every packet that passed the filter between Open and the end is in a file, or was in
// one that gave way to a newer, or is counted as dropped.
//
// Engine is the seam between the probe and the way packets are taken from the kernel. A session is one capture: it
// hears of interfaces that come and go (links.go, interfaces.go), moves packets until the end (run.go), and knows
// nothing of how they are taken. That is a taker's, of which there are two.
//
// One has a memory-mapped TPACKET_V3 ring per interface (Documentation/networking/packet_mmap.rst of the Linux
// source). The filter runs in the kernel, before the ring. A packet's way is
//
//	ring.go      the kernel fills a block of a ring and hands it over, full or after 100 ms
//	sockets.go   the block with the oldest packets is next
//	encode.go    its packets become pcapng blocks where they lie (frame.go: what the kernel says about each)
//
// The other has BPF programs on each interface, docs/adr/0011-packet-engine-bpf.md:
//
//	bpfprogram.go  programs with the filter in them write pcapng blocks into a ring per CPU (agents/node/ring)
//	bpfattach.go   attached at tcx, or by clsact.go
//	blocks.go      which interfaces are taken, until when, and what was lost
//	blockmerge.go  the ring with the oldest block is next
//
// From there on nothing knows how packets were taken: a recorder takes batches of whole packet blocks from either.
//
//	recorder.go  they are written as far as limits.go leaves room
//	rotate.go    into one file, or a ring of files
//	batch.go     split where a file or a limit ends
//	file.go      past the page cache and in the background (disk.Appender), every 100 ms at least
//	refused.go   up to the last whole packet that the disk took, of all that was on its way
//	account.go   and everything is counted, and told when it is in the file
//
// One socket's ring per interface, not one for all, because only so the kernel's drops are known for each.
//
// At the end of packet sockets a filter that refuses everything closes every ring, the sockets leave their interfaces, which the kernel
// lets wait for packets on their way, and only then are the kernel's counts read and the rings emptied: as many
// packets as the kernel counts must come out.
package capture
