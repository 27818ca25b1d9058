package capture

import (
	"net"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	ebpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/test/frames"
)

// These tests do what a target with CAP_NET_ADMIN and CAP_BPF can do against its own capture by XDP programs, which get incoming
// packets before programs at tc and packet sockets.

// xdpDropper is an XDP program that drops all packets.
func xdpDropper(t *testing.T) *ebpf.Program {
	t.Helper()
	const drop = 1 // XDP_DROP
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, drop), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// xdp attaches a program to eth0 by netlink, which the kernel announces.
func (n *testNet) xdp(t *testing.T, fd int) {
	t.Helper()
	n.in(t, n.target, func(h *netlink.Handle) error {
		l, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		return links.InNetNS(int(n.target.Fd()), func() error { return netlink.LinkSetXdpFdWithFlags(l, fd, nlXDPGeneric) })
	})
}

// nlXDPGeneric is XDP_FLAGS_SKB_MODE.
const nlXDPGeneric = 1 << 1

func (n *testNet) xdpByNetlink(t *testing.T) {
	t.Helper()
	n.xdp(t, xdpDropper(t).FD())
}

func (n *testNet) xdpForAMoment(t *testing.T) {
	t.Helper()
	n.xdpByNetlink(t)
	n.xdp(t, -1)
}

// xdpLink attaches a program to eth0 by a link, which the kernel does not announce.
func (n *testNet) xdpLink(t *testing.T, flags ebpflink.XDPAttachFlags) {
	t.Helper()
	p, index := xdpDropper(t), n.index(t, n.target, "eth0")
	err := links.InNetNS(int(n.target.Fd()), func() error {
		l, err := ebpflink.AttachXDP(ebpflink.XDPOptions{Program: p, Interface: index, Flags: flags})
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (n *testNet) xdpByLink(t *testing.T) {
	t.Helper()
	n.xdpLink(t, ebpflink.XDPGenericMode)
}

func (n *testNet) nativeXDP(t *testing.T) {
	t.Helper()
	n.xdpLink(t, ebpflink.XDPDriverMode)
}

const anXDPProgram = "eth0: an XDP program was attached to it"

func TestXDPProgramIsAGap(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		act    func(*testNet, *testing.T)
		before bool // the capture begins
		node   bool
		want   string
	}{
		"by netlink":                         {act: (*testNet).xdpByNetlink, want: anXDPProgram},
		"by netlink, for a moment":           {act: (*testNet).xdpForAMoment, want: anXDPProgram},
		"by a link":                          {act: (*testNet).xdpByLink, want: anXDPProgram},
		"by a link, native":                  {act: (*testNet).nativeXDP, want: anXDPProgram},
		"before the capture":                 {act: (*testNet).xdpByLink, before: true, want: anXDPProgram},
		"control: gone before the capture":   {act: (*testNet).xdpForAMoment, before: true},
		"control: of a node's network":       {act: (*testNet).xdpByNetlink, node: true},
		"control: there before, of a node's": {act: (*testNet).xdpByNetlink, before: true, node: true},
	}
	for _, cand := range each {
		for name, tc := range tests {
			t.Run(cand.name+", "+name, func(t *testing.T) {
				n := newTestNet(t)
				if tc.before {
					tc.act(n, t)
				}
				run := n.openWith(t, cand, &Config{NodeNetwork: tc.node})
				if !tc.before {
					tc.act(n, t) // the capture ends before it needs to know
				}
				res := run().stop()
				wantGap(t, res, tc.want)
				if tc.node && !notes(&res.Account, anXDPProgram) {
					t.Errorf("account %+v, want a note", res.Account.Interfaces)
				}
			})
		}
	}
}

// notes reports whether an interface has this note, be it a gap or not.
func notes(a *record.Account, want string) bool {
	for _, i := range a.Interfaces {
		if strings.HasPrefix(i.Name+": "+i.Note, want) {
			return true
		}
	}
	return false
}

// An XDP program that is attached by a link is found while the capture runs, and has kept packets from it.
func TestXDPProgramIsFound(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			r := start(t, cand.engine(), &Config{NetNS: n.target, Filters: frames.OnlyDiscard()})
			s := &sender{t: t, conn: n.udp(t, n.peer, "udp4", ":0"), to: &net.UDPAddr{IP: net.ParseIP(targetIP), Port: frames.Discard}}
			s.send(0, 100)
			r.until("packets", func(a record.Account) bool { return a.Written == 100 })
			n.xdpByLink(t)
			s.send(100, 200)
			r.until("the note", func(a record.Account) bool { return gaps(&a) != "" })
			res := r.stop()
			wantGap(t, res, anXDPProgram)
			exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, 100)
		})
	}
}
