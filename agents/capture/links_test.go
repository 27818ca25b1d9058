package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/frames"
	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/wireshark"
)

// addVeth joins the two namespaces by a second pair: net1 in the target's, net1-p in the peer's.
func (n *testNet) addVeth(t *testing.T) {
	t.Helper()
	const name = "net1"
	n.addDown(t, name)
	n.up(t, n.peer, name+"-p", "10.78.0.2/24")
	n.up(t, n.target, name, "10.78.0.1/24")
}

// addDown makes an interface that is down. It sends its packets to the peer's namespace.
func (n *testNet) addDown(t *testing.T, name string) {
	t.Helper()
	n.in(t, n.target, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		return h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "-p", PeerNamespace: netlink.NsFd(int(n.peer.Fd()))})
	})
	n.up(t, n.peer, name+"-p")
}

func (n *testNet) remove(t *testing.T, name string) {
	t.Helper()
	n.in(t, n.target, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		return h.LinkDel(l)
	})
}

func (n *testNet) setUp(t *testing.T, name string, up bool) {
	t.Helper()
	n.in(t, n.target, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		if up {
			return h.LinkSetUp(l)
		}
		return h.LinkSetDown(l)
	})
}

func captures(name string) func(record.Account) bool {
	return func(a record.Account) bool {
		for _, i := range a.Interfaces {
			if i.Name == name && i.LinkType == pcapng.LinkTypeEthernet { // others are left out
				return true
			}
		}
		return false
	}
}

func TestLateInterfaceIsCaptured(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			all := start(t, cand.engine(), &Config{NetNS: n.target})
			named := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"net1"}})
			if a := named.Account(); len(a.Interfaces) != 1 || !strings.Contains(a.Interfaces[0].Note, "as soon as it appears") {
				t.Errorf("account of a capture that waits: %+v", a.Interfaces)
			}
			n.addVeth(t)
			all.until("net1", captures("net1"))
			named.until("net1", captures("net1"))
			n.senderTo(t, n.target, n.peer, "10.78.0.2").send(0, 1000)
			n.senderTo(t, n.target, n.peer, peerIP).send(5000, 5100)
			res := all.stop()
			f := readFile(t, res.Path)
			exactly(t, f.numbers(t, "net1"), 0, 1000)
			exactly(t, f.numbers(t, "eth0"), 5000, 5100)
			res = named.stop()
			f = readFile(t, res.Path)
			exactly(t, f.numbers(t, "net1"), 0, 1000)
			if len(f.ifaces) != 1 || len(res.Account.Interfaces) != 1 {
				t.Errorf("interfaces %+v, account %+v", f.ifaces, res.Account.Interfaces)
			}
			wireshark.Run(t, "capinfos", all.path)
		})
	}
}

// Packets that pass a new interface before the capture is attached to it are missing, and the account says so, also if the interface is
// gone by then. An interface without such packets is no gap.
func TestPacketsBeforeTheCaptureIsAttached(t *testing.T) {
	t.Parallel()
	const interfaces, packets = 5, 50
	frame := append(slices.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 1, 0x88, 0xb6) // a local experimental protocol
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			r := start(t, cand.engine(), &Config{NetNS: n.target})
			n.addDown(t, "late0")
			r.until("late0", captures("late0"))
			n.remove(t, "late0")
			r.until("the end of late0", func(a record.Account) bool { return a.Interfaces[len(a.Interfaces)-1].Gone })
			a := r.Account()
			if got := gaps(&a); got != "" {
				t.Errorf("gaps %q of an interface that was never up", got)
			}
			for range interfaces {
				n.addDown(t, "late1")
				n.setUp(t, "late1", true)
				podnet.SendRaw(t, n.target, "late1", false, slices.Repeat([][]byte{frame}, packets)...)
				n.remove(t, "late1")
			}
			res := r.stop()
			captured := uint64(0)
			for _, i := range res.Account.Interfaces {
				if i.Name == "late1" {
					captured += i.Received
				}
			}
			if got := gaps(&res.Account); captured < interfaces*packets && !strings.Contains(got, "late1: ") {
				t.Errorf("%d of %d packets are captured, and the account has no gap but %q", captured, interfaces*packets, got)
			}
		})
	}
}

