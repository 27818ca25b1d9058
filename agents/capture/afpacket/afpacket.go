// Package afpacket is the capture backend that reads packets by packet sockets. It has a memory-mapped TPACKET_V3 ring per
// interface (Documentation/networking/packet_mmap.rst of the Linux source), because only then the kernel's drops are known
// for each interface. The filter runs in the kernel, before the ring.
//
//	ring.go      the kernel fills a block of a ring and hands it over, full or after 100 ms
//	afpacket.go  the block with the oldest packets is next
//	encode.go    its packets become pcapng blocks in place (frame.go reads the kernel's headers)
//
// At the end each socket gets a filter that rejects everything, and is detached from its interface, which waits for
// packets in flight. Then the kernel's counts are read and the rings emptied: as many packets as the kernel counted
// must come out.
package afpacket

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Name of the backend in the account.
const Name = "afpacket"

const (
	// readBlocks is how many ring blocks one Read writes at most.
	readBlocks = 16
	// drainTimeout is how long a stopped ring may take to hand over its last block, which the kernel retires by timer.
	drainTimeout = uint64(5 * time.Second)
	// maxRetire is the age of a packet that the kernel has handed over: twice its timer's period, and what a busy CPU adds.
	maxRetire = 3 * retireMillis * time.Millisecond
)

// Backend reads packets by a socket for each interface.
type Backend struct {
	cfg       *backend.Config
	shares    int // number of shares of RingBytes
	sources   []*source
	batch     record.Batch
	lastBlock uint64 // when a block was read last, by CLOCK_MONOTONIC
	readTo    uint64 // all packets up to this time were read, in nanoseconds since 1970
}

// New returns a backend. It needs CAP_NET_RAW, and CAP_SYS_ADMIN for another network namespace.
func New(cfg *backend.Config) *Backend { return &Backend{cfg: cfg} }

// Prepare implements backend.Backend.
func (b *Backend) Prepare(existing []links.Link) error {
	later := len(b.cfg.Interfaces)
	for i := range existing {
		if !existing[i].Gone && b.cfg.Wants(&existing[i]) {
			b.shares += sharesOf(existing[i].Loopback())
			later--
		}
	}
	b.shares = max(b.shares+sharesOf(false)*max(later, 0), 1)
	return nil
}

// Open implements backend.Backend.
func (b *Backend) Open(l *links.Link, late bool) (backend.Source, error) {
	lt, _ := l.LinkType()
	filter, err := b.cfg.Filter(lt)
	if err != nil {
		return nil, err
	}
	block, blocks := b.nextRing(l, late)
	s := &source{b: b, enc: encoder{snapLen: b.cfg.Recorder.SnapLen(), tags: lt == pcapng.LinkTypeEthernet}}
	err = links.InNetNS(b.cfg.NetNS, func() (err error) {
		s.ring, err = openRing(l, filter, block, blocks)
		return err
	})
	if err != nil {
		return nil, err
	}
	b.sources = append(b.sources, s)
	return s, nil
}

// nextRing returns the size of the next ring. Interfaces that exist at the start share RingBytes. Later ones share as
// much again: each gets at most half of the rest. So all rings together stay within twice RingBytes plus the least
// sizes.
func (b *Backend) nextRing(l *links.Link, late bool) (block, blocks int) {
	share := b.cfg.RingBytes * sharesOf(l.Loopback()) / b.shares
	if late {
		bytes := 0
		for _, s := range b.sources {
			bytes += len(s.ring.mem)
		}
		share = min(share, max(0, 2*b.cfg.RingBytes-bytes)/2)
	}
	return ringSize(share)
}

// Sources implements backend.Backend.
func (b *Backend) Sources() int { return len(b.sources) }

// Read implements backend.Backend. It writes up to readBlocks blocks, each time the one with the oldest packets. So the
// file is in time order, except for packets that the kernel hands over later (up to two retire times).
func (b *Backend) Read() (time.Duration, error) {
	began := backend.Now(unix.CLOCK_REALTIME)
	for n := range readBlocks {
		s, block := b.oldest()
		if s == nil {
			b.readTo = began - uint64(maxRetire)
		}
		if s == nil && n == 0 {
			if backend.IsQuiet(b.lastBlock, backend.Now(unix.CLOCK_MONOTONIC)) {
				return recording.UntilNext(ring.QuietInterval), nil
			}
			return backend.Interval, nil
		}
		if s == nil {
			break
		}
		s.write(block)
		s.ring.release()
		b.lastBlock = backend.Now(unix.CLOCK_MONOTONIC)
		if b.cfg.Recorder.Ended() {
			break
		}
	}
	return 0, nil
}

func (b *Backend) oldest() (*source, []byte) {
	var (
		first  uint64
		oldest *source
		block  []byte
	)
	for _, s := range b.sources {
		ready := s.ring.ready()
		if ready == nil {
			continue
		}
		if t := firstTime(ready); oldest == nil || t < first {
			first, oldest, block = t, s, ready
		}
	}
	return oldest, block
}

// ReadTo implements backend.Backend.
func (b *Backend) ReadTo() uint64 { return b.readTo }

// CountLost implements backend.Backend.
func (b *Backend) CountLost() error {
	for _, s := range b.sources {
		if s.stopped {
			continue
		}
		if err := s.readStats(); err != nil {
			return err
		}
		b.cfg.Recorder.PublishInterface(s.iface)
	}
	return nil
}

// HandleError implements backend.Backend: it logs that an interface went down. The kernel attaches the socket again
// when the interface comes up. rtnetlink reports a deletion to the engine.
func (b *Backend) HandleError(fd int) {
	for _, s := range b.sources {
		if s.ring.fd != fd {
			continue
		}
		if err := s.ring.sockErr(); err != nil {
			b.cfg.Log.Info("Interface reports an error", "interface", s.iface.Account.Name, "error", err)
		}
	}
}

// Shut implements backend.Backend.
func (b *Backend) Shut() error {
	var errs []error
	for _, s := range b.sources {
		if !s.stopped {
			errs = append(errs, s.ring.reject())
		}
	}
	return errors.Join(errs...)
}

// Reap implements backend.Backend. It closes stopped rings that are empty, or that have given nothing for drainTimeout.
// Packets that the kernel counted and did not hand over then count as dropped by the kernel. The kernel retires a
// partly filled block by timer, so this takes up to two retire times.
func (b *Backend) Reap() {
	left := b.sources[:0]
	for _, s := range b.sources {
		if !s.stopped || (!s.drained() && !s.stuck(backend.Now(unix.CLOCK_MONOTONIC))) {
			left = append(left, s)
			continue
		}
		if s.accepted > s.read {
			s.iface.Lose(s.accepted-s.read, &s.iface.Account.DroppedKernel)
		}
		if err := s.ring.close(); err != nil {
			b.cfg.Log.Warn("Closing packet socket failed", "interface", s.iface.Account.Name, "error", err)
		}
		b.cfg.Recorder.PublishInterface(s.iface)
	}
	clear(b.sources[len(left):])
	b.sources = left
}

// Close implements backend.Backend.
func (b *Backend) Close() error {
	var errs []error
	for _, s := range b.sources {
		errs = append(errs, s.ring.close())
	}
	b.sources = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close packet sockets: %w", err)
	}
	return nil
}
