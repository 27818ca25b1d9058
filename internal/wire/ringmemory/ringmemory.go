// Package ringmemory says how much memory the rings of a capture's BPF programs take. It is their probe's container's, as
// that of all BPF maps is, so that a limit which has no room for it has the kernel kill the probe; the rings of packet
// sockets are nobody's.
package ringmemory

const (
	// Least is the size of one CPU's ring, in bytes, however little there is to divide.
	Least = 256 << 10
	// MaxCPUs that a node may have, or get: captures of one with more take their packets by packet sockets.
	MaxCPUs = 512
	// around is what a ring has besides, in bytes: what its reader and its writer tell each other, and what is rounded up.
	around = 16 << 10
	// longest is the most bytes of a packet. What is behind a ring's end has room for one, though for half of the ring at most.
	longest = 256 << 10
)

// Most is the most bytes that the rings of a capture can take which are to have so many together.
func Most(together int64) int64 {
	rings := max(together, MaxCPUs*Least)
	return rings + min(rings/2, MaxCPUs*longest) + MaxCPUs*around
}
