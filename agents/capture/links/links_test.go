package links

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/test/privileged"
)

// netlinkMessage builds one rtnetlink link message.
func netlinkMessage(typ uint16, family byte, arp uint16, index int32, name string) []byte {
	attr := append([]byte(name), 0)
	body := make([]byte, unix.SizeofIfInfomsg)
	body[0] = family
	binary.NativeEndian.PutUint16(body[2:], arp)
	binary.NativeEndian.PutUint32(body[4:], uint32(index))
	binary.NativeEndian.PutUint32(body[8:], unix.IFF_UP)
	body = binary.NativeEndian.AppendUint16(body, uint16(4+len(attr)))
	body = binary.NativeEndian.AppendUint16(body, unix.IFLA_IFNAME)
	body = append(body, attr...)
	body = append(body, make([]byte, -len(body)&3)...)
	head := make([]byte, unix.SizeofNlMsghdr)
	*(*unix.NlMsghdr)(unsafe.Pointer(&head[0])) = unix.NlMsghdr{Len: uint32(len(head) + len(body)), Type: typ}
	return append(head, body...)
}

func TestParseLinks(t *testing.T) {
	b := netlinkMessage(unix.RTM_NEWLINK, unix.AF_UNSPEC, unix.ARPHRD_ETHER, 2, "eth0")
	b = append(b, netlinkMessage(unix.RTM_NEWLINK, unix.AF_BRIDGE, unix.ARPHRD_ETHER, 2, "eth0")...)
	b = append(b, netlinkMessage(unix.RTM_DELLINK, unix.AF_UNSPEC, unix.ARPHRD_NONE, 3, "tun0")...)
	b = append(b, netlinkMessage(unix.RTM_NEWADDR, unix.AF_UNSPEC, 1, 4, "x")...)
	b = append(b, netlinkMessage(unix.NLMSG_DONE, 0, 0, 0, "")...)
	links, done, interrupted, err := parseLinks(b)
	want := []Link{
		{Index: 2, Name: "eth0", HardwareType: unix.ARPHRD_ETHER, Flags: unix.IFF_UP},
		{Index: 3, Name: "tun0", HardwareType: unix.ARPHRD_NONE, Flags: unix.IFF_UP, Gone: true},
	}
	if diff := cmp.Diff(want, links); err != nil || !done || interrupted || diff != "" {
		t.Errorf("done %v, interrupted %v, error %v, links (-want +got):\n%s", done, interrupted, err, diff)
	}
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_MULTI|unix.NLM_F_DUMP_INTR)
	if _, _, interrupted, err = parseLinks(b); err != nil || !interrupted {
		t.Errorf("with NLM_F_DUMP_INTR: interrupted %v, error %v", interrupted, err)
	}
}

// withXDP adds to a link message how an XDP program is attached (enum of linux/if_link.h).
func withXDP(m []byte, attached byte) []byte {
	xdp := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
	xdp.AddRtAttr(unix.IFLA_XDP_ATTACHED, []byte{attached})
	m = append(m, xdp.Serialize()...)
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	return m
}

func TestParseXDP(t *testing.T) {
	for name, tc := range map[string]struct {
		attached byte
		want     bool
	}{"none": {0, false}, "native": {1, true}, "generic": {2, true}, "in the device": {3, true}, "several": {4, true}} {
		t.Run(name, func(t *testing.T) {
			links, _, _, err := parseLinks(withXDP(netlinkMessage(unix.RTM_NEWLINK, unix.AF_UNSPEC, unix.ARPHRD_ETHER, 2, "eth0"), tc.attached))
			if err != nil || len(links) != 1 || links[0].XDP != tc.want {
				t.Errorf("%+v, %v, want XDP %v", links, err, tc.want)
			}
		})
	}
}

// TestParseKinds: only in mode L3S do incoming packets not pass an ipvlan, and no BPF program gets the packets of a VRF device.
func TestParseKinds(t *testing.T) {
	for name, tc := range map[string]struct {
		kind     string
		mode     uint16
		l3s, vrf bool
	}{
		"l2": {kind: "ipvlan"}, "l3": {kind: "ipvlan", mode: 1}, "l3s": {kind: "ipvlan", mode: 2, l3s: true}, "tap in l3s": {kind: "ipvtap", mode: 2, l3s: true},
		"macvlan in mode VEPA": {kind: "macvlan", mode: 2}, "VRF": {kind: "vrf", vrf: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := netlinkMessage(unix.RTM_NEWLINK, unix.AF_UNSPEC, unix.ARPHRD_ETHER, 2, "eth0")
			info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
			info.AddRtAttr(unix.IFLA_INFO_KIND, nl.ZeroTerminated(tc.kind))
			info.AddRtAttr(unix.IFLA_INFO_DATA|unix.NLA_F_NESTED, nil).AddRtAttr(nl.IFLA_IPVLAN_MODE, nl.Uint16Attr(tc.mode))
			m = append(m, info.Serialize()...)
			binary.NativeEndian.PutUint32(m, uint32(len(m)))
			links, _, _, err := parseLinks(m)
			if err != nil || len(links) != 1 || links[0].L3S != tc.l3s || links[0].VRF != tc.vrf {
				t.Errorf("%+v, %v, want L3S %v, VRF %v", links, err, tc.l3s, tc.vrf)
			}
		})
	}
}

