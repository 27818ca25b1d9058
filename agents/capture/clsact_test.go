package capture

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	ebpflink "github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/afpacket"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/capture/tc"
	"github.com/sonde-operator/sonde/test/frames"
)

// noPlace is in the error of a backend whose filters would not be the first.
const noPlace = "other filters would run before the capture's filters"

const ownUID = "55555555-4444-4555-8666-777777777777"

// index of an interface.
func (n *testNet) index(t *testing.T, ns *os.File, name string) (index int) {
	t.Helper()
	n.in(t, ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err == nil {
			index = l.Attrs().Index
		}
		return err
	})
	return index
}

// atClsact lists the disciplines and filters in the target's namespace, without the captures' random texts.
func (n *testNet) atClsact(t *testing.T) (all []string) {
	t.Helper()
	n.in(t, n.target, func(h *netlink.Handle) error {
		for _, name := range []string{"eth0", "lo"} {
			l, err := h.LinkByName(name)
			if err != nil {
				return err
			}
			disciplines, err := h.QdiscList(l)
			if err != nil {
				return err
			}
			for _, q := range disciplines {
				if q.Attrs().Parent == netlink.HANDLE_CLSACT {
					all = append(all, name+" "+q.Type())
				}
			}
			for side, parent := range map[string]uint32{" in ": netlink.HANDLE_MIN_INGRESS, " out ": netlink.HANDLE_MIN_EGRESS} {
				filters, err := h.FilterList(l, parent)
				if err != nil && !errors.Is(err, unix.EINVAL) { // there is no discipline
					return err
				}
				for _, f := range filters {
					filter := ""
					if b, ok := f.(*netlink.BpfFilter); ok {
						filter = withoutNumber(b.Name)
					}
					all = append(all, name+side+filter)
				}
			}
		}
		return nil
	})
	slices.Sort(all)
	return all
}

func withoutNumber(name string) string {
	parts := strings.Split(name, ":")
	if len(parts) < 3 {
		return name
	}
	return strings.Join(slices.Delete(parts, 2, 3), ":")
}

// wantClsact lists what a capture of all interfaces attaches if it creates the discipline.
func wantClsact(uid string) []string {
	name := "sonde:" + uid + ":made"
	return []string{"eth0 clsact", "eth0 in " + name, "eth0 out " + name, "lo clsact", "lo in " + name}
}

func (n *testNet) wantAtClsact(t *testing.T, when string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, n.atClsact(t)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// A killed capture leaves its filters, and the next one removes them.
func TestNextCaptureRemovesFiltersOfAKilledOne(t *testing.T) {
	t.Parallel()
	n := newTestNet(t)
	c := startChild(t, n.target, clsact, t.TempDir(), "")
	n.wantAtClsact(t, "attached", wantClsact(childUID)...)
	c.kill()
	n.wantAtClsact(t, "killed", wantClsact(childUID)...)
	r := start(t, clsact.engine(), &Config{NetNS: n.target, Owner: ownUID})
	n.wantAtClsact(t, "the next capture runs", wantClsact(ownUID)...)
	s := n.blind(t, 100)
	s.send(0, 100)
	exactly(t, readFile(t, r.stop().Path).numbers(t, "eth0"), 0, 100)
	n.wantAtClsact(t, "the next capture has ended")
}

// A capture also removes the filters of killed captures from other interfaces.
func TestCaptureOfOneInterfaceRemovesFiltersFromOthers(t *testing.T) {
	t.Parallel()
	n := newTestNet(t)
	startChild(t, n.target, clsact, t.TempDir(), "eth0").kill()
	start(t, clsact.engine(), &Config{NetNS: n.target, Owner: ownUID, Interfaces: []string{"lo"}}).stop()
	n.wantAtClsact(t, "after a capture of lo alone")
}

func TestSweepKeepsFiltersOfRunningCaptures(t *testing.T) {
	t.Parallel()
	n := newTestNet(t)
	dead := startChild(t, n.target, clsact, t.TempDir(), "")
	living := start(t, clsact.engine(), &Config{NetNS: n.target, Owner: ownUID})
	n.wantAtClsact(t, "two run", append(wantClsact(childUID), without(wantClsact(ownUID), "clsact")...)...)
	n.sweep(t, 0)
	dead.kill()
	n.sweep(t, 3)
	n.wantAtClsact(t, "swept", wantClsact(ownUID)...)
	n.sweep(t, 0)
	s := n.blind(t, 100)
	s.send(0, 100)
	exactly(t, readFile(t, living.stop().Path).numbers(t, "eth0"), 0, 100)
	n.wantAtClsact(t, "both have ended")
}

func (n *testNet) sweep(t *testing.T, want int) {
	t.Helper()
	if removed, err := tc.Sweep(n.target); removed != want || err != nil {
		t.Errorf("swept %d filters, %v; want %d", removed, err, want)
	}
}

func without(all []string, suffix string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.HasSuffix(s, " "+suffix) })
}

