// Package steer loads the BPF program that gives new connections of a Pod's ports to a carrier's listeners
// (bpf/steer.bpf.c).
package steer

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

//go:generate go tool -modfile=../../../hack/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64,arm64 steer ../../../bpf/steer.bpf.c -- -I../../../bpf/headers -mcpu=v3 -Wall -Werror

// ErrUnsupported says that the kernel cannot steer.
var ErrUnsupported = errors.New("this node's kernel has no BPF programs of type sk_lookup: intercepts need Linux 5.9 or later")

// The slots of listeners in the map of sockets, as in bpf/steer.bpf.c.
const (
	SlotIPv4 = 0
	SlotIPv6 = 1
)

// Program is the loaded program. It steers while it is attached. The kernel detaches and frees it when this process ends, because
// nothing is pinned. Attach and Detach must not be called at the same time; the other methods may.
type Program struct {
	objects steerObjects
	link    *link.NetNsLink
}

// Load loads the program. It needs CAP_SYS_ADMIN, and before Linux 6.9 CAP_NET_ADMIN for the map of sockets.
func Load() (*Program, error) {
	var p Program
	err := loadSteerObjects(&p.objects, nil)
	switch {
	case err == nil:
		return &p, nil
	case errors.Is(features.HaveProgramType(ebpf.SkLookup), ebpf.ErrNotSupported):
		return nil, ErrUnsupported
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("load BPF program (needs CAP_SYS_ADMIN, and before Linux 6.9 also CAP_NET_ADMIN): %w", err)
	default:
		return nil, fmt.Errorf("load BPF program: %w", err)
	}
}

// Listen makes a listening TCP socket a target of steered connections. It must be no MPTCP socket, which the kernel refuses.
// It leaves its slot when its last file descriptor in any process is closed.
func (p *Program) Listen(slot uint32, listener *os.File) error {
	if err := p.objects.Sockets.Put(slot, uint64(listener.Fd())); err != nil {
		return fmt.Errorf("register listener: %w", err)
	}
	return nil
}

// Attach begins steering in a network namespace. It does nothing if the program is attached.
func (p *Program) Attach(ns *os.File) error {
	if p.link != nil {
		return nil
	}
	l, err := link.AttachNetNs(int(ns.Fd()), p.objects.SondeSteer)
	if err != nil {
		return fmt.Errorf("attach to network namespace: %w", err)
	}
	p.link = l
	return nil
}

// Detach ends steering. It does nothing if the program is not attached.
func (p *Program) Detach() error {
	if p.link == nil {
		return nil
	}
	l := p.link
	p.link = nil
	if err := l.Close(); err != nil {
		return fmt.Errorf("detach from network namespace: %w", err)
	}
	return nil
}

// SetPort begins or ends steering of new connections to a port.
func (p *Program) SetPort(port uint16, on bool) error {
	if on {
		if err := p.objects.Ports.Put(port, uint8(1)); err != nil {
			return fmt.Errorf("steer port %d: %w", port, err)
		}
		return nil
	}
	if err := p.objects.Ports.Delete(port); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("end steering of port %d: %w", port, err)
	}
	return nil
}

// Except exempts connections from a source. It returns an error that is ebpf.ErrKeyExist if they are exempt already.
func (p *Program) Except(source netip.AddrPort) error {
	if err := p.objects.Own.Update(keyOf(source), uint8(1), ebpf.UpdateNoExist); err != nil {
		return fmt.Errorf("exempt %v: %w", source, err)
	}
	return nil
}

// EndException ends the exemption of a source.
func (p *Program) EndException(source netip.AddrPort) error {
	if err := p.objects.Own.Delete(keyOf(source)); err != nil {
		return fmt.Errorf("end exemption of %v: %w", source, err)
	}
	return nil
}

// key is struct source of bpf/steer.bpf.c. All its numbers are in network byte order.
type key struct {
	Address [16]byte
	Port    [2]byte
	_       [2]byte
}

func keyOf(source netip.AddrPort) key {
	port := source.Port()
	return key{Address: source.Addr().As16(), Port: [2]byte{byte(port >> 8), byte(port)}}
}

// Missed returns how many connections to steered ports went to the app, because the carrier had no listener for them.
func (p *Program) Missed() (uint64, error) {
	var n uint64
	if err := p.objects.Missed.Get(&n); err != nil {
		return 0, fmt.Errorf("read count of missed connections: %w", err)
	}
	return n, nil
}

// Close detaches the program and frees it.
func (p *Program) Close() error { return errors.Join(p.Detach(), p.objects.Close()) }
