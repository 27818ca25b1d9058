package capture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	ebpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/test/frames"
	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/privileged"
)

// These tests do what a target with CAP_NET_ADMIN can do against its own capture.

// gaps are the notes on interfaces whose packets may be missing, without their times.
func gaps(a *record.Account) string {
	var notes []string
	for _, i := range a.Interfaces {
		if i.Gap {
			note, _, _ := strings.Cut(i.Note, " (")
			notes = append(notes, i.Name+": "+note)
		}
	}
	return strings.Join(notes, "; ")
}

// wantGap checks that a capture has ended as it should, and that the account notes just this gap.
func wantGap(t *testing.T, res Result, want string) {
	t.Helper()
	got := gaps(&res.Account)
	if res.Reason != recording.Stopped || res.Err != nil || (want == "") != (got == "") || !strings.HasPrefix(got, want) {
		t.Errorf("reason %s, error %v, gaps %q; want %q", res.Reason, res.Err, got, want)
	}
}

// move moves an interface into another namespace.
func (n *testNet) move(t *testing.T, from *os.File, name string, to *os.File) {
	t.Helper()
	n.in(t, from, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		return h.LinkSetNsFd(l, int(to.Fd()))
	})
}

func (n *testNet) moveAway(t *testing.T) {
	t.Helper()
	n.move(t, n.target, "eth0", privileged.NetNS(t))
}

func (n *testNet) moveAwayAndBack(t *testing.T) {
	t.Helper()
	other := privileged.NetNS(t)
	n.move(t, n.target, "eth0", other)
	n.move(t, other, "eth0", n.target)
}

func (n *testNet) removeEth0(t *testing.T) {
	t.Helper()
	n.remove(t, "eth0")
}

func (*testNet) doNothing(*testing.T) {}

func TestMovedInterfaceIsAGap(t *testing.T) {
	t.Parallel()
	const (
		moved    = "eth0: moved into another network namespace"
		detached = "eth0: a process detached the capture from it"
	)
	tests := map[string]struct {
		cfg  Config
		act  func(*testNet, *testing.T)
		want string
	}{
		"moved":                      {act: (*testNet).moveAway, want: moved},
		"moved, of a node's network": {cfg: Config{NodeNetwork: true}, act: (*testNet).moveAway},
		"moved and back":             {act: (*testNet).moveAwayAndBack, want: moved},
		"deleted":                    {act: (*testNet).removeEth0},
	}
	for _, cand := range each {
		for name, tc := range tests {
			t.Run(cand.name+", "+name, func(t *testing.T) {
				n := newTestNet(t)
				tc.cfg.NetNS = n.target
				r := start(t, cand.engine(), &tc.cfg)
				n.senderTo(t, n.target, n.peer, peerIP).send(0, 100)
				tc.act(n, t) // the capture ends before it needs to know
				res := r.stop()
				want := tc.want
				// The kernel removes the filters of an interface that leaves, and says so first. A capture that checks them between the two
				// messages finds the interface back, and notes that. The first cause stays.
				if cand.name == clsact.name && name == "moved and back" && strings.HasPrefix(gaps(&res.Account), detached) {
					want = detached
				}
				wantGap(t, res, want)
				exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, 100)
			})
		}
	}
}

// A process can move eth0 away before the capture begins, too.
func TestNoNetworkIsAGap(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cfg  Config
		act  func(*testNet, *testing.T)
		want string
	}{
		"moved":                      {act: (*testNet).moveAway, want: "no interface: only loopback was up when the capture began"},
		"moved, of a node's network": {cfg: Config{NodeNetwork: true}, act: (*testNet).moveAway},
		"loopback is wanted":         {cfg: Config{Interfaces: []string{"lo"}}, act: (*testNet).moveAway},
		"a network":                  {act: (*testNet).doNothing},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := newTestNet(t)
			tc.act(n, t)
			tc.cfg.NetNS = n.target
			wantGap(t, start(t, afPacket.engine(), &tc.cfg).stop(), tc.want)
		})
	}
}