func TestLateInterfaceThatCannotBeCapturedEndsNothing(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			r := startChanged(t.Context(), t, cand.engine(), &Config{NetNS: n.target}, refuseOpen)
			n.addVeth(t)
			r.until("the note", func(a record.Account) bool {
				return len(a.Interfaces) == 3 && strings.Contains(a.Interfaces[2].Note, "refused")
			})
			n.senderTo(t, n.target, n.peer, peerIP).send(0, 100)
			res := r.stop()
			exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, 100)
			wantGap(t, res, "net1: refused")
		})
	}
}

// refuseOpen makes a session's backend unable to open more interfaces.
func refuseOpen(s *session) { s.backend = refusingOpen{s.backend} }

type refusingOpen struct{ backend.Backend }

func (refusingOpen) Open(*links.Link, bool) (backend.Source, error) {
	return nil, errors.New("refused")
}

// TestForgedMessagesOfTheTargetAreIgnored sends what a target with CAP_NET_ADMIN can send to the capture's netlink sockets,
// whose ports /proc/net/netlink shows.
func TestForgedMessagesOfTheTargetAreIgnored(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			r := start(t, cand.engine(), &Config{NetNS: n.target})
			n.forge(t, func(index int32) []byte { return linkMessage(unix.RTM_DELLINK, index, "eth0") })
			n.forge(t, func(int32) []byte { return linkMessage(unix.RTM_NEWLINK, 100000, "forged") })
			n.forge(t, func(int32) []byte { // a length beyond the message
				m := make([]byte, unix.SizeofNlMsghdr)
				binary.NativeEndian.PutUint32(m, 4000)
				return m
			})
			n.addVeth(t) // the capture reads this change after the forged ones
			r.until("net1", captures("net1"))
			n.senderTo(t, n.target, n.peer, peerIP).send(0, 1000)
			res := r.stop()
			exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, 1000)
			if res.Reason != recording.Stopped || res.Err != nil {
				t.Errorf("reason %s, error %v", res.Reason, res.Err)
			}
			for _, i := range res.Account.Interfaces {
				if i.Gone || i.Name == "forged" {
					t.Errorf("the capture believed a forged message: %+v", i)
				}
			}
		})
	}
}

// forge sends a netlink message about eth0 to every netlink socket of the target's namespace.
func (n *testNet) forge(t *testing.T, message func(eth0 int32) []byte) {
	t.Helper()
	sent := 0
	err := links.InNetNS(int(n.target.Fd()), func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		sockets, err := os.ReadFile("/proc/thread-self/net/netlink")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for line := range strings.Lines(string(sockets)) {
			var address string
			var protocol, port uint32
			if n, _ := fmt.Sscan(line, &address, &protocol, &port); n != 3 || protocol != unix.NETLINK_ROUTE || port == 0 {
				continue
			}
			if err := unix.Sendto(fd, message(int32(eth0.Index)), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port}); err != nil {
				return err
			}
			sent++
		}
		return nil
	})
	if err != nil || sent == 0 {
		t.Fatalf("forged messages were sent to %d sockets: %v", sent, err)
	}
}

// linkMessage is an rtnetlink message about an Ethernet interface.
func linkMessage(kind uint16, index int32, name string) []byte {
	m := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg, 64)
	binary.NativeEndian.PutUint16(m[4:], kind)
	binary.NativeEndian.PutUint16(m[unix.SizeofNlMsghdr+2:], unix.ARPHRD_ETHER)
	binary.NativeEndian.PutUint32(m[unix.SizeofNlMsghdr+4:], uint32(index))
	m = binary.NativeEndian.AppendUint16(m, uint16(unix.SizeofRtAttr+len(name)+1))
	m = binary.NativeEndian.AppendUint16(m, unix.IFLA_IFNAME)
	m = append(append(m, name...), 0)
	m = append(m, make([]byte, -len(m)&3)...)
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	return m
}

func TestDeletedInterfaceLeavesTheRest(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			n.addVeth(t)
			r := start(t, cand.engine(), &Config{NetNS: n.target})
			s := n.senderTo(t, n.target, n.peer, "10.78.0.2")
			s.send(0, 1000)
			n.remove(t, "net1")
			gone := func(a record.Account) bool {
				for _, i := range a.Interfaces {
					if i.Name == "net1" && i.Gone && i.Written >= 1000 {
						return true
					}
				}
				return false
			}
			r.until("net1 to be gone", gone)
			n.senderTo(t, n.target, n.peer, peerIP).send(2000, 3000)
			n.addVeth(t) // and it comes back as a new interface
			r.until("net1 to be back", func(a record.Account) bool { return len(a.Interfaces) == 4 })
			s.send(4000, 4100)
			res := r.stop()
			if res.Reason != recording.Stopped || res.Err != nil {
				t.Errorf("reason %s, error %v", res.Reason, res.Err)
			}
			f := readFile(t, res.Path)
			exactly(t, f.numbers(t, "net1"), 0, 1000)
			exactly(t, f.numbers(t, "eth0"), 2000, 3000)
			again := map[uint32]int{}
			for _, p := range f.packets[3] {
				if num, ok := numberOf(p.Data); ok {
					again[num]++
				}
			}
			exactly(t, again, 4000, 4100)
		})
	}
}

