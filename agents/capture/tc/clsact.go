package tc

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
)

const (
	// namePrefix begins the name of each filter. The capture's UID and a random text of the process follow.
	namePrefix = "sonde:"
	// madeSuffix ends the name of a filter if a capture has created the queueing discipline.
	madeSuffix = ":made"
	// lockTimeout is how long to wait for another capture that changes filters in the same network namespace.
	lockTimeout = 5 * time.Second
)

// clsact attaches by filters of the queueing discipline clsact, for kernels before 6.6. The filters stay when the
// process is killed. Therefore each filter's name is also the address of a socket in the namespace, which the kernel
// closes with the process. The next capture removes filters without a socket. A process of the Pod can bind the address of
// a killed capture, and so keep its filters: to take a running capture for killed would be worse.
type clsact struct {
	tag    string
	socket int // -1 before the first attach
	lock   *filterLock
}

func newClsact(owner string, log *slog.Logger) *clsact {
	return &clsact{tag: namePrefix + owner + ":" + rand.Text()[:8], socket: -1, lock: newFilterLock(log)}
}

func (*clsact) name() string { return Clsact }

// check implements attacher.
func (c *clsact) check(ns int, indexes []int) error {
	return c.lock.do(ns, func(h *netlink.Handle) error {
		for _, index := range indexes {
			if _, err := placesOf(h, index); err != nil && !isGone(err) {
				return fmt.Errorf("attach at clsact: %w", err)
			}
		}
		return nil
	})
}

func (c *clsact) attach(ns, index int, in, out *ebpf.Program) (attachment, error) {
	a := &clsactFilters{ns: ns, index: index, sides: len(sides), tag: c.tag, lock: c.lock}
	if out == nil {
		a.sides = 1
	}
	err := c.lock.do(ns, func(h *netlink.Handle) error {
		if err := c.bind(h); err != nil {
			return err
		}
		return a.add(h, in, out)
	})
	if err != nil {
		return nil, fmt.Errorf("attach at clsact: %w", errors.Join(explain(err), a.Close()))
	}
	return a, nil
}

// bind binds this process's socket, once, and removes the filters of killed captures from the namespace.
func (c *clsact) bind(h *netlink.Handle) (err error) {
	if c.socket >= 0 {
		return nil
	}
	if c.socket, err = bindName(c.tag); err != nil {
		return err
	}
	_, err = sweepLocked(h)
	return err
}

// close closes the socket.
func (c *clsact) close() error {
	if c.socket < 0 {
		return nil
	}
	err := unix.Close(c.socket)
	c.socket = -1
	return err
}

// bindName returns a socket with an abstract address, which is unique in a network namespace.
func bindName(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + name}); err != nil {
		return -1, errors.Join(fmt.Errorf("bind socket %s: %w", name, err), unix.Close(fd))
	}
	return fd, nil
}

// isDead reports whether the process that added a filter of this name has ended.
func isDead(name string) bool {
	fd, err := bindName(strings.TrimSuffix(name, madeSuffix))
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// Sweep removes the filters of killed captures at clsact from a network namespace; nil is the caller's own. It keeps
// the filters of running captures and of other programs, and returns how many filters it has removed.
func Sweep(ns *os.File) (removed int, err error) {
	fd := -1
	if ns != nil {
		fd = int(ns.Fd())
	}
	err = newFilterLock(slog.New(slog.DiscardHandler)).do(fd, func(h *netlink.Handle) error {
		removed, err = sweepLocked(h)
		return err
	})
	if err != nil {
		return removed, fmt.Errorf("sweep clsact: %w", err)
	}
	return removed, nil
}

// sweepLocked is Sweep for a caller that holds the lock.
func sweepLocked(h *netlink.Handle) (removed int, err error) {
	all, err := listAll(h.LinkList)
	if err != nil {
		return 0, fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, l := range all {
		n, err := removeFilters(h, l.Attrs().Index, true, isDead)
		removed += n
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// filterLock is held by a capture that changes filters in a network namespace.
type filterLock struct {
	timeout time.Duration
	log     *slog.Logger
	// expired is set when timeout has passed without the lock.
	expired bool
}

func newFilterLock(log *slog.Logger) *filterLock { return &filterLock{timeout: lockTimeout, log: log} }

// do runs fn in a network namespace while no other capture changes filters there, so that fn's listings stay true.
func (l *filterLock) do(ns int, fn func(h *netlink.Handle) error) error {
	return links.InNetNS(ns, func() error {
		lock, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return fmt.Errorf("open network namespace: %w", err)
		}
		defer lock.Close() // unlocks, as the end of the process does
		l.await(int(lock.Fd()))
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		defer h.Close()
		return fn(h)
	})
}

// await waits for the lock, once for timeout, which is longer than any capture holds it. A process of the target may hold it for
// ever. It must not block a capture or its end, nor delay each change.
func (l *filterLock) await(fd int) {
	for end := time.Now().Add(l.timeout); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || l.expired {
			return
		}
		if !time.Now().Before(end) {
			l.expired = true
			l.log.Warn("Changing filters without the lock, which another process holds", "waited", l.timeout)
			return
		}
	}
}
