package capture

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	ebpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// attacher attaches programs to interfaces.
type attacher interface {
	// name of the way, for the account.
	name() string
	// fits returns an error if a capture of these interfaces would not see all of their packets in this way.
	fits(ns int, indexes []int) error
	// attach has a program see what comes in by an interface of a network namespace (-1 is the caller's), and another
	// what goes out; nil is none.
	attach(ns, index int, in, out *ebpf.Program) (attachment, error)
	// close lets go of what attachments share.
	close() error
}

// attachment is what is attached to one interface. Close takes it away: a program that runs then goes on to its end.
type attachment interface{ Close() error }

// attachments are closed together.
type attachments []attachment

// Close implements attachment.
func (a attachments) Close() error {
	var errs []error
	for _, one := range a {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// tcx attaches by links, which the kernel takes away with the process. Linux 6.6.
type tcx struct{}

func (tcx) name() string { return ByTCX }
func (tcx) close() error { return nil }

// fits tries the kernel with a program that does nothing, and so finds out what it lacks before there are rings.
func (tcx) fits(int, []int) error {
	nothing, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sonde_try", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return explain(err)
	}
	defer func() { _ = nothing.Close() }() // whose descriptor is valid
	// There is no such interface: a kernel that knows tcx says so.
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

func (tcx) attach(ns, index int, in, out *ebpf.Program) (attachment, error) {
	var all attachments
	err := inNetNS(ns, func() error {
		for way, program := range map[ebpf.AttachType]*ebpf.Program{ebpf.AttachTCXIngress: in, ebpf.AttachTCXEgress: out} {
			if program == nil {
				continue
			}
			// First of all that is attached, so that a packet is seen before another program changes it or ends its way.
			l, err := ebpflink.AttachTCX(ebpflink.TCXOptions{Interface: index, Program: program, Attach: way, Anchor: ebpflink.Head()})
			if err != nil {
				return fmt.Errorf("attach at tcx: %w", explain(err))
			}
			all = append(all, l)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return all, nil
}