// A container runtime in the Pod moves one end of a veth into its container. The other end has the same packets.
func TestMovedEndOfAVethIsNoGap(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		interfaces []string
		want       string
	}{
		"both ends are captured": {nil, ""},
		"the moved end alone":    {[]string{"inner"}, "inner: moved"},
	}
	for _, cand := range each {
		for name, tc := range tests {
			t.Run(cand.name+", "+name, func(t *testing.T) {
				n := newTestNet(t)
				n.in(t, n.target, func(h *netlink.Handle) error {
					attrs := netlink.NewLinkAttrs()
					attrs.Name = "inner"
					return h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "outer"})
				})
				r := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: tc.interfaces})
				n.move(t, n.target, "inner", privileged.NetNS(t))
				wantGap(t, r.stop(), tc.want)
			})
		}
	}
}

// open opens a capture that reads nothing before its Run.
func (n *testNet) open(t *testing.T, cand candidate) (run func() *running) {
	t.Helper()
	return n.openWith(t, cand, &Config{})
}

// openWith is open with a configuration.
func (n *testNet) openWith(t *testing.T, cand candidate, cfg *Config) (run func() *running) {
	t.Helper()
	cfg.NetNS, cfg.Dir, cfg.Base = n.target, t.TempDir(), "web"
	c, err := cand.engine().Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return func() *running {
		ctx, cancel := context.WithCancel(t.Context())
		r := &running{Capture: c, t: t, cancel: func(error) { cancel() }, result: make(chan Result, 1)}
		go func() { r.result <- c.Run(ctx) }()
		return r
	}
}

// flood makes the kernel drop the messages that follow to the capture's netlink sockets.
func (n *testNet) flood(t *testing.T) {
	t.Helper()
	n.in(t, n.target, func(h *netlink.Handle) error {
		l, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		for mtu := range 2000 {
			if err := h.LinkSetMTU(l, 1500+mtu); err != nil {
				return err
			}
		}
		return nil
	})
}

// A target can hide the message on a moved interface by a flood of others.
func TestMoveInAFloodIsAGap(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		act  func(*testNet, *testing.T)
		want string
	}{
		"moved":          {(*testNet).moveAway, "eth0: left the network namespace unnoticed"},
		"moved and back": {(*testNet).moveAwayAndBack, "eth0: a process detached the capture from it"},
		"nothing":        {(*testNet).doNothing, ""},
	}
	for _, cand := range each {
		for name, tc := range tests {
			t.Run(cand.name+", "+name, func(t *testing.T) {
				n := newTestNet(t)
				run := n.open(t, cand)
				n.flood(t)
				tc.act(n, t)
				want := tc.want
				if cand.name == clsact.name { // the dropped messages may have been about filters
					want = "lo: too many changes"
				}
				wantGap(t, run().stop(), want)
			})
		}
	}
}

// The note on a flood is in the account, and the first one of those that are no gap, also if a target has made many interfaces that
// cannot be captured: the message has no room for the notes of all.
func TestNotesDoNotHideAFlood(t *testing.T) {
	s := newSession(&Config{}, record.CreateFile)
	skip := func(from, to int, gap bool) {
		for i := from; i < to; i++ {
			s.skip(&links.Link{Index: i + 1, Name: fmt.Sprint("odd", i)}, "odd", gap)
		}
	}
	skip(0, maxNotes-1, false)
	skip(maxNotes, maxNotes+1, true) // the last note
	s.noteUnnoticed()
	s.noteUnnoticed()
	skip(maxNotes+1, 2*maxNotes, false)
	s.rec.Publish()
	a := s.Account()
	if len(a.Interfaces) != maxNotes+1 || a.Interfaces[0].Name != unnoticed {
		t.Errorf("%d notes, want %d; the first is %+v", len(a.Interfaces), maxNotes+1, a.Interfaces[:min(1, len(a.Interfaces))])
	}
	same := func(i record.InterfaceAccount) bool { return i.Name == unnoticed }
	if gaps(&a) == "" || slices.ContainsFunc(a.Interfaces[1:], same) {
		t.Errorf("the gap or another note is missing: %+v", a.Interfaces)
	}
}

