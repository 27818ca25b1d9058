package capture

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	// passBlocks is how many ring blocks are written before anything else is looked at.
	passBlocks = 16
	// drainTimeout is how long a parked ring may take to hand over its last block, which the kernel retires by timer.
	drainTimeout = uint64(5 * time.Second)
)

// sockets takes packets by a socket for each interface.
type sockets struct {
	*session

	parts   int // what RingBytes is divided into
	sources []*source
	batch   batch
	came    uint64 // when a block was taken last, by the monotonic clock
}

// bySockets takes packets by sockets.
func bySockets(s *session) taker { return &sockets{session: s} }

func (*sockets) name() string { return ByAFPacket }

func (c *sockets) prepare(links []link) error {
	later := len(c.cfg.Interfaces)
	for i := range links {
		if !links[i].gone && c.wants(&links[i]) {
			c.parts += partsOf(links[i].loopback())
			later--
		}
	}
	c.parts = max(c.parts+partsOf(false)*max(later, 0), 1)
	return nil
}

func (c *sockets) tap(l *link, lt pcapng.LinkType) (tap, error) {
	prog, err := c.program(lt)
	if err != nil {
		return nil, err
	}
	block, blocks := c.nextRing(l)
	s := &source{sockets: c, enc: encoder{snapLen: c.rec.snapLen(), tags: lt == pcapng.LinkTypeEthernet}}
	err = inNetNS(c.netns, func() (err error) {
		s.ring, err = openRing(l, prog, block, blocks)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.sources = append(c.sources, s)
	return s, nil
}

// nextRing is the size of the next ring. Those of the start share RingBytes; each later one gets at most half of what
// is left of as much again, so that all together stay within twice RingBytes and the least size for each.
func (c *sockets) nextRing(l *link) (block, blocks int) {
	share := c.cfg.RingBytes * partsOf(l.loopback()) / c.parts
	if c.attached {
		bytes := 0
		for _, s := range c.sources {
			bytes += len(s.ring.mem)
		}
		share = min(share, max(0, 2*c.cfg.RingBytes-bytes)/2)
	}
	return ringSize(share)
}

func (c *sockets) taps() int { return len(c.sources) }

// pass takes up to passBlocks blocks, each time the one with the oldest packets, so that the file is in time order but
// for what the kernel has not handed over yet (two retire times).
func (c *sockets) pass() (time.Duration, error) {
	for n := range passBlocks {
		s, block := c.oldest()
		if s == nil && n == 0 {
			if isQuiet(c.came, now(unix.CLOCK_MONOTONIC)) {
				return recording.UntilNext(ring.Quiet), nil
			}
			return pollEvery, nil
		}
		if s == nil {
			break
		}
		s.take(block)
		s.ring.release()
		c.came = now(unix.CLOCK_MONOTONIC)
		if c.rec.over() {
			break
		}
	}
	return 0, nil
}

func (c *sockets) oldest() (*source, []byte) {
	var (
		first  uint64
		oldest *source
		block  []byte
	)
	for _, s := range c.sources {
		b := s.ring.ready()
		if b == nil {
			continue
		}
		if t := firstTime(b); oldest == nil || t < first {
			first, oldest, block = t, s, b
		}
	}
	return oldest, block
}

func (c *sockets) poll() error {
	for _, s := range c.sources {
		if s.parked {
			continue
		}
		if err := s.poll(); err != nil {
			return err
		}
		c.rec.publishTrack(s.track)
	}
	return nil
}

// failed takes note of an interface that went down. Its socket attaches again by itself when it comes up; if it is
// deleted, the link watch says so.
func (c *sockets) failed(fd int) {
	for _, s := range c.sources {
		if s.ring.fd != fd {
			continue
		}
		if err := s.ring.sockErr(); err != nil {
			c.log.Info("Interface reports an error", "interface", s.acct.Name, "error", err)
		}
	}
}

func (c *sockets) refuse() error {
	var errs []error
	for _, s := range c.sources {
		if !s.parked {
			errs = append(errs, s.ring.reject())
		}
	}
	return errors.Join(errs...)
}

// settle closes the rings that are parked and empty, or that have not moved for drainTimeout; what the kernel then still
// owes counts as dropped by it. It retires a block that is not full by timer, so that this takes up to two retire times.
func (c *sockets) settle() {
	left := c.sources[:0]
	for _, s := range c.sources {
		if !s.parked || (!s.drained() && !s.stuck(now(unix.CLOCK_MONOTONIC))) {
			left = append(left, s)
			continue
		}
		if s.accepted > s.walked {
			s.lose(s.accepted-s.walked, &s.acct.DroppedKernel)
		}
		if err := s.ring.close(); err != nil {
			c.log.Warn("Closing packet socket failed", "interface", s.acct.Name, "error", err)
		}
		c.rec.publishTrack(s.track)
	}
	clear(c.sources[len(left):])
	c.sources = left
}

func (c *sockets) close() error {
	var errs []error
	for _, s := range c.sources {
		errs = append(errs, s.ring.close())
	}
	c.sources = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close packet sockets: %w", err)
	}
	return nil
}