// TestGet checks that each interface that exists is described, more than one request holds, and no other.
func TestGet(t *testing.T) {
	const pairs = 2 * atATime
	ns := privileged.NetNS(t)
	err := InNetNS(int(ns.Fd()), func() error {
		indexes := []int{1, 1 << 20}
		for i := range pairs {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = fmt.Sprintf("more%d", i)
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: attrs.Name + "-p"}); err != nil {
				return err
			}
			l, err := netlink.LinkByName(attrs.Name)
			if err != nil {
				return err
			}
			indexes = append(indexes, l.Attrs().Index)
		}
		all, err := Get(indexes)
		if err != nil {
			return err
		}
		if len(all) != pairs+1 || all[0].Name != "lo" || all[pairs].Name != fmt.Sprintf("more%d", pairs-1) {
			t.Errorf("%d interfaces, want %d: %+v", len(all), pairs+1, all)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// filterMessage builds a message on a filter of the kind, whose seventh option is this name.
func filterMessage(typ int, kind, name string) []byte {
	m := nl.NewNetlinkRequest(typ, 0)
	m.AddData(&nl.TcMsg{Ifindex: 2, Handle: 7, Parent: netlink.HANDLE_MIN_EGRESS, Info: netlink.MakeHandle(9, unix.ETH_P_ALL)})
	m.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_BPF_NAME, nl.ZeroTerminated(name))
	m.AddData(options)
	return m.Serialize()
}

func TestParseFilters(t *testing.T) {
	tests := map[string]struct {
		message []byte
		want    Filter
	}{
		"a program":    {filterMessage(unix.RTM_NEWTFILTER, "bpf", "sonde:x"), Filter{Parent: netlink.HANDLE_MIN_EGRESS, Priority: 9, Handle: 7, Name: "sonde:x"}},
		"removed":      {filterMessage(unix.RTM_DELTFILTER, "bpf", "x"), Filter{Parent: netlink.HANDLE_MIN_EGRESS, Priority: 9, Handle: 7, Name: "x", Removed: true}},
		"another kind": {filterMessage(unix.RTM_NEWTFILTER, "u32", "sonde:x"), Filter{Parent: netlink.HANDLE_MIN_EGRESS, Priority: 9, Handle: 7}},
		"no filter":    {filterMessage(unix.RTM_NEWQDISC, "clsact", ""), Filter{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			links, _, _, err := parseLinks(tc.message)
			if diff := cmp.Diff([]Link{{Index: 2, Filters: true, Filter: tc.want}}, links); err != nil || diff != "" {
				t.Errorf("error %v, links (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestListOfRestlessInterfaces checks that a listing that changes never let end is given up, and keeps one state of each interface.
func TestListOfRestlessInterfaces(t *testing.T) {
	ready, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) // like a socket that always has a message
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(ready) })
	w := &Watch{fd: ready}
	n := 0
	endless := func() ([]Link, bool, error) {
		n++
		return []Link{{Index: 2, Name: "eth0"}, {Index: 1, Name: "lo"}, {Index: 2, Name: fmt.Sprint("eth", n%2)}, {Index: n + 3, Name: "x"}, {Index: n + 3, Name: "x", Gone: true}}, false, nil
	}
	got, err := w.collect(endless, 50*time.Millisecond)
	want := []Link{{Index: 1, Name: "lo"}, {Index: 2, Name: fmt.Sprint("eth", n%2)}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, after %d messages (-want +got):\n%s", err, n, diff)
	}
	// The last listing does not have an interface whose end the kernel did not report.
	w.listed = map[int]bool{1: true}
	whole := func() ([]Link, bool, error) {
		return []Link{{Index: 1, Name: "lo"}, {Index: 7, Name: "left"}}, true, nil
	}
	got, err = w.collect(whole, time.Minute)
	if diff := cmp.Diff([]Link{{Index: 1, Name: "lo"}}, got); err != nil || diff != "" {
		t.Errorf("error %v, of a whole listing (-want +got):\n%s", err, diff)
	}
}

func FuzzParseLinks(f *testing.F) {
	f.Add(netlinkMessage(unix.RTM_NEWLINK, unix.AF_UNSPEC, unix.ARPHRD_ETHER, 2, "eth0"))
	f.Add(withXDP(netlinkMessage(unix.RTM_NEWLINK, unix.AF_UNSPEC, unix.ARPHRD_ETHER, 2, "eth0"), 1))
	f.Add(filterMessage(unix.RTM_NEWTFILTER, "bpf", "x"))
	f.Add(netlinkMessage(unix.NLMSG_ERROR, 1, 0xffff, -1, "x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		links, _, _, _ := parseLinks(b)
		for _, l := range links {
			if !l.Filters && (l.Index <= 0 || l.Name == "") {
				t.Errorf("accepted %+v", l)
			}
		}
	})
}
