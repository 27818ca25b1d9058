package tc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
)

const (
	// defaultPriority is the priority of our filters if there are no others: before the priorities that the kernel
	// chooses (49152), after the low numbers that other programs use.
	defaultPriority = 50
	// firstHandle is beyond the handles that other programs use. A filter of the same priority and handle would replace ours.
	firstHandle = 0x50de0000
)

// sides are the ingress and the egress of an interface.
var sides = [2]uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS}

// errNoPlace says that other filters would run before the capture's, which might then miss packets.
var errNoPlace = errors.New("other filters would run before the capture's filters")

// clsactFilters are the filters of one interface.
type clsactFilters struct {
	ns, index int
	sides     int // 1 without the egress
	tag       string
	lock      *filterLock
	at        places
}

// places says where filters may be added to an interface.
type places struct {
	discipline bool // clsact exists
	made       bool // a capture created it: the last capture removes it
	priority   [len(sides)]uint16
	handle     [len(sides)]uint32   // not in use
	later      [len(sides)][]uint32 // handles of the filters of our priority, which run after ours
}

// placesOf finds the priorities at which our filters run before all others.
func placesOf(h *netlink.Handle, index int) (p places, err error) {
	switch kind, err := disciplineOf(h, index); {
	case err != nil:
		return p, err
	case kind == "":
		return places{made: true, priority: [...]uint16{defaultPriority, defaultPriority}, handle: [...]uint32{firstHandle, firstHandle}}, nil
	case kind != "clsact": // "ingress", which accepts egress filters and runs them on ingress
		return p, fmt.Errorf("%w: interface %d has the queueing discipline %s", errNoPlace, index, kind)
	}
	p.discipline = true
	for i, side := range sides {
		filters, err := filtersAt(h, index, side)
		if err != nil {
			return p, err
		}
		for _, f := range filters {
			p.made = p.made || strings.HasPrefix(f.Name, namePrefix) && strings.HasSuffix(f.Name, madeSuffix)
		}
		p.handle[i] = freeHandle(filters)
		if p.priority[i], err = priorityBefore(filters); err != nil {
			return p, fmt.Errorf("%w (interface %d)", err, index)
		}
		for _, f := range filters {
			if f.Priority == p.priority[i] {
				p.later[i] = append(p.later[i], f.Handle)
			}
		}
	}
	return p, nil
}

// freeHandle returns a handle that none of these filters has.
func freeHandle(filters []*netlink.BpfFilter) uint32 {
	handle := uint32(firstHandle)
	for slices.ContainsFunc(filters, func(f *netlink.BpfFilter) bool { return f.Handle == handle }) {
		handle++
	}
	return handle
}

