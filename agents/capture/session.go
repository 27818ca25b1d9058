package capture

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/afpacket"
	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/capture/tc"
)

// engine opens captures with the first of its backends that is available.
type engine struct {
	candidates []candidate
	create     record.CreateFunc
}

// session is one capture: it follows the interfaces of the namespace and runs the backend. All fields but wake belong to the
// goroutine in Open, then Run.
type session struct {
	cfg   Config
	rec   *record.Recorder
	netns int // -1 is our own
	links *links.Watch
	poll  *poller
	wake  int // eventfd that ends a wait

	shared     *backend.Config // the same for every backend
	backend    backend.Backend
	maxSources int
	sources    []*source
	attached   bool // to all interfaces that existed at the start
	filters    bool // others' filters may hide packets; links follows them
	programs   bool // others' programs may hide packets; the kernel announces no changes
	checked    int  // the source that was checked last
	// maxInterfaces bounds the captured interfaces, deleted ones included. unlisted counts the skipped ones without a note.
	maxInterfaces, unlisted int

	served uint64  // when packets were last written for readers of the growing file, by CLOCK_MONOTONIC
	next   horizon // for these readers, when it is in the file; its time is zero if there is none

	closing sync.Mutex // guards wake
}

// source is an interface of the capture.
type source struct {
	backend.Source
	iface   *record.Interface
	stopped bool
	suspect bool // others may have detached it
	xdp     bool // its interface is known to have had an XDP program
	l3s     bool // its interface is known to have been an ipvlan in mode L3S
	late    bool // the message of its interface's end will say whether packets passed before the capture was attached
}

func (s *source) stop() error {
	s.stopped = true
	return s.Stop()
}

// Open implements Engine.
func (e *engine) Open(cfg *Config) (Capture, error) {
	s := newSession(cfg, e.create)
	if err := s.open(e.candidates); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func newSession(cfg *Config, create record.CreateFunc) *session {
	s := &session{cfg: cfg.withDefaults(), netns: -1, wake: -1, maxSources: maxSources, maxInterfaces: maxInterfaces}
	s.rec = record.New(s.cfg.record(), s.cfg.Log, create)
	return s
}

// Account implements Capture.
func (s *session) Account() record.Account { return s.rec.Account() }

func (s *session) open(all []candidate) error {
	existing, err := s.openLinks()
	if err != nil {
		return err
	}
	if err := s.prepare(all, existing); err != nil {
		return err
	}
	if err := s.rec.Open(); err != nil {
		return err
	}
	return s.attachAll(existing)
}

// try prepares a backend and nothing else.
func (s *session) try(c candidate) error {
	existing, err := s.openLinks()
	if err != nil {
		return err
	}
	s.backend = c.new(s.shared)
	return s.backend.Prepare(existing)
}

// openLinks opens the namespace and the poller for any backend, and lists the interfaces.
func (s *session) openLinks() ([]links.Link, error) {
	if err := s.openNamespace(); err != nil {
		return nil, err
	}
	if err := s.openPoller(); err != nil {
		return nil, err
	}
	s.shared = &backend.Config{
		NetNS: s.netns, Owner: s.cfg.Owner, Interfaces: s.cfg.Interfaces, Filters: s.cfg.Filters, RingBytes: s.cfg.RingBytes,
		Processes: s.cfg.Processes, Recorder: s.rec, Watch: s.poll.add, Log: s.cfg.Log,
	}
	return s.links.List()
}

// prepare chooses the first backend that is available. If BPF programs fail for another reason than a missing feature of
// the kernel, they would fail at the other attach point, too.
func (s *session) prepare(all []candidate, existing []links.Link) error {
	var refused []string
	var last error
	for _, c := range all {
		if c.name == tc.Clsact && last != nil && !errors.Is(last, ebpf.ErrNotSupported) {
			continue
		}
		s.backend = c.new(s.shared)
		err := s.backend.Prepare(existing)
		if err == nil {
			s.rec.SetEngine(c.name, strings.Join(refused, "; "))
			if s.cfg.Processes != nil && c.name == afpacket.Name {
				s.rec.SetProcesses(record.Processes{Message: "packet sockets do not show processes: use engine bpf, which says why it does not work here"})
			}
			s.programs = c.name == tc.TCX
			if c.name == tc.Clsact { // elsewhere nothing but the interface's end removes what a capture attaches
				s.filters = true
				return s.links.FollowFilters()
			}
			return nil
		}
		last = err
		s.cfg.Log.Info("Passing over a backend", "backend", c.name, "error", err)
		refused = append(refused, c.name+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
		if err := s.backend.Close(); err != nil {
			return err
		}
	}
	s.backend = nil
	text := strings.Join(refused, "; ")
	if errors.Is(last, tc.ErrUnavailable) {
		// Packet sockets were not allowed. The remedy comes first, because statuses cut long messages.
		return fmt.Errorf("engine bpf does not work on this node, use auto or afpacket: %s", text)
	}
	return errors.New(text)
}

// openNamespace duplicates the namespace, because later interfaces are opened in it during Run, and watches its interfaces.
func (s *session) openNamespace() error {
	if s.cfg.NetNS != nil {
		fd, err := unix.FcntlInt(s.cfg.NetNS.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("duplicate network namespace: %w", err)
		}
		s.netns = fd
	}
	return links.InNetNS(s.netns, func() (err error) {
		s.links, err = links.NewWatch()
		return err
	})
}

func (s *session) openPoller() (err error) {
	if s.poll, err = newPoller(); err != nil {
		return err
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("create eventfd: %w", err)
	}
	return errors.Join(s.poll.add(s.wake), s.poll.add(s.links.FD()))
}

// Close releases everything except the files.
func (s *session) Close() error {
	var errs []error
	if s.backend != nil {
		errs = append(errs, s.backend.Close())
		s.backend = nil
	}
	if s.links != nil {
		errs = append(errs, s.links.Close())
		s.links = nil
	}
	s.closing.Lock() // interrupt may be running
	defer s.closing.Unlock()
	if s.poll != nil {
		errs = append(errs, s.poll.close())
		s.poll = nil
	}
	for _, fd := range []*int{&s.wake, &s.netns} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	errs = append(errs, s.rec.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close capture: %w", err)
	}
	return nil
}