func TestInterfaceThatGoesDownAndUp(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			r := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard()})
			s := n.senderTo(t, n.target, n.peer, peerIP)
			s.send(0, 100)
			n.setUp(t, "eth0", false)
			n.setUp(t, "eth0", true)
			n.know(t, n.target, "eth0", n.mac(t, n.peer, "peer0"), peerIP)
			n.carrier(t, "eth0")
			s.send(100, 200)
			res := r.stop()
			exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, 200)
			if res.Reason != recording.Stopped || res.Err != nil {
				t.Errorf("reason %s, error %v", res.Reason, res.Err)
			}
		})
	}
}

// carrier waits until the kernel reports a link as up, which it does a little after the link was set up.
func (n *testNet) carrier(t *testing.T, name string) {
	t.Helper()
	await(t, name+" to be up", func() (up bool) {
		n.in(t, n.target, func(h *netlink.Handle) error {
			l, err := h.LinkByName(name)
			up = err == nil && l.Attrs().OperState == netlink.OperUp
			return err
		})
		return up
	})
}

func TestInterfaceThatIsDownAtFirst(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			n.setUp(t, "lo", false)
			r := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"lo"}})
			n.setUp(t, "lo", true)
			n.senderTo(t, n.target, n.target, "127.0.0.1").send(0, 100)
			exactly(t, readFile(t, r.stop().Path).numbers(t, "lo"), 0, 100)
		})
	}
}

// addTun makes a tun device in the target's namespace and returns its file, from which packets could be read.
func (n *testNet) addTun(t *testing.T, name, addr string) {
	t.Helper()
	n.in(t, n.target, func(*netlink.Handle) error {
		return links.InNetNS(int(n.target.Fd()), func() error {
			f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = f.Close() })
			ifr, err := unix.NewIfreq(name)
			if err != nil {
				return err
			}
			ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			return unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, ifr)
		})
	})
	n.up(t, n.target, name, addr)
}

func TestTunIsCapturedAsRawIP(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			n.addTun(t, "tun0", "10.79.0.1/24")
			r := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"tun0"}})
			filtered := start(t, cand.engine(), &Config{NetNS: n.target, Filters: frames.OnlyDiscard()})
			named := start(t, cand.engine(), &Config{NetNS: n.target, Filters: frames.OnlyDiscard(), Interfaces: []string{"tun0"}})
			s := n.udp(t, n.target, "udp4", ":0")
			for range 10 {
				if _, err := s.WriteToUDP([]byte("hello"), &net.UDPAddr{IP: net.IPv4(10, 79, 0, 2), Port: frames.Discard}); err != nil {
					t.Fatal(err)
				}
			}
			res := r.stop()
			f := readFile(t, res.Path)
			if f.ifaces[0].LinkType != pcapng.LinkTypeRaw {
				t.Errorf("link type %d", f.ifaces[0].LinkType)
			}
			found := 0
			for _, p := range f.packets[0] {
				if p.Data[0] == 0x45 && string(p.Data[28:]) == "hello" && p.Flags == pcapng.Outbound {
					found++
				}
			}
			if found != 10 {
				t.Errorf("found %d of 10", found)
			}
			if out := wireshark.Run(t, "tshark", "-n", "-r", res.Path, "-Y", "udp.port==9"); strings.Count(out, "10.79.0.2") != 10 {
				t.Errorf("tshark says:\n%s", out)
			}
			// The other capture has no filter for the link type of a tun device.
			var notes []string
			for _, i := range filtered.stop().Account.Interfaces {
				if i.Note != "" {
					notes = append(notes, fmt.Sprintf("%s: %s", i.Name, i.Note))
				}
			}
			if len(notes) != 1 || !strings.HasPrefix(notes[0], "tun0: the filter does not fit") {
				t.Errorf("notes %q", notes)
			}
			if i := named.stop().Account.Interfaces; len(i) != 1 || i[0].Name != "tun0" || !i[0].Gap {
				t.Errorf("a named interface that is not captured: %+v, want a gap", i)
			}
		})
	}
}