// disciplineOf returns the kind of the queueing discipline in the place of clsact; empty if there is none.
func disciplineOf(h *netlink.Handle, index int) (string, error) {
	all, err := listAll(func() ([]netlink.Qdisc, error) {
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

// listAll repeats a listing until no change interrupts it.
func listAll[T any](list func() ([]T, error)) ([]T, error) {
	for range 20 {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return nil, netlink.ErrDumpInterrupted
}

// priorityBefore returns a priority at which a new filter runs before all these. All filters of one priority have the
// same kind and protocol, and the kernel runs the newest first.
func priorityBefore(filters []*netlink.BpfFilter) (uint16, error) {
	if len(filters) == 0 {
		return defaultPriority, nil
	}
	first := filters[0]
	for _, f := range filters {
		if f.Priority < first.Priority {
			first = f
		}
	}
	switch joins := first.Fd != notBPF && first.Protocol == unix.ETH_P_ALL; {
	case joins && (strings.HasPrefix(first.Name, namePrefix) || first.Priority == 1):
		return first.Priority, nil
	case first.Priority == 1:
		return 0, fmt.Errorf("%w: a filter with priority 1 is not a BPF program for all protocols", errNoPlace)
	default:
		return first.Priority - 1, nil
	}
}

// add creates the filters, and the discipline unless it exists, in one system call: a process that is killed has
// created all of them or none.
func (a *clsactFilters) add(h *netlink.Handle, in, out *ebpf.Program) error {
	for range 3 {
		p, err := placesOf(h, a.index)
		if err != nil {
			return err
		}
		a.at = p
		err = a.addAt(p, in, out)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
		// A program that does not hold the lock has created the discipline, which our filters claim as ours, or a filter with
		// our handle. Remove our filters and add them again.
		if err := a.remove(h, false); err != nil {
			return err
		}
	}
	return errNoPlace
}

func (a *clsactFilters) addAt(p places, in, out *ebpf.Program) error {
	var c changes
	if !p.discipline {
		c.add(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, disciplineAt(a.index), nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("clsact")))
	}
	name := a.tag
	if p.made {
		name += madeSuffix
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
			Parent: sides[i], Handle: p.handle[i], Priority: p.priority[i], Protocol: unix.ETH_P_ALL,
		})
		c.add(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, at, nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")), options)
	}
	if err := errors.Join(c.send()...); err != nil {
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

// owns reports whether a filter with this name is one of these.
func (a *clsactFilters) owns(name string) bool { return strings.TrimSuffix(name, madeSuffix) == a.tag }

// beside implements attachment: the kernel announces each change of filters.
func (*clsactFilters) beside() bool { return false }

// check implements attachment. Filters are listed in the order in which they run. Filters of other captures let each packet
// pass, but others may not.
func (a *clsactFilters) check() (attached, whole bool, err error) {
	err = a.lock.do(a.ns, func(h *netlink.Handle) error {
		for _, side := range sides[:a.sides] {
			filters, err := filtersAt(h, a.index, side)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(filters, func(f *netlink.BpfFilter) bool { return a.owns(f.Name) || !strings.HasPrefix(f.Name, namePrefix) })
			if i < 0 || !a.owns(filters[i].Name) {
				return nil
			}
		}
		attached = true
		return nil
	})
	return attached, attached, err
}

// hidden implements attachment. A filter that is replaced keeps its place after ours, and a new one of the same priority runs
// before ours. Filters of other captures let each packet pass.
func (a *clsactFilters) hidden(f links.Filter) bool {
	i := slices.Index(sides[:a.sides], f.Parent)
	if i < 0 || f.Priority > a.at.priority[i] || strings.HasPrefix(f.Name, namePrefix) {
		return false
	}
	later := &a.at.later[i]
	if f.Removed {
		if f.Priority == a.at.priority[i] {
			*later = slices.DeleteFunc(*later, func(handle uint32) bool { return handle == f.Handle })
		}
		return false
	}
	return f.Priority < a.at.priority[i] || !slices.Contains(*later, f.Handle)
}

// Close removes the filters. It also removes the discipline if a capture had created it and no other filters are left.
func (a *clsactFilters) Close() error {
	return a.lock.do(a.ns, func(h *netlink.Handle) error { return a.remove(h, true) })
}

func (a *clsactFilters) remove(h *netlink.Handle, discipline bool) error {
	_, err := removeFilters(h, a.index, discipline, a.owns)
	return err
}

// removeFilters removes the filters of an interface whose names match. With discipline it also removes the queueing
// discipline, if no filter is left and a capture had created it. It needs one system call for both, because only the
// filters' names say who created the discipline. An interface that is gone has no filters.
func removeFilters(h *netlink.Handle, index int, discipline bool, match func(name string) bool) (removed int, err error) {
	var c changes
	left := 0
	for _, side := range sides {
		filters, err := filtersAt(h, index, side)
		if err != nil {
			return 0, err
		}
		for _, f := range filters {
			if !strings.HasPrefix(f.Name, namePrefix) || !match(f.Name) {
				left++
				continue
			}
			discipline = discipline && strings.HasSuffix(f.Name, madeSuffix)
			c.add(unix.RTM_DELTFILTER, 0, filterAt(index, &f.FilterAttrs), nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")))
			removed++
		}
	}
	if removed == 0 {
		return 0, nil
	}
	if discipline && left == 0 {
		c.add(unix.RTM_DELQDISC, 0, disciplineAt(index))
	}
	if err := errors.Join(slices.DeleteFunc(c.send(), isGone)...); err != nil {
		return 0, fmt.Errorf("remove filters: %w", err)
	}
	return removed, nil
}

// notBPF is the descriptor of filters that are not BPF programs.
const notBPF = -1

// filtersAt lists the filters of one side of an interface. Filters that are not BPF programs have no name.
func filtersAt(h *netlink.Handle, index int, side uint32) ([]*netlink.BpfFilter, error) {
	filters, err := listAll(func() ([]netlink.Filter, error) {
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
