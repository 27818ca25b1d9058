package capture

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// clsactPriority is that of filters where there are no others: before those that the kernel places (49152), behind
	// the low numbers by which others know theirs.
	clsactPriority = 50
	// clsactHandles are beyond those that others give their filters of the same priority, which would replace ours.
	clsactHandles = 0x50de0000
)

// clsactSides are where programs that see what comes in, and what goes out, are attached.
var clsactSides = [2]uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS}

// errNoPlace says that a capture would see what other filters leave of the packets, or nothing.
var errNoPlace = errors.New("there is no place before what others have attached")

// clsactFilters are those of one interface.
type clsactFilters struct {
	ns, index int
	tag       string
}

// places are what is to be known of an interface before filters are added.
type places struct {
	discipline bool // clsact is there
	made       bool // by a capture: then the last one takes it away
	priority   [len(clsactSides)]uint16
}

// placesOf finds where filters are the first of all that are there.
func placesOf(h *netlink.Handle, index int) (p places, err error) {
	switch kind, err := disciplineOf(h, index); {
	case err != nil:
		return p, err
	case kind == "":
		return places{made: true, priority: [...]uint16{clsactPriority, clsactPriority}}, nil
	case kind != "clsact": // "ingress", which takes filters of what goes out and has them see what comes in
		return p, fmt.Errorf("%w: interface %d has the queueing discipline %s", errNoPlace, index, kind)
	}
	p.discipline = true
	for i, side := range clsactSides {
		filters, err := filtersAt(h, index, side)
		if err != nil {
			return p, err
		}
		for _, f := range filters {
			p.made = p.made || strings.HasPrefix(f.Name, clsactPrefix) && strings.HasSuffix(f.Name, clsactMade)
		}
		if p.priority[i], err = priorityBefore(filters); err != nil {
			return p, fmt.Errorf("%w (interface %d)", err, index)
		}
	}
	return p, nil
}

// disciplineOf is the kind of the queueing discipline in the place of clsact; empty is none.
func disciplineOf(h *netlink.Handle, index int) (string, error) {
	all, err := entire(func() ([]netlink.Qdisc, error) {
		return h.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}})
	})
	if err != nil {
		return "", fmt.Errorf("list queueing disciplines: %w", err)
	}
	for _, q := range all {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT {
			return q.Type(), nil
		}
	}
	return "", nil
}