func TestInterfacesShareTheRing(t *testing.T) {
	t.Parallel()
	const ring, mib = 8 << 20, 1 << 20
	cases := map[string]struct {
		names []string
		want  map[string]int
	}{
		"all":              {nil, map[string]int{"lo": 2 * mib, "eth0": 6 * mib}},
		"both by name":     {[]string{"eth0", "lo"}, map[string]int{"lo": 2 * mib, "eth0": 6 * mib}},
		"one":              {[]string{"eth0"}, map[string]int{"eth0": ring}},
		"loopback alone":   {[]string{"lo"}, map[string]int{"lo": ring}},
		"one that is late": {[]string{"eth0", "net1"}, map[string]int{"eth0": ring / 2}},
	}
	n := newTestNet(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := ringBytes{slog.DiscardHandler, map[string]int{}}
			c, err := New(KindAFPacket).Open(&Config{
				NetNS: n.target, RingBytes: ring, Interfaces: tc.names, Dir: t.TempDir(), Base: "web", Log: slog.New(h),
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, h.rings); diff != "" {
				t.Errorf("rings (-want +got):\n%s", diff)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// ringBytes is a log handler that collects the size of each interface's ring.
type ringBytes struct {
	slog.Handler
	rings map[string]int
}

func (h ringBytes) Enabled(context.Context, slog.Level) bool { return true }

func (h ringBytes) Handle(_ context.Context, r slog.Record) error {
	name, bytes := "", 0
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "interface":
			name = a.Value.String()
		case "ringBytes":
			bytes = int(a.Value.Int64())
		}
		return true
	})
	if bytes > 0 {
		h.rings[name] = bytes
	}
	return nil
}

// TestLateInterfacesTakeBoundedMemory: rings use the node's memory, which no container limit counts, and a target with
// NET_ADMIN can create any number of interfaces.
func TestLateInterfacesTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	const ring, late = 4 << 20, 24
	n := newTestNet(t)
	h := ringBytes{slog.DiscardHandler, map[string]int{}}
	r := start(t, New(KindAFPacket), &Config{NetNS: n.target, RingBytes: ring, Log: slog.New(h)})
	n.addMany(t, late)
	r.until("all of them", func(a record.Account) bool { return len(a.Interfaces) == 2+late })
	r.stop()
	total := 0
	for _, bytes := range h.rings {
		total += bytes
	}
	const minBlock = 128 << 10
	if most := 2*ring + late*2*minBlock; len(h.rings) != 2+late || total > most {
		t.Errorf("%d rings of %d bytes in all, want %d of at most %d", len(h.rings), total, 2+late, most)
	}
}

func TestTooManyInterfacesAreSkipped(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			const most = 8
			n := newTestNet(t)
			r := startChanged(t.Context(), t, cand.engine(), &Config{NetNS: n.target}, func(s *session) { s.maxSources = most })
			n.addMany(t, most)
			noted := func(a record.Account) (notes int) {
				for _, i := range a.Interfaces {
					if strings.Contains(i.Note, "at a time") {
						notes++
					}
				}
				return notes
			}
			r.until("the notes", func(a record.Account) bool { return noted(a) == 2 && len(a.Interfaces) == 2+most })
			n.senderTo(t, n.target, n.peer, peerIP).send(0, 100)
			res := r.stop()
			exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, 100)
			wantGap(t, res, "more")
		})
	}
}

// An ipvlan in mode L3S, which not every kernel here can make, has only its outgoing packets in the capture. On a node's network that is noted.
func TestIPVLANInModeL3S(t *testing.T) {
	for name, tc := range map[string]struct{ mode, node, want bool }{
		"of a Pod": {mode: true, want: true}, "of a node": {mode: true, node: true}, "other mode": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(&Config{NodeNetwork: tc.node, Log: slog.New(slog.DiscardHandler)}, record.CreateFile)
			src := &source{iface: &record.Interface{Account: record.InterfaceAccount{Name: "eth0", Index: 2}}}
			s.sources = append(s.sources, src)
			if err := s.linkChanged(&links.Link{Index: 2, Name: "eth0", L3S: tc.mode}); err != nil {
				t.Fatal(err)
			}
			if a := src.iface.Account; a.Gap != tc.want || strings.Contains(a.Note, "L3S") != tc.mode {
				t.Errorf("gap %v, note %q", a.Gap, a.Note)
			}
		})
	}
}

