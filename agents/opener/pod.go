package opener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/opener/steer"
	"github.com/sonde-operator/sonde/internal/wire/handover"
)

// backlog of the carrier's listeners. The kernel cuts it to net.core.somaxconn.
const backlog = 4096

// pod is the target's network namespace with the attached program. It implements handover.Pod.
type pod struct {
	ns      *os.File
	program *steer.Program
	filter  filter
	dialer  dialer
	log     *slog.Logger
	// listeners are open until they are handed over.
	listeners []*os.File

	mu sync.Mutex
	// stopped: steering has ended for good.
	stopped bool
}

// open makes the listeners and attaches the program, which steers no port yet.
func open(ns *process.NetNS) (*pod, error) {
	program, err := steer.Load()
	if err != nil {
		return nil, err
	}
	filter, err := loadFilter()
	if err != nil {
		return nil, errors.Join(err, program.Close())
	}
	p := &pod{ns: ns.File, program: program, filter: filter}
	p.dialer = dialer{socket: p.socket, except: program.Except, endException: program.EndException}
	if err := errors.Join(p.listen(), p.dialer.readPorts(ns.File)); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if err := program.Attach(ns.File); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// socket makes a TCP socket in the namespace, with the filter: the carrier gets it, or what it accepts. It is not of MPTCP, which the
// map of sockets refuses.
func (p *pod) socket(family int) (fd int, err error) {
	err = links.InNetNS(int(p.ns.Fd()), func() error {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return -1, err
	}
	if err := p.filter.confine(fd); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// listen makes the listeners at loopback addresses and registers them. A Pod may lack IPv6.
func (p *pod) listen() error {
	for slot, address := range []unix.Sockaddr{
		steer.SlotIPv4: &unix.SockaddrInet4{Addr: loopback4.As4()},
		steer.SlotIPv6: &unix.SockaddrInet6{Addr: loopback6.As16()},
	} {
		f, err := p.listenAt(address)
		if slot == steer.SlotIPv6 && (errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT)) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listen in the Pod's network namespace: %w", err)
		}
		p.listeners = append(p.listeners, f)
		if err := p.program.Listen(uint32(slot), f); err != nil {
			return err
		}
	}
	return nil
}

func (p *pod) listenAt(address unix.Sockaddr) (*os.File, error) {
	family := unix.AF_INET6
	if _, ok := address.(*unix.SockaddrInet4); ok {
		family = unix.AF_INET
	}
	fd, err := p.socket(family)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "listener")
	err = os.NewSyscallError("bind", unix.Bind(fd, address))
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, backlog))
	}
	if err == nil {
		var bound unix.Sockaddr
		if bound, err = unix.Getsockname(fd); err == nil {
			p.dialer.listeners = append(p.dialer.listeners, addrPortOf(bound))
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// handOver gives the listeners to the carrier. Here they are closed: otherwise the kernel would steer to a dead carrier.
func (p *pod) handOver(session *handover.Session) error {
	err := session.HandOver(p.listeners...)
	return errors.Join(err, p.closeListeners())
}

func (p *pod) closeListeners() error {
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	p.listeners = nil
	return errors.Join(errs...)
}

// Steer implements handover.Pod.
func (p *pod) Steer(port uint16, on bool) error {
	if err := p.program.SetPort(port, on); err != nil {
		p.log.Error("Steering a port failed", "port", port, "on", on, "error", err)
		return err
	}
	p.log.Info("Steering a port", "port", port, "on", on)
	return nil
}

// Listens implements handover.Pod.
func (p *pod) Listens(port uint16) (bool, error) { return listens(p.ns, port, p.dialer.listeners) }

// Dial implements handover.Pod.
func (p *pod) Dial(ctx context.Context, to netip.AddrPort, scope uint32) (*os.File, error) {
	return p.dialer.dial(ctx, to, scope)
}

// Answering implements handover.Pod. The app gets new connections while the carrier is frozen.
func (p *pod) Answering(yes bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	change := p.program.Detach
	if yes {
		change = func() error { return p.program.Attach(p.ns) }
	}
	if err := change(); err != nil {
		p.log.Error("Following the carrier failed", "answers", yes, "error", err)
		return err
	}
	p.log.Warn("The carrier answers or has stopped answering", "answers", yes)
	return nil
}

// stop ends steering for good, and leaves dialing to the carrier.
func (p *pod) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if err := p.program.Detach(); err != nil {
		p.log.Error("Ending the steering failed", "error", err)
	}
}

// close detaches and frees everything.
func (p *pod) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	return errors.Join(p.closeListeners(), p.program.Close(), p.filter.close())
}