// A sweep of a namespace that was never captured changes nothing.
func TestSweepOfNothing(t *testing.T) {
	t.Parallel()
	n := newTestNet(t)
	n.sweep(t, 0)
	n.wantAtClsact(t, "swept")
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := tc.Sweep(file); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a file that is not a namespace: %v", err)
	}
}

// At tcx the kernel detaches the programs of a killed capture.
func TestKilledAtTCXLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		if cand.name == tc.Clsact {
			continue // leaves its filters
		}
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			c := startChild(t, n.target, cand, t.TempDir(), "")
			if cand.name == tc.TCX && n.atTCX(t, "eth0") != 2 {
				t.Errorf("%d programs are attached, want 2", n.atTCX(t, "eth0"))
			}
			c.kill()
			if cand.name == tc.TCX {
				await(t, "the kernel", func() bool { return n.atTCX(t, "eth0") == 0 && n.atTCX(t, "lo") == 0 })
			}
			n.wantAtClsact(t, "killed")
		})
	}
}

// atTCX counts the programs of an interface.
func (n *testNet) atTCX(t *testing.T, name string) (count int) {
	t.Helper()
	index := n.index(t, n.target, name)
	err := links.InNetNS(int(n.target.Fd()), func() error {
		for _, point := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			r, err := ebpflink.QueryPrograms(ebpflink.QueryOptions{Target: index, Attach: point})
			if err != nil {
				return err
			}
			count += len(r.Programs)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// foreign adds a filter of another program to eth0.
func (n *testNet) foreign(t *testing.T, name string, filter netlink.Filter) {
	t.Helper()
	n.in(t, n.target, func(h *netlink.Handle) error {
		index := n.index(t, n.target, "eth0")
		if err := h.QdiscAdd(&netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
			QdiscType:  name,
		}); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		if filter == nil {
			return nil
		}
		*filter.Attrs() = netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: filter.Attrs().Handle, Priority: filter.Attrs().Priority, Protocol: unix.ETH_P_ALL,
		}
		return h.FilterReplace(filter)
	})
}

// dropper is a program that drops all IPv4 packets.
func dropper(t *testing.T) *ebpf.Program {
	t.Helper()
	const ipv4 = 0x0008 // in network byte order
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Name: "foreign", License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 16, asm.Word), // __sk_buff.protocol
		asm.Mov.Imm(asm.R0, -1),                   // TC_ACT_UNSPEC
		asm.JNE.Imm(asm.R2, ipv4, "exit"),
		asm.Mov.Imm(asm.R0, 2), // TC_ACT_SHOT
		asm.Return().WithSymbol("exit"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func drops(p *ebpf.Program, priority uint16, handle uint32) *netlink.BpfFilter {
	return &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{Priority: priority, Handle: handle}, Fd: p.FD(), Name: "foreign", DirectAction: true}
}

// noProgram is a filter that is not a BPF program. It matches all packets, and no later filter runs for them.
func noProgram(priority uint16) *netlink.U32 {
	return &netlink.U32{FilterAttrs: netlink.FilterAttrs{Priority: priority}, ClassId: 1}
}

// Filters of other programs stay as they are, whether they were added before or after a capture, and whether the capture
// ended or was killed.
func TestForeignFiltersStay(t *testing.T) {
	t.Parallel()
	p := dropper(t)
	foreigns := map[string]struct {
		made func() netlink.Filter
		want []string
	}{
		"a discipline": {func() netlink.Filter { return nil }, []string{"eth0 clsact"}},
		"a program":    {func() netlink.Filter { return drops(p, 1, 1) }, []string{"eth0 clsact", "eth0 in foreign"}},
		"no program":   {func() netlink.Filter { return noProgram(7) }, []string{"eth0 clsact", "eth0 in "}},
	}
	for name, tc := range foreigns {
		t.Run(name+", before", func(t *testing.T) {
			n := newTestNet(t)
			n.foreign(t, "clsact", tc.made())
			r := start(t, clsact.engine(), &Config{NetNS: n.target, Owner: ownUID})
			r.stop()
			n.wantAtClsact(t, "ended", tc.want...)
			startChild(t, n.target, clsact, t.TempDir(), "").kill()
			n.sweep(t, 3)
			n.wantAtClsact(t, "killed and swept", tc.want...)
		})
		if name == "a discipline" {
			continue // nothing shows who created it
		}
		t.Run(name+", after", func(t *testing.T) {
			n := newTestNet(t)
			c := startChild(t, n.target, clsact, t.TempDir(), "")
			n.foreign(t, "clsact", tc.made())
			await(t, "the capture to be the first again", func() bool { return n.captureIsFirst(t) })
			want := append(wantClsact(childUID), without(tc.want, "clsact")...)
			for i := range want { // it attached again, and no longer claims the discipline, which another program uses
				if strings.HasPrefix(want[i], "eth0") {
					want[i] = strings.TrimSuffix(want[i], ":made")
				}
			}
			n.wantAtClsact(t, "both", want...)
			c.kill()
			n.sweep(t, 3)
			n.wantAtClsact(t, "killed and swept", tc.want...)
		})
	}
}

// captureIsFirst reports whether a capture's filter runs before all others on the ingress of eth0.
func (n *testNet) captureIsFirst(t *testing.T) (first bool) {
	t.Helper()
	n.in(t, n.target, func(h *netlink.Handle) error {
		l, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		filters, err := h.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		if err == nil && len(filters) > 0 {
			f, ok := filters[0].(*netlink.BpfFilter)
			first = ok && strings.HasPrefix(f.Name, "sonde:")
		}
		return err
	})
	return first
}

// A capture receives packets that another program drops, and that program receives packets that are captured.
func TestCaptureIsBeforeOtherFilters(t *testing.T) {
	t.Parallel()
	p := dropper(t)
	for _, cand := range each {
		for name, foreign := range map[string]netlink.FilterAttrs{
			"first priority": {Priority: 1, Handle: 1}, "another priority": {Priority: 9, Handle: 1}, "placed by the kernel": {},
		} {
			t.Run(cand.name+", "+name, func(t *testing.T) {
				n := newTestNet(t)
				n.foreign(t, "clsact", drops(p, foreign.Priority, foreign.Handle))
				n.dropped(t, start(t, cand.engine(), &Config{NetNS: n.target, Filters: frames.OnlyDiscard()}))
			})
		}
	}
}

// dropped sends packets that a filter drops, and checks that they are in the file.
func (n *testNet) dropped(t *testing.T, r *running) {
	t.Helper()
	sink := n.udp(t, n.target, "udp4", net.JoinHostPort(targetIP, "9"))
	s := &sender{t: t, conn: n.udp(t, n.peer, "udp4", ":0"), to: &net.UDPAddr{IP: net.ParseIP(targetIP), Port: frames.Discard}}
	s.send(0, 100)
	exactly(t, readFile(t, r.stop().Path).numbers(t, "eth0"), 0, 100)
	if err := sink.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if count, _, err := sink.ReadFromUDP(make([]byte, 2000)); err == nil {
		t.Errorf("%d bytes arrived that a filter drops", count)
	}
}

// A filter that is not a program, and stops later filters, does not stop a capture.
func TestCaptureIsBeforeFiltersThatAreNoPrograms(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			n.foreign(t, "clsact", noProgram(2))
			r := start(t, cand.engine(), &Config{NetNS: n.target, Filters: frames.OnlyDiscard()})
			n.senderTo(t, n.peer, n.target, targetIP).send(0, 100)
			exactly(t, readFile(t, r.stop().Path).numbers(t, "eth0"), 0, 100)
		})
	}
}