// Many interfaces that cannot be captured at all do not hide one that is kept out.
func TestNotesDoNotHideAGap(t *testing.T) {
	s := newSession(&Config{}, record.CreateFile)
	for i := range 2 * maxNotes {
		s.skip(&links.Link{Index: i + 1, Name: fmt.Sprint("odd", i)}, "odd", false)
	}
	s.skip(&links.Link{Index: 1000, Name: "eth1"}, "kept out", true)
	s.unskip("eth1") // another one of this name
	s.rec.Publish()
	a := s.Account()
	if got := gaps(&a); got != "eth1: kept out" || len(a.Interfaces) != maxNotes+1 {
		t.Errorf("gaps %q, %d interfaces", got, len(a.Interfaces))
	}
}

// A process may make another interface with the index and the name of one that is not captured, of a type that is.
func TestSkippedInterfaceIsMadeAgain(t *testing.T) {
	s := newSession(&Config{}, record.CreateFile)
	odd, other := &links.Link{Index: 77, Name: "x"}, &links.Link{Index: 78, Name: "y"}
	s.skip(odd, "hardware type 824 has no link type in pcapng", false)
	s.skipAs(record.InterfaceAccount{Name: other.Name, Index: other.Index, Gap: true, Odd: true, Note: "hardware type 824 has no link type in pcapng"})
	if err := s.linkChanged(&links.Link{Index: 77, Name: "x", Gone: true}); err != nil {
		t.Fatal(err)
	}
	if s.isSkipped(odd) || !s.isSkipped(other) || len(s.rec.Skipped) != 2 {
		t.Errorf("skipped: %+v, want the note of x, and that only y is skipped again", s.rec.Skipped)
	}
	if s.isSkipped(&links.Link{Index: 78, Name: "y", HardwareType: unix.ARPHRD_ETHER}) {
		t.Error("y is skipped although it has become Ethernet")
	}
}

// An interface that is gone keeps its place in the files and in the account. So they are bounded for a target that creates and
// deletes interfaces for ever. The ones beyond the bound are counted.
func TestInterfacesInALoopTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			t.Parallel()
			const most, rounds, late = 12, 6, 16 // more interfaces in all than are captured or have a note
			n := newTestNet(t)
			r := startChanged(t.Context(), t, cand.engine(), &Config{NetNS: n.target}, func(s *session) { s.maxInterfaces = most })
			for range rounds {
				n.addMany(t, late)
				n.removeMany(t, late)
			}
			counted := func(a record.Account) (captured int, others string) {
				for _, i := range a.Interfaces {
					switch {
					case i.Name == otherInterfaces:
						others = i.Note
					case i.LinkType == pcapng.LinkTypeEthernet:
						captured++
					}
				}
				return captured, others
			}
			r.until("the count of other interfaces", func(a record.Account) bool { _, others := counted(a); return others != "" })
			n.senderTo(t, n.target, n.peer, peerIP).send(0, 100)
			res := r.stop()
			if captured, others := counted(res.Account); captured > most || len(res.Account.Interfaces) > most+maxNotes+1 {
				t.Errorf("%d interfaces in the account, %d of them captured, want %d; %s", len(res.Account.Interfaces), captured, most, others)
			}
			held := len(r.Capture.(*session).sources)
			if got := gaps(&res.Account); !strings.Contains(got, "12 interfaces are captured in all") || held > most {
				t.Errorf("gaps %q, %d interfaces are held", got, held)
			}
			exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, 100)
		})
	}
}

func (n *testNet) addMany(t *testing.T, many int) {
	t.Helper()
	n.in(t, n.target, func(h *netlink.Handle) error {
		for i := range many {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = fmt.Sprintf("more%d", i)
			veth := &netlink.Veth{LinkAttrs: attrs, PeerName: attrs.Name + "-p", PeerNamespace: netlink.NsFd(int(n.peer.Fd()))}
			if err := h.LinkAdd(veth); err != nil {
				return err
			}
		}
		return nil
	})
}

func (n *testNet) removeMany(t *testing.T, many int) {
	t.Helper()
	n.in(t, n.target, func(h *netlink.Handle) error {
		for i := range many {
			l, err := h.LinkByName(fmt.Sprintf("more%d", i))
			if err == nil {
				err = h.LinkDel(l)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
