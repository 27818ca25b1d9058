package capture

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/pcapng"
)

// NewAFPacket returns the engine that reads memory-mapped packet sockets, one per interface. It needs CAP_NET_RAW and,
// for another namespace, CAP_SYS_ADMIN.
func NewAFPacket() Engine { return &afPacket{create: createFile} }

type afPacket struct {
	create func(path string, mode os.FileMode) (output, error)
}

// afCapture is one capture of the engine. All fields but mu and snap belong to the goroutine in Open, then Run.
type afCapture struct {
	cfg   Config
	log   *slog.Logger
	netns int // -1 is our own
	links *linkWatch
	epoll int
	wake  int // eventfd that ends a wait

	block, blocks int // size of the rings of the start
	maxRings      int
	sources       []*source
	skipped       []InterfaceAccount // interfaces that are not captured, with a note

	path  string
	out   output
	size  uint64 // bytes of whole blocks in the file
	start uint64 // when the capture was attached, in nanoseconds since 1970
	batch batch
	end   ending

	mu   sync.Mutex
	snap Account
}

// ending is why packets are no longer written, if so.
type ending struct {
	reason Reason
	err    error
}

func (e *afPacket) Open(cfg *Config) (Capture, error) {
	c := &afCapture{cfg: *cfg, netns: -1, epoll: -1, wake: -1, maxRings: maxRings}
	c.defaults()
	if err := c.open(e.create); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

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

func (c *afCapture) open(create func(string, os.FileMode) (output, error)) error {
	if err := c.openNamespace(); err != nil {
		return err
	}
	if err := c.openWaits(); err != nil {
		return err
	}
	c.path = filepath.Join(c.cfg.Dir, c.cfg.Base+".pcapng")
	out, err := create(c.path, c.cfg.FileMode)
	if err != nil {
		return err
	}
	c.out = out
	header := pcapng.AppendSection(nil, &c.cfg.Section)
	if uint64(len(header)) > c.room().bytes {
		return fmt.Errorf("start capture file: %d bytes are less than its header: raise the limit", c.cfg.MaxBytes)
	}
	if err := c.append(header); err != nil {
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

// room is what the limits leave, after the space that the final statistics need.
func (c *afCapture) room() room {
	r := room{packets: math.MaxUint64, bytes: math.MaxUint64}
	if c.cfg.MaxPackets > 0 {
		r.packets = uint64(c.cfg.MaxPackets)
		for _, s := range c.sources {
			r.packets -= s.acct.Written
		}
	}
	if c.cfg.MaxBytes > 0 {
		used := c.size + uint64(len(c.sources))*statisticsLen
		r.bytes = uint64(c.cfg.MaxBytes) - min(used, uint64(c.cfg.MaxBytes))
	}
	return r
}

// now reads a clock in nanoseconds.
func now(clock int32) uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0 // only possible for a clock that does not exist
	}
	return uint64(ts.Nano())
}
