// Package pcapng reads, writes and merges packet captures in the pcapng format (draft-ietf-opsawg-pcapng).
//
// Writing is a set of append functions without state, so that a capture engine can encode a batch of blocks, or the
// header and trailer around a packet that already lies in memory, and hand the lot to one write(2). Reading is a
// stream: a file that is still being written, or whose writer was killed, gives every whole block and then
// ErrTruncated with the offset at which the next block would begin.
//
// Only the blocks that Sonde writes are interpreted (section, interface, enhanced packet, interface statistics); all
// others are skipped, as the format asks of a reader.
package pcapng
