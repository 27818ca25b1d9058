package tc

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	ebpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
)

// attacher attaches programs to interfaces.
type attacher interface {
	// name returns the attach point's name in the account.
	name() string
	// check returns an error if programs at this attach point would not receive all packets of these interfaces.
	check(ns int, indexes []int) error
	// attach attaches one program to the ingress and one to the egress of an interface; a nil program is left out. ns
	// is a network namespace's file descriptor, -1 the caller's own.
	attach(ns, index int, in, out *ebpf.Program) (attachment, error)
	// close releases what attachments share.
	close() error
}

// attachment is the programs of one interface.
type attachment interface {
	// Close detaches them; a program that is running then runs to its end.
	Close() error
	// check reports whether each of them receives all packets (attached), and has received all since the last check (whole).
	check() (attached, whole bool, err error)
	// hidden reports whether a filter that has changed may have kept packets from them.
	hidden(f links.Filter) bool
	// beside reports whether other captures, which notice changes of programs only by listing them, were there at the last check.
	beside() bool
}

// tcxLinks are the links of one interface. They stay attached while it is in another namespace, where it may have another index,
// which the programs do not know. The witness shows that it was away.
type tcxLinks struct {
	ns, index int
	links     []*tcxLink
	witness   int
}

// Close implements attachment.
func (a *tcxLinks) Close() error {
	errs := []error{unix.Close(a.witness)}
	for _, l := range a.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// check implements attachment.
func (a *tcxLinks) check() (attached, whole bool, err error) {
	if attached, err = links.Bound(a.witness); !attached || err != nil {
		return false, false, err
	}
	whole = true
	err = links.InNetNS(a.ns, func() error {
		for _, l := range a.links {
			first, explained, err := l.check(a.index)
			if err != nil {
				return err
			}
			attached, whole = attached && first, whole && first && explained
		}
		return nil
	})
	return attached, whole, err
}

// hidden implements attachment: filters run after all programs at tcx.
func (*tcxLinks) hidden(links.Filter) bool { return false }

// beside implements attachment.
func (a *tcxLinks) beside() bool {
	for _, l := range a.links {
		for _, capture := range l.others {
			if capture {
				return true
			}
		}
	}
	return false
}

// newWitness binds a packet socket to an interface. Without a protocol it receives nothing.
func newWitness(index int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open packet socket (needs CAP_NET_RAW): %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
		return -1, errors.Join(fmt.Errorf("bind packet socket: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// tcx attaches by links, which the kernel removes with the process. It needs Linux 6.6.
type tcx struct{}

func (tcx) name() string { return TCX }
func (tcx) close() error { return nil }

// check loads and tries to attach an empty program: if the kernel lacks tcx, that shows before rings are allocated.
func (tcx) check(int, []int) error {
	nothing, err := newTry()
	if err != nil {
		return err
	}
	defer func() { _ = nothing.Close() }() // its descriptor is valid
	// A kernel that has tcx answers that there is no such interface.
	l, err := ebpflink.AttachTCX(ebpflink.TCXOptions{Interface: math.MaxInt32, Program: nothing, Attach: ebpf.AttachTCXIngress})
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, unix.ENODEV):
		return nil
	default:
		return fmt.Errorf("attach at tcx: %w", explain(err))
	}
}

// newTry loads a program that lets each packet pass.
func newTry() (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: tryName, Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, tcNext), asm.Return()},
	})
	if err != nil {
		return nil, explain(err)
	}
	return p, nil
}

func (tcx) attach(ns, index int, in, out *ebpf.Program) (attachment, error) {
	all := &tcxLinks{ns: ns, index: index}
	err := links.InNetNS(ns, func() (err error) {
		if all.witness, err = newWitness(index); err != nil {
			return err
		}
		for point, program := range map[ebpf.AttachType]*ebpf.Program{ebpf.AttachTCXIngress: in, ebpf.AttachTCXEgress: out} {
			if program == nil {
				continue
			}
			// Before all other programs, so that it receives a packet before another program changes or drops it.
			l, err := ebpflink.AttachTCX(ebpflink.TCXOptions{Interface: index, Program: program, Attach: point, Anchor: ebpflink.Head()})
			if err != nil {
				return errors.Join(fmt.Errorf("attach at tcx: %w", explain(err)), all.Close())
			}
			own, err := newTCXLink(l, point, program)
			if err != nil {
				return errors.Join(err, l.Close(), all.Close())
			}
			all.links = append(all.links, own)
			first, _, err := own.check(index)
			if err != nil {
				return errors.Join(err, all.Close())
			}
			if !first {
				own.revision = 0 // the next check says so
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