// A target can hide an interface that comes and goes in a flood of messages. The account says that there may have been one.
func TestInterfaceThatComesAndGoesInAFlood(t *testing.T) {
	t.Parallel()
	frame := append(slices.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 1, 0x88, 0xb6) // a local experimental protocol
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			run := n.open(t, cand)
			n.flood(t)
			n.addDown(t, "late1")
			n.setUp(t, "late1", true)
			podnet.SendRaw(t, n.target, "late1", false, frame)
			n.remove(t, "late1")
			n.flood(t)
			a := run().stop().Account
			notes := 0
			for _, i := range a.Interfaces {
				if i.Name == unnoticed && strings.Contains(i.Note, "came and went") && !i.Gap {
					notes++
				}
			}
			if notes != 1 {
				t.Errorf("%d notes, want 1: %+v", notes, a.Interfaces)
			}
		})
	}
}

// Whoever removes the filters of clsact, or adds one before them that lets no other run, hides packets. The capture notes it and
// attaches again. At tcx and for packet sockets these are no means.
func TestRemovedFiltersAreAGap(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*testNet, *testing.T){
		"discipline removed":    (*testNet).removeDiscipline,
		"egress filter removed": (*testNet).removeEgressFilter,
		"filter before it":      (*testNet).filterBefore,
	}
	const want = "eth0: a process detached the capture from it"
	for name, act := range tests {
		t.Run(name, func(t *testing.T) {
			n := newTestNet(t)
			r := start(t, clsact.engine(), &Config{NetNS: n.target, Owner: ownUID})
			s := n.senderTo(t, n.target, n.peer, peerIP)
			s.send(0, 100)
			act(n, t)
			if name == "filter before it" { // no place is left before it
				wantGap(t, r.stop(), "eth0: a process added a filter before the capture's")
				return
			}
			r.until("the note", func(a record.Account) bool { return gaps(&a) != "" })
			s.send(100, 200)
			res := r.stop()
			wantGap(t, res, want)
			exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, 200)
			n.wantAtClsact(t, "ended")
		})
		t.Run(name+" at the end", func(t *testing.T) {
			n := newTestNet(t)
			run := n.open(t, clsact)
			act(n, t)
			wantGap(t, run().stop(), "eth0: ")
		})
	}
}

// brief adds a filter to eth0 and removes it.
func (n *testNet) brief(t *testing.T, filter netlink.Filter) {
	t.Helper()
	n.foreign(t, "clsact", filter)
	n.in(t, n.target, func(h *netlink.Handle) error { return h.FilterDel(filter) })
}

// A filter may have kept packets from the capture although it is gone before the capture looks.
func TestBriefFilterIsAGap(t *testing.T) {
	t.Parallel()
	p := dropper(t)
	const want = "eth0: a process added a filter before the capture's"
	tests := map[string]struct {
		before, after netlink.Filter
		replaced      bool
		want          string
	}{
		"before it":                      {after: noProgram(1), want: want},
		"of the same priority":           {after: drops(p, 50, 1), want: want},
		"after it":                       {after: noProgram(60000)},
		"of the same priority, replaced": {before: drops(p, 1, 1), after: drops(p, 1, 1), replaced: true},
		"of the same priority, again":    {before: drops(p, 1, 1), after: drops(p, 1, 1), want: want},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := newTestNet(t)
			if tc.before != nil {
				n.foreign(t, "clsact", tc.before)
			}
			run := n.open(t, clsact)
			if tc.replaced {
				n.foreign(t, "clsact", tc.after)
			} else {
				if tc.before != nil {
					n.in(t, n.target, func(h *netlink.Handle) error { return h.FilterDel(tc.before) })
				}
				n.brief(t, tc.after)
			}
			wantGap(t, run().stop(), tc.want)
		})
	}
}

// removeDiscipline removes the queueing discipline of eth0 that filters hang on.
func (n *testNet) removeDiscipline(t *testing.T) {
	t.Helper()
	index := n.index(t, n.target, "eth0")
	n.in(t, n.target, func(h *netlink.Handle) error {
		return h.QdiscDel(&netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}})
	})
}

