// Package pcapng reads, writes and merges packet captures in the pcapng format (draft-ietf-opsawg-pcapng).
//
// Writing is a set of append functions without state. A capture backend can encode a batch of blocks, or the header and
// trailer around a packet in place, and pass them to one write(2). Reading is a stream: a file that is still being written,
// or whose writer was killed, returns every complete block and then ErrTruncated with the offset of the next block.
//
// Reader interprets the blocks that Sonde writes (section, interface, name resolution, enhanced packet, interface statistics)
// and skips all others, as the format demands.
package pcapng
