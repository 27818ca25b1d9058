package afpacket

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

const (
	// maxBlock is the size of a ring block if there is enough memory: it holds the largest frame (BIG TCP, 512 KiB).
	maxBlock = 1 << 20
	// minBlock still holds a GSO frame of 64 KiB. Larger frames are cut by the kernel and counted as truncated.
	minBlock = 128 << 10
	// retireMillis is how long the kernel may keep a block that is not full. Its timer has the same period, so that a
	// packet is handed over after at most twice as long. It is in the file at most backend.Interval later.
	retireMillis = 100
	// frameSize only has to be valid: with TPACKET_V3 frames have variable sizes.
	frameSize = 2048
	// unusedProtocol is an EtherType for local experiments (IEEE 802). A stopped socket is bound to it, so that it
	// receives nothing more.
	unusedProtocol = 0x88B5
)

const (
	blockHeaderLen = uint32(unsafe.Offsetof(unix.TpacketBlockDesc{}.Hdr) + unsafe.Sizeof(unix.TpacketHdrV1{}))
	blockHdrOffset = unsafe.Offsetof(unix.TpacketBlockDesc{}.Hdr)
)

// socketRing is one packet socket with its memory-mapped TPACKET_V3 ring. Its blocks are read strictly in turn.
type socketRing struct {
	fd     int
	mem    []byte
	block  int // bytes of a block
	blocks int
	next   int // block to read next
}

// ringStats are the kernel's counts since the last read.
type ringStats struct {
	accepted uint64 // packets put into the ring
	dropped  uint64 // packets for which there was no room
	frozen   uint64 // times that the whole ring was in use
}

// sharesOf returns how many shares of the memory an interface has: loopback has a third of another one's. Most Pods
// hardly use it, but some have a sidecar that receives all of their traffic there.
func sharesOf(loopback bool) int {
	if loopback {
		return 1
	}
	return 3
}

// ringSize returns the block size and the number of blocks of a ring that may have share bytes. A ring has at least two
// blocks of minBlock, so that the rings of many interfaces may exceed RingBytes.
func ringSize(share int) (block, blocks int) {
	block = maxBlock
	for block > minBlock && share/block < 4 {
		block /= 2
	}
	return block, max(2, share/block)
}

// openRing opens a socket that receives nothing yet: its protocol is zero until bind. It must be called in the target's
// network namespace.
func openRing(l *links.Link, prog bpfprog.Program, block, blocks int) (*socketRing, error) {
	kind := unix.SOCK_RAW
	if l.Cooked() {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(unix.AF_PACKET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket (needs CAP_NET_RAW): %w", err)
	}
	r := &socketRing{fd: fd, block: block, blocks: blocks}
	if err := r.setup(l, prog); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *socketRing) setup(l *links.Link, prog bpfprog.Program) error {
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
		return fmt.Errorf("set TPACKET_V3: %w", err)
	}
	if l.Loopback() {
		// Each packet passes loopback twice, out and in; once is enough (as libpcap has it).
		if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
			return fmt.Errorf("ignore outgoing packets on %s (needs Linux 4.20): %w", l.Name, err)
		}
	}
	if err := r.attach(prog); err != nil {
		return err
	}
	req := unix.TpacketReq3{
		Block_size: uint32(r.block), Block_nr: uint32(r.blocks),
		Frame_size: frameSize, Frame_nr: uint32(r.block / frameSize * r.blocks),
		Retire_blk_tov: retireMillis,
	}
	if err := unix.SetsockoptTpacketReq3(r.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return fmt.Errorf("allocate ring of %d blocks of %d bytes: %w", r.blocks, r.block, err)
	}
	mem, err := unix.Mmap(r.fd, 0, r.block*r.blocks, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("map ring: %w", err)
	}
	r.mem = mem
	return nil
}

func (r *socketRing) attach(prog bpfprog.Program) error {
	filter := make([]unix.SockFilter, len(prog))
	for i, in := range prog {
		filter[i] = unix.SockFilter(in)
	}
	p := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(r.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &p); err != nil {
		return fmt.Errorf("attach filter of %d instructions: %w", len(prog), err)
	}
	return nil
}

// start binds the socket: packets arrive from here on, already filtered. An interface that is down is fine; the
// kernel attaches the socket when it comes up.
func (r *socketRing) start(index int) error {
	sa := &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: index}
	if err := unix.Bind(r.fd, sa); err != nil && !errors.Is(err, unix.ENETDOWN) {
		return fmt.Errorf("bind packet socket: %w", err)
	}
	return nil
}

// reject makes the filter refuse everything. A packet that has passed the filter before may still arrive, until stop
// returns.
func (r *socketRing) reject() error {
	return r.attach(bpfprog.Program{{Code: unix.BPF_RET | unix.BPF_K}})
}

// stop detaches the socket from its interface. The kernel waits for packets in flight (synchronize_net in
// packet_do_bind), so that its counts are final afterwards.
func (r *socketRing) stop() error {
	if err := unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: htons(unusedProtocol)}); err != nil {
		return fmt.Errorf("detach packet socket: %w", err)
	}
	return nil
}

// stats reads and resets the kernel's counters.
func (r *socketRing) stats() (ringStats, error) {
	s, err := unix.GetsockoptTpacketStatsV3(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return ringStats{}, fmt.Errorf("read packet statistics: %w", err)
	}
	// The kernel adds the drops to the packets when it is asked (packet_getsockopt).
	return ringStats{accepted: uint64(s.Packets - s.Drops), dropped: uint64(s.Drops), frozen: uint64(s.Freeze_q_cnt)}, nil
}

// sockErr reads and clears the socket's pending error, for example ENETDOWN.
func (r *socketRing) sockErr() error {
	n, err := unix.GetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return fmt.Errorf("read socket error: %w", err)
	}
	if n != 0 {
		return unix.Errno(n)
	}
	return nil
}

func (r *socketRing) close() error {
	var err error
	if r.mem != nil {
		err = unix.Munmap(r.mem)
		r.mem = nil
	}
	return errors.Join(err, unix.Close(r.fd))
}

// ready returns the next block, or nil if the kernel has not handed it over.
func (r *socketRing) ready() []byte {
	b := r.mem[r.next*r.block : (r.next+1)*r.block]
	if atomic.LoadUint32(&blockHeader(b).Block_status)&unix.TP_STATUS_USER == 0 {
		return nil
	}
	return b
}

// release gives the block that ready returned back to the kernel.
func (r *socketRing) release() {
	b := r.mem[r.next*r.block : (r.next+1)*r.block]
	atomic.StoreUint32(&blockHeader(b).Block_status, unix.TP_STATUS_KERNEL)
	r.next = (r.next + 1) % r.blocks
}

func blockHeader(b []byte) *unix.TpacketHdrV1 {
	_ = b[blockHeaderLen-1]
	return (*unix.TpacketHdrV1)(unsafe.Pointer(&b[blockHdrOffset]))
}

// firstTime returns the time stamp of a block's first packet in nanoseconds since 1970; zero if it has none. (The block
// header's own ts_first_pkt is the time at which the kernel opened the block.)
func firstTime(b []byte) uint64 {
	off := blockHeader(b).Offset_to_first_pkt
	if uint64(off)+uint64(frameHdrLen) > uint64(len(b)) {
		return 0
	}
	h := (*unix.Tpacket3Hdr)(unsafe.Pointer(&b[off]))
	return uint64(h.Sec)*1e9 + uint64(h.Nsec)
}

// htons swaps to network order; every architecture that Sonde is built for is little-endian.
func htons(v uint16) uint16 { return v<<8 | v>>8 }