func (n *testNet) removeEgressFilter(t *testing.T) {
	t.Helper()
	n.in(t, n.target, func(h *netlink.Handle) error {
		l, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		filters, err := h.FilterList(l, netlink.HANDLE_MIN_EGRESS)
		if err != nil || len(filters) != 1 {
			return fmt.Errorf("%d filters, %w", len(filters), err)
		}
		return h.FilterDel(filters[0])
	})
}

func (n *testNet) filterBefore(t *testing.T) {
	t.Helper()
	n.foreign(t, "clsact", noProgram(1))
}

// attach attaches a program of another process at the egress of eth0.
func (n *testNet) attach(t *testing.T, anchor ebpflink.Anchor) (detach func()) {
	t.Helper()
	p, index := dropper(t), n.index(t, n.target, "eth0")
	var l ebpflink.Link
	err := links.InNetNS(int(n.target.Fd()), func() (err error) {
		l, err = ebpflink.AttachTCX(ebpflink.TCXOptions{Interface: index, Program: p, Attach: ebpf.AttachTCXEgress, Anchor: anchor})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	detach = sync.OnceFunc(func() { _ = l.Close() })
	t.Cleanup(detach)
	return detach
}

// A program before the capture's at tcx can hide packets. One that has come and gone may have been before it.
func TestProgramBeforeTheCaptureIsAGap(t *testing.T) {
	t.Parallel()
	const want = "eth0: a process detached the capture from it, or attached a program before"
	tests := map[string]struct {
		anchor ebpflink.Anchor
		brief  bool
		want   string
	}{
		"before it":               {ebpflink.Head(), false, want},
		"before it, for a moment": {ebpflink.Head(), true, want},
		"after it":                {ebpflink.Tail(), false, ""},
	}
	needTCX(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := newTestNet(t)
			run := n.open(t, tcx)
			if detach := n.attach(t, tc.anchor); tc.brief {
				detach()
			}
			wantGap(t, run().stop(), tc.want)
		})
	}
}

// The capture is the first again after a check.
func TestCaptureGetsBeforeAProgram(t *testing.T) {
	t.Parallel()
	needTCX(t)
	n := newTestNet(t)
	r := start(t, tcx.engine(), &Config{NetNS: n.target})
	n.attach(t, ebpflink.Head())
	r.until("the note", func(a record.Account) bool { return gaps(&a) != "" })
	s := &sender{t: t, conn: n.udp(t, n.target, "udp4", ":0"), to: &net.UDPAddr{IP: net.ParseIP(peerIP), Port: frames.Discard}}
	s.send(0, 100) // dropped after the capture
	exactly(t, readFile(t, r.stop().Path).numbers(t, "eth0"), 0, 100)
}

func needTCX(t *testing.T) {
	t.Helper()
	if !slices.ContainsFunc(each, func(c candidate) bool { return c.name == tcx.name }) {
		t.Skip("this kernel has no tcx")
	}
}

// Captures that begin and end during another one at tcx are no gap in it.
func TestOtherCapturesAtTCXAreNoGap(t *testing.T) {
	t.Parallel()
	needTCX(t)
	n := newTestNet(t)
	first := n.open(t, tcx)
	second := n.open(t, tcx)
	wantGap(t, first().stop(), "") // the second began
	third := n.open(t, tcx)
	wantGap(t, second().stop(), "") // the first ended, and the third began
	c := startChild(t, n.target, tcx, t.TempDir(), "")
	wantGap(t, third().stop(), "") // the second ended, and the child began
	fourth := n.open(t, tcx)
	c.kill()
	await(t, "the kernel", func() bool { return n.atTCX(t, "eth0") == 2 })
	wantGap(t, fourth().stop(), "")
}

// A capture that ends at once is no gap in another one, which lists the programs every second.
func TestShortCaptureAtTCX(t *testing.T) {
	t.Parallel()
	needTCX(t)
	n := newTestNet(t)
	first := n.open(t, tcx)()
	wantGap(t, n.open(t, tcx)().stop(), "")
	time.Sleep(2 * backend.CheckInterval)
	wantGap(t, first.stop(), "")
}

