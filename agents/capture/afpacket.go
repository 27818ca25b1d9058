package capture

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/disk"
)

// NewAFPacket returns the engine that reads memory-mapped packet sockets, one per interface. It needs CAP_NET_RAW and,
// for another namespace, CAP_SYS_ADMIN.
func NewAFPacket() Engine { return &afPacket{create: createFile} }

type afPacket struct {
	create createFunc
	space  disk.SpaceFunc // nil asks the kernel
}

// afCapture is one capture of the engine. All fields but mu belong to the goroutine in Open, then Run.
type afCapture struct {
	rec   *recorder
	cfg   Config
	log   *slog.Logger
	netns int // -1 is our own
	links *linkWatch
	epoll int
	wake  int // eventfd that ends a wait

	parts    int // what RingBytes is divided into
	maxRings int
	sources  []*source
	attached bool // all interfaces that were there at the start
	batch    batch

	closing sync.Mutex // of wake
}

func (e *afPacket) Open(cfg *Config) (Capture, error) {
	c := &afCapture{cfg: *cfg, netns: -1, epoll: -1, wake: -1, maxRings: maxRings}
	c.defaults()
	c.rec = newRecorder(&c.cfg, c.log, e.create)
	c.rec.space = e.space
	if err := c.open(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Account implements Capture.
func (c *afCapture) Account() Account { return c.rec.Account() }

func (c *afCapture) defaults() {
	if c.cfg.SnapLen <= 0 || c.cfg.SnapLen > DefaultSnapLen {
		c.cfg.SnapLen = DefaultSnapLen
	}
	if c.cfg.RingBytes <= 0 {
		c.cfg.RingBytes = DefaultRingBytes
	}
	if c.cfg.FileMode == 0 {
		c.cfg.FileMode = defaultFileMode
	}
	c.log = c.cfg.Log
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
}

func (c *afCapture) open() error {
	if err := c.openNamespace(); err != nil {
		return err
	}
	if err := c.openWaits(); err != nil {
		return err
	}
	if err := c.rec.open(); err != nil {
		return err
	}
	return c.attachAll()
}

// openNamespace duplicates the namespace, as later interfaces are opened in it during Run, and listens for them.
func (c *afCapture) openNamespace() error {
	if c.cfg.NetNS != nil {
		fd, err := unix.FcntlInt(c.cfg.NetNS.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("duplicate network namespace: %w", err)
		}
		c.netns = fd
	}
	return inNetNS(c.netns, func() (err error) {
		c.links, err = openLinkWatch()
		return err
	})
}

func (c *afCapture) openWaits() (err error) {
	if c.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("create epoll: %w", err)
	}
	if c.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("create eventfd: %w", err)
	}
	return errors.Join(c.await(c.wake), c.await(c.links.fd))
}

func (c *afCapture) await(fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("add to epoll: %w", err)
	}
	return nil
}

// now reads a clock in nanoseconds.
func now(clock int32) uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0 // only possible for a clock that does not exist
	}
	return uint64(ts.Nano())
}
