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

// attachment is the programs of one interface. Close detaches them; a program that is running then runs to its end.
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

// tcx attaches by links, which the kernel removes with the process. It needs Linux 6.6.
type tcx struct{}

func (tcx) name() string { return TCX }
func (tcx) close() error { return nil }

// check loads and tries to attach an empty program: if the kernel lacks tcx, that shows before rings are allocated.
func (tcx) check(int, []int) error {
	nothing, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sonde_try", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return explain(err)
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

func (tcx) attach(ns, index int, in, out *ebpf.Program) (attachment, error) {
	var all attachments
	err := links.InNetNS(ns, func() error {
		for point, program := range map[ebpf.AttachType]*ebpf.Program{ebpf.AttachTCXIngress: in, ebpf.AttachTCXEgress: out} {
			if program == nil {
				continue
			}
			// Before all other programs, so that it receives a packet before another program changes or drops it.
			l, err := ebpflink.AttachTCX(ebpflink.TCXOptions{Interface: index, Program: program, Attach: point, Anchor: ebpflink.Head()})
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