// Many captures of a Pod begin and end at the same time. None is a gap in another one.
//
// A capture that has no CPU for seconds takes captures that began and ended in that time for foreign programs (docs/security.md). So if
// this process had no CPU, the test begins again with fewer captures at a time. A gap with three at a time always fails it.
func TestManyCapturesAtTCX(t *testing.T) {
	t.Parallel()
	needTCX(t)
	for _, size := range []struct{ captures, atOnce int }{{50, 20}, {20, 8}, {9, 3}} {
		stall := watchStalls()
		results := manyCaptures(t, size.captures, size.atOnce)
		longest, found := stall(), slices.ContainsFunc(results, func(r Result) bool { return gaps(&r.Account) != "" })
		if found && longest > backend.CheckInterval && size.atOnce > 3 {
			t.Logf("%d captures at a time: this process had no CPU for %v", size.atOnce, longest)
			continue
		}
		for _, r := range results {
			wantGap(t, r, "")
		}
		return
	}
}

// manyCaptures makes captures of one interface at which no packets arrive, some of them at a time.
func manyCaptures(t *testing.T, captures, atOnce int) (results []Result) {
	t.Helper()
	n := newTestNet(t)
	room := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	var mu sync.Mutex
	for range captures {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			r := n.openWith(t, tcx, &Config{RingBytes: 1 << 20})()
			time.Sleep(3 * backend.CheckInterval)
			res := r.stop()
			mu.Lock()
			defer mu.Unlock()
			results = append(results, res)
		})
	}
	all.Wait()
	return results
}

// watchStalls begins to watch whether this process gets a CPU. end returns the longest time for which it did not.
func watchStalls() (end func() time.Duration) {
	const tick = 50 * time.Millisecond
	done, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		most := time.Duration(0)
		for {
			before := time.Now()
			select {
			case <-done:
				longest <- most
				return
			case <-time.After(tick):
				most = max(most, time.Since(before)-tick)
			}
		}
	}()
	return func() time.Duration {
		close(done)
		return <-longest
	}
}

// A program that comes and goes on eth0 while another capture begins is a gap: a new capture makes one change there.
func TestNewCaptureHidesNoProgram(t *testing.T) {
	t.Parallel()
	needTCX(t)
	n := newTestNet(t)
	first := n.open(t, tcx)
	second := n.open(t, tcx)
	n.attach(t, ebpflink.Head())() // and detaches it
	wantGap(t, first().stop(), "eth0: a process detached the capture from it, or attached a program before")
	second().stop()
}

// tap makes an interface of a hardware type, which a process of the target reads.
func (n *testNet) tap(t *testing.T, name string, hardware int) *os.File {
	t.Helper()
	var f *os.File
	err := links.InNetNS(int(n.target.Fd()), func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), name)
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		return errors.Join(unix.IoctlIfreq(fd, unix.TUNSETIFF, request), unix.IoctlSetInt(fd, unix.TUNSETLINK, hardware))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	n.up(t, n.target, name)
	return f
}

// A tap can claim to be a loopback interface. The packets that leave through it arrive nowhere else in the namespace.
func TestTapThatClaimsToBeLoopback(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			n.tap(t, "tap0", unix.ARPHRD_LOOPBACK)
			r := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"tap0"}, Filters: frames.OnlyDiscard()})
			n.up(t, n.target, "tap0", "10.78.0.1/24")
			n.know(t, n.target, "tap0", net.HardwareAddr{2, 0, 0, 0, 0, 1}, "10.78.0.2")
			s := &sender{t: t, conn: n.udp(t, n.target, "udp4", ":0"), to: &net.UDPAddr{IP: net.IPv4(10, 78, 0, 2), Port: frames.Discard}}
			s.send(0, 100)
			exactly(t, readFile(t, r.stop().Path).numbers(t, "tap0"), 0, 100)
		})
	}
}

// Filters of other captures are no gap, wherever they are.
func TestOtherCapturesAreNoGap(t *testing.T) {
	t.Parallel()
	n := newTestNet(t)
	r := start(t, clsact.engine(), &Config{NetNS: n.target, Owner: ownUID})
	start(t, clsact.engine(), &Config{NetNS: n.target}).stop()
	c := startChild(t, n.target, clsact, t.TempDir(), "")
	c.kill()
	n.sweep(t, 3)
	wantGap(t, r.stop(), "")
}
