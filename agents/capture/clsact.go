package capture

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// clsactPrefix begins the name of each filter, behind which are the capture's UID and a number of the process's own.
	clsactPrefix = "sonde:"
	// clsactMade ends the name of a filter where the discipline was made by a capture, not found.
	clsactMade = ":made"
	// clsactPatience is how long to wait for another capture that changes something in the same network namespace.
	clsactPatience = 5 * time.Second
)

// clsact attaches by filters of the queueing discipline of that name, for kernels before 6.6. They stay when the process is
// killed, so each has a name that says whose it is; a socket in the namespace has the same one as its address, and goes with
// the process. Whoever comes next takes away the filters whose socket there is none of.
type clsact struct {
	tag    string
	socket int // -1 is none yet
}

func newClsact(owner string) *clsact {
	return &clsact{tag: clsactPrefix + owner + ":" + rand.Text()[:8], socket: -1}
}

func (*clsact) name() string { return ByClsact }

// fits implements attacher.
func (*clsact) fits(ns int, indexes []int) error {
	return inClsact(ns, func(h *netlink.Handle) error {
		for _, index := range indexes {
			if _, err := placesOf(h, index); err != nil && !isGone(err) {
				return fmt.Errorf("attach at clsact: %w", err)
			}
		}
		return nil
	})
}

func (c *clsact) attach(ns, index int, in, out *ebpf.Program) (attachment, error) {
	a := &clsactFilters{ns: ns, index: index, tag: c.tag}
	err := inClsact(ns, func(h *netlink.Handle) error {
		if err := c.live(h); err != nil {
			return err
		}
		return a.add(h, in, out)
	})
	if err != nil {
		return nil, fmt.Errorf("attach at clsact: %w", errors.Join(explain(err), a.Close()))
	}
	return a, nil
}

// live shows that this process lives, and takes away what dead ones have left in the namespace; once.
func (c *clsact) live(h *netlink.Handle) (err error) {
	if c.socket >= 0 {
		return nil
	}
	if c.socket, err = bindName(c.tag); err != nil {
		return err
	}
	_, err = sweepClsact(h)
	return err
}

// close ends the showing.
func (c *clsact) close() error {
	if c.socket < 0 {
		return nil
	}
	err := unix.Close(c.socket)
	c.socket = -1
	return err
}

// bindName makes a socket with an abstract address, of which a network namespace has each once.
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

// isDead tells whether the process is gone that made a filter of this name.
func isDead(name string) bool {
	fd, err := bindName(strings.TrimSuffix(name, clsactMade))
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// Sweep takes away what captures whose process was killed have left at clsact in a network namespace; nil is the caller's
// own. It leaves alone what lives and what is others', and returns how many filters it has removed.
func Sweep(ns *os.File) (removed int, err error) {
	fd := -1
	if ns != nil {
		fd = int(ns.Fd())
	}
	err = inClsact(fd, func(h *netlink.Handle) error {
		removed, err = sweepClsact(h)
		return err
	})
	if err != nil {
		return removed, fmt.Errorf("sweep clsact: %w", err)
	}
	return removed, nil
}

// sweepClsact is Sweep where the lock is held.
func sweepClsact(h *netlink.Handle) (removed int, err error) {
	links, err := entire(h.LinkList)
	if err != nil {
		return 0, fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		n, err := removeFilters(h, l.Attrs().Index, isDead)
		removed += n
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// inClsact runs fn in a network namespace while no other capture changes anything at clsact there: what one finds stays so
// until it has made its own of it.
func inClsact(ns int, fn func(h *netlink.Handle) error) error {
	return inNetNS(ns, func() error {
		lock, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return fmt.Errorf("open network namespace: %w", err)
		}
		defer lock.Close() // unlocks, as does the process's end
		awaitLock(int(lock.Fd()))
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		defer h.Close()
		return fn(h)
	})
}

// awaitLock waits no longer than any capture takes: a process of the target's can hold the lock, too, and must not hold up
// a capture, nor its end.
func awaitLock(fd int) {
	for end := time.Now().Add(clsactPatience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
