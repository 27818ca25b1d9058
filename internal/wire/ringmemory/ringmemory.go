// Package ringmemory computes how much memory the rings of a capture's BPF programs take. Like all BPF maps they count for
// the probe's container: if its limit is too low, the kernel kills the probe. The rings of packet sockets count for no
// container.
package ringmemory

const (
	// MinCPURing is the least size of one CPU's ring in bytes.
	MinCPURing = 256 << 10
	// MaxCPUs is how many possible CPUs a node may have. Captures on a node with more use packet sockets.
	MaxCPUs = 512
	// overhead of a ring besides its data, in bytes: the positions of reader and writer, and rounding.
	overhead = 16 << 10
	// maxPacket is the most bytes of a packet. The memory after a ring's end has room for one, or for half of the ring.
	maxPacket = 256 << 10
)

// MaxBytes is the most bytes that the rings of a capture take if they have ringBytes together, on a node of any size.
func MaxBytes(ringBytes int64) int64 {
	rings := max(ringBytes, MaxCPUs*MinCPURing)
	return rings + min(rings/2, MaxCPUs*maxPacket) + MaxCPUs*overhead
}
