package capture

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/disk"
)

// sessions is an engine: how a capture takes its packets, and where it writes them.
type sessions struct {
	ways   []way // tried in this order
	create createFunc
	space  disk.SpaceFunc // nil asks the kernel
}

// session is one capture, however it takes its packets: it follows the interfaces of the namespace, and ends. All fields but
// wake belong to the goroutine in Open, then Run.
type session struct {
	rec   *recorder
	cfg   Config
	log   *slog.Logger
	netns int // -1 is our own
	links *linkWatch
	waits *waits
	wake  int // eventfd that ends a wait

	taker    taker
	maxTaps  int
	tapped   []*tapped
	attached bool // all interfaces that were there at the start

	closing sync.Mutex // of wake
}

// Open implements Engine.
func (e *sessions) Open(cfg *Config) (Capture, error) {
	s := &session{cfg: *cfg, netns: -1, wake: -1, maxTaps: maxTaps}
	s.defaults()
	s.rec = newRecorder(&s.cfg, s.log, e.create)
	s.rec.space = e.space
	if err := s.open(e.ways); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Account implements Capture.
func (s *session) Account() Account { return s.rec.Account() }

func (s *session) defaults() {
	if s.cfg.SnapLen <= 0 || s.cfg.SnapLen > DefaultSnapLen {
		s.cfg.SnapLen = DefaultSnapLen
	}
	if s.cfg.RingBytes <= 0 {
		s.cfg.RingBytes = DefaultRingBytes
	}
	if s.cfg.FileMode == 0 {
		s.cfg.FileMode = defaultFileMode
	}
	s.log = s.cfg.Log
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
}

// way makes what takes the packets of a session.
type way func(*session) taker

func (s *session) open(ways []way) error {
	if err := s.openNamespace(); err != nil {
		return err
	}
	if err := s.openWaits(); err != nil {
		return err
	}
	links, err := s.links.list()
	if err != nil {
		return err
	}
	if err := s.prepare(ways, links); err != nil {
		return err
	}
	if err := s.rec.open(); err != nil {
		return err
	}
	return s.attachAll(links)
}

// prepare takes the first way that can be had. Programs are attached in two ways: the second is tried where the kernel does
// not have the first, and not where something else is in the way of both.
func (s *session) prepare(ways []way, links []link) error {
	var refused []string
	var last error
	hopeless := false
	for _, way := range ways {
		s.taker = way(s)
		if _, ok := s.taker.(*blocks); ok && hopeless {
			continue
		}
		err := s.taker.prepare(links)
		if err == nil {
			s.rec.takenBy(s.taker.name(), strings.Join(refused, "; "))
			return nil
		}
		last, hopeless = err, !errors.Is(err, ebpf.ErrNotSupported)
		s.log.Info("Passing over a way to take packets", "way", s.taker.name(), "error", err)
		refused = append(refused, s.taker.name()+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
		if err := s.taker.close(); err != nil {
			return err
		}
	}
	s.taker = nil
	text := strings.Join(refused, "; ")
	if errors.Is(last, errNoPrograms) {
		// Packet sockets were not to be tried. What to do comes first: statuses cut what is long.
		return fmt.Errorf("engine bpf does not work here, auto or afpacket can be had: %s", text)
	}
	return errors.New(text)
}

// openNamespace duplicates the namespace, as later interfaces are opened in it during Run, and listens for them.
func (s *session) openNamespace() error {
	if s.cfg.NetNS != nil {
		fd, err := unix.FcntlInt(s.cfg.NetNS.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("duplicate network namespace: %w", err)
		}
		s.netns = fd
	}
	return inNetNS(s.netns, func() (err error) {
		s.links, err = openLinkWatch()
		return err
	})
}

func (s *session) openWaits() (err error) {
	if s.waits, err = newWaits(); err != nil {
		return err
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("create eventfd: %w", err)
	}
	return errors.Join(s.waits.add(s.wake), s.waits.add(s.links.fd))
}

// Close lets go of everything that is open; the file stays.
func (s *session) Close() error {
	var errs []error
	if s.taker != nil {
		errs = append(errs, s.taker.close())
		s.taker = nil
	}
	if s.links != nil {
		errs = append(errs, s.links.close())
		s.links = nil
	}
	s.closing.Lock() // interrupt may be under way
	defer s.closing.Unlock()
	if s.waits != nil {
		errs = append(errs, s.waits.close())
		s.waits = nil
	}
	for _, fd := range []*int{&s.wake, &s.netns} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	errs = append(errs, s.rec.close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close capture: %w", err)
	}
	return nil
}