// entire lists until nothing was changed meanwhile.
func entire[T any](list func() ([]T, error)) ([]T, error) {
	for range 20 {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return nil, netlink.ErrDumpInterrupted
}

// priorityBefore is one whose filter comes before all these. Of filters of one priority, all of which are of one kind and
// protocol, the kernel asks the newest first.
func priorityBefore(filters []*netlink.BpfFilter) (uint16, error) {
	if len(filters) == 0 {
		return clsactPriority, nil
	}
	first := filters[0]
	for _, f := range filters {
		if f.Priority < first.Priority {
			first = f
		}
	}
	switch joins := first.Fd != notBPF && first.Protocol == unix.ETH_P_ALL; {
	case joins && (strings.HasPrefix(first.Name, clsactPrefix) || first.Priority == 1):
		return first.Priority, nil
	case first.Priority == 1:
		return 0, fmt.Errorf("%w: a filter that is no BPF program of all protocols has the priority 1", errNoPlace)
	default:
		return first.Priority - 1, nil
	}
}

// add makes the discipline, unless it is there, and the filters, in one step: a process that is killed has made them all, with
// the name that they are known by, or nothing.
func (a *clsactFilters) add(h *netlink.Handle, in, out *ebpf.Program) error {
	for range 3 {
		p, err := placesOf(h, a.index)
		if err != nil {
			return err
		}
		err = a.addAt(p, in, out)
		if p.discipline || !errors.Is(err, unix.EEXIST) {
			return err
		}
		// Somebody else has made it meanwhile: it is his, and our filters do not say so.
		if err := a.take(h, false); err != nil {
			return err
		}
	}
	return errNoPlace
}

func (a *clsactFilters) addAt(p places, in, out *ebpf.Program) error {
	var b batchOfTC
	if !p.discipline {
		b.add(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, disciplineAt(a.index), nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("clsact")))
	}
	name := a.tag
	if p.made {
		name += clsactMade
	}
	for i, program := range []*ebpf.Program{in, out} {
		if program == nil {
			continue
		}
		options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
		options.AddRtAttr(nl.TCA_BPF_FD, nl.Uint32Attr(uint32(program.FD())))
		options.AddRtAttr(nl.TCA_BPF_NAME, nl.ZeroTerminated(name))
		options.AddRtAttr(nl.TCA_BPF_FLAGS, nl.Uint32Attr(nl.TCA_BPF_FLAG_ACT_DIRECT))
		at := filterAt(a.index, &netlink.FilterAttrs{
			Parent: clsactSides[i], Handle: clsactHandles + rand.Uint32N(1<<16), Priority: p.priority[i], Protocol: unix.ETH_P_ALL,
		})
		b.add(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, at, nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")), options)
	}
	if err := errors.Join(b.send()...); err != nil {
		return fmt.Errorf("add filters: %w", err)
	}
	return nil
}

func disciplineAt(index int) *nl.TcMsg {
	return &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
}

func filterAt(index int, f *netlink.FilterAttrs) *nl.TcMsg {
	return &nl.TcMsg{
		Family: nl.FAMILY_ALL, Ifindex: int32(index), Handle: f.Handle, Parent: f.Parent,
		Info: netlink.MakeHandle(f.Priority, nl.Swap16(f.Protocol)),
	}
}

// Close takes the filters away, and the discipline if a capture had made it and nothing else is there.
func (a *clsactFilters) Close() error {
	return inClsact(a.ns, func(h *netlink.Handle) error { return a.take(h, true) })
}

func (a *clsactFilters) take(h *netlink.Handle, discipline bool) error {
	_, err := takeFilters(h, a.index, discipline, func(name string) bool { return strings.TrimSuffix(name, clsactMade) == a.tag })
	return err
}

// removeFilters takes away those of an interface whose names are told, and the discipline with the last of them if a capture
// had made it.
func removeFilters(h *netlink.Handle, index int, whose func(name string) bool) (int, error) {
	return takeFilters(h, index, true, whose)
}

// takeFilters does so in one step, too: the discipline is known by the filters on it. An interface that has gone has taken
// them along.
func takeFilters(h *netlink.Handle, index int, discipline bool, whose func(name string) bool) (removed int, err error) {
	var b batchOfTC
	left := 0
	for _, side := range clsactSides {
		filters, err := filtersAt(h, index, side)
		if err != nil {
			return 0, err
		}
		for _, f := range filters {
			if !strings.HasPrefix(f.Name, clsactPrefix) || !whose(f.Name) {
				left++
				continue
			}
			discipline = discipline && strings.HasSuffix(f.Name, clsactMade)
			b.add(unix.RTM_DELTFILTER, 0, filterAt(index, &f.FilterAttrs), nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")))
			removed++
		}
	}
	if removed == 0 {
		return 0, nil
	}
	if discipline && left == 0 {
		b.add(unix.RTM_DELQDISC, 0, disciplineAt(index))
	}
	if err := errors.Join(slices.DeleteFunc(b.send(), isGone)...); err != nil {
		return 0, fmt.Errorf("remove filters: %w", err)
	}
	return removed, nil
}

// notBPF is the descriptor in filters that are none.
const notBPF = -1

// filtersAt lists the filters of one side of an interface; those that are no BPF programs have no name.
func filtersAt(h *netlink.Handle, index int, side uint32) ([]*netlink.BpfFilter, error) {
	filters, err := entire(func() ([]netlink.Filter, error) {
		return h.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}, side)
	})
	if isGone(err) || errors.Is(err, unix.EINVAL) { // no interface, no discipline
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list filters: %w", err)
	}
	all := make([]*netlink.BpfFilter, 0, len(filters))
	for _, f := range filters {
		b, ok := f.(*netlink.BpfFilter)
		if !ok {
			b = &netlink.BpfFilter{FilterAttrs: *f.Attrs(), Fd: notBPF}
		}
		all = append(all, b)
	}
	return all, nil
}

func isGone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO)
}