// A program that is added later gets its own handle at its priority and does not replace the capture's filter.
func TestLaterProgramReplacesNothing(t *testing.T) {
	t.Parallel()
	n, p := newTestNet(t), dropper(t)
	n.foreign(t, "clsact", drops(p, 1, 1))
	r := start(t, clsact.engine(), &Config{NetNS: n.target, Owner: ownUID, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard()})
	before := n.atClsact(t)
	n.foreign(t, "clsact", drops(p, 1, 1))
	n.wantAtClsact(t, "replaced", before...)
	n.dropped(t, r)
	n.wantAtClsact(t, "ended", "eth0 clsact", "eth0 in foreign")
}

// If other filters would run before a capture, it might miss packets, so another backend captures them.
func TestNoPlaceAtClsact(t *testing.T) {
	t.Parallel()
	for name, foreign := range map[string]struct {
		discipline string
		filter     netlink.Filter
	}{
		"filter of priority 1": {"clsact", noProgram(1)},
		"another discipline":   {"ingress", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNet(t)
			n.foreign(t, foreign.discipline, foreign.filter)
			before := n.atClsact(t)
			_, err := clsact.engine().Open(&Config{NetNS: n.target, Dir: t.TempDir(), Base: "x"})
			if err == nil || !strings.Contains(err.Error(), noPlace) {
				t.Errorf("error %v, want %v", err, noPlace)
			}
			n.wantAtClsact(t, "refused", before...)
			auto := &engine{candidates: []candidate{clsact, afPacket}, create: record.CreateFile}
			r := start(t, auto, &Config{NetNS: n.target, Filters: frames.OnlyDiscard()})
			if a := r.Account(); a.Engine != afpacket.Name || !strings.Contains(a.EngineMessage, noPlace) {
				t.Errorf("engine %s: %s", a.Engine, a.EngineMessage)
			}
			s := n.blind(t, 100)
			s.send(0, 100)
			exactly(t, readFile(t, r.stop().Path).numbers(t, "eth0"), 0, 100)
			n.wantAtClsact(t, "ended", before...)
		})
	}
}
