package capture

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/afpacket"
	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/capture/tc"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/podnet"
)

// BPF programs deliver all interfaces and CPUs in one order, without a merge by the user.
func TestBlocksAreInTimeOrder(t *testing.T) {
	t.Parallel()
	for _, cand := range each[1:] {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			paths := []*sender{
				n.senderTo(t, n.target, n.target, "127.0.0.1"), n.senderTo(t, n.target, n.peer, peerIP), n.senderTo(t, n.peer, n.target, targetV6),
			}
			r := start(t, cand.engine(), &Config{NetNS: n.target})
			for i := uint32(0); i < many; i += 200 {
				for _, p := range paths {
					p.send(i, i+200)
				}
			}
			path := r.stop().Path
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var times []uint64
			for at := content; len(at) > 0; {
				h := pcapng.PacketHeaderOf(at)
				if h.IsPacket() {
					times = append(times, h.Time())
				}
				at = at[h.Size:]
			}
			if len(times) < 3*many || !slices.IsSorted(times) {
				t.Errorf("%d packets, in order: %v", len(times), slices.IsSorted(times))
			}
		})
	}
}

// A node that has run for a long time gives its interfaces high indexes.
func TestInterfaceOfAHighIndex(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			n.in(t, n.target, func(h *netlink.Handle) error {
				attrs := netlink.NewLinkAttrs()
				attrs.Name, attrs.Index = "net1", 1<<20
				return h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "net1-p", PeerNamespace: netlink.NsFd(int(n.peer.Fd()))})
			})
			n.up(t, n.peer, "net1-p", "10.78.0.2/24")
			n.up(t, n.target, "net1", "10.78.0.1/24")
			r := start(t, cand.engine(), &Config{NetNS: n.target})
			n.senderTo(t, n.target, n.peer, "10.78.0.2").send(0, 100)
			n.remove(t, "net1")
			r.until("its end", func(a record.Account) bool {
				return slices.ContainsFunc(a.Interfaces, func(i record.InterfaceAccount) bool { return i.Name == "net1" && i.Gone && i.Written >= 100 })
			})
			exactly(t, readFile(t, r.stop().Path).numbers(t, "net1"), 0, 100)
		})
	}
}

// ofNetlink is a filter that loads a netlink attribute, which programs at tc cannot.
var ofNetlink = map[pcapng.LinkType]bpfprog.Program{pcapng.LinkTypeEthernet: {
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0xfffff000 + 12}, // SKF_AD_NLATTR
	{Code: unix.BPF_RET | unix.BPF_K, K: 262144},
}}

// Where BPF programs do not work, auto uses packet sockets and says why, and bpf fails.
func TestAutoFallsBack(t *testing.T) {
	t.Parallel()
	n := newTestNet(t)
	r := start(t, New(KindAuto), &Config{NetNS: n.target, Interfaces: []string{"lo"}, Filters: ofNetlink})
	a := r.Account()
	why := a.EngineMessage // named once, although both attach points refuse
	if a.Engine != afpacket.Name || !strings.HasPrefix(why, "tcx: ") || strings.Count(why, "netlink attributes") != 1 || strings.Contains(why, "\n") {
		t.Errorf("engine %q: %s", a.Engine, a.EngineMessage)
	}
	r.stop()
	dir := t.TempDir()
	_, err := New(KindBPF).Open(&Config{NetNS: n.target, Dir: dir, Base: "web", Filters: ofNetlink})
	if err == nil || !strings.Contains(err.Error(), "use auto or afpacket") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// On a kernel without tcx the backend is clsact, and the account says why.
func TestEngines(t *testing.T) {
	t.Parallel()
	bpf, without := tc.TCX, ""
	if !slices.ContainsFunc(each, func(w candidate) bool { return w.name == tc.TCX }) {
		bpf, without = tc.Clsact, "tcx not supported"
	}
	cases := map[Kind]string{KindAuto: bpf, KindBPF: bpf, KindAFPacket: afpacket.Name, "": afpacket.Name}
	n := newTestNet(t)
	for kind, want := range cases {
		t.Run(string(kind), func(t *testing.T) {
			r := start(t, New(kind), &Config{NetNS: n.target})
			n.senderTo(t, n.target, n.peer, peerIP).send(0, 10)
			res := r.stop()
			if a := res.Account; a.Engine != want || (a.EngineMessage == "") != (want != tc.Clsact) || want == tc.Clsact && !strings.Contains(a.EngineMessage, without) {
				t.Errorf("engine %q (%s), want %q", a.Engine, a.EngineMessage, want)
			}
			exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, 10)
		})
	}
}

// refusingStart is a backend whose sources do not start.
type refusingStart struct{ backend.Backend }

func (b refusingStart) Open(l *links.Link, late bool) (backend.Source, error) {
	src, err := b.Backend.Open(l, late)
	return refusedSource{src}, err
}

type refusedSource struct{ backend.Source }

func (s refusedSource) Start(i *record.Interface) error {
	return errors.Join(s.Source.Start(i), errors.New("attaching failed"))
}

// A late interface that the backend cannot attach to is left out with a note, and the others continue.
func TestLateInterfaceThatCannotBeAttachedEndsNothing(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			r := startChanged(t.Context(), t, cand.engine(), &Config{NetNS: n.target}, func(s *session) { s.backend = refusingStart{s.backend} })
			n.addVeth(t)
			r.until("the note", func(a record.Account) bool { // each message about net1 is another attempt
				return len(a.Interfaces) >= 3 && strings.Contains(a.Interfaces[2].Note, "attaching failed")
			})
			n.senderTo(t, n.target, n.peer, peerIP).send(0, 100)
			res := r.stop()
			exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, 100)
			wantGap(t, res, "net1: attaching failed")
		})
	}
}

// beforeStart is a backend that calls a function before a source starts.
type beforeStart struct {
	backend.Backend
	call func()
}

func (b beforeStart) Open(l *links.Link, late bool) (backend.Source, error) {
	src, err := b.Backend.Open(l, late)
	return delayedSource{src, b.call}, err
}

type delayedSource struct {
	backend.Source
	call func()
}

func (s delayedSource) Start(i *record.Interface) error {
	s.call()
	return s.Source.Start(i)
}

// Packets of an interface that is gone before the capture is attached to it are missing, and the account says so.
func TestInterfaceThatIsGoneBeforeTheCaptureIsAttached(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			ready := make(chan struct{})
			endNet1 := func() {
				<-ready
				n.setUp(t, "net1", true)
				podnet.SendRaw(t, n.target, "net1", false, make([]byte, 64))
				n.remove(t, "net1")
			}
			r := startChanged(t.Context(), t, cand.engine(), &Config{NetNS: n.target}, func(s *session) { s.backend = beforeStart{s.backend, endNet1} })
			n.addDown(t, "net1")
			close(ready) // its other end is up
			r.until("the gap", func(a record.Account) bool { return gaps(&a) != "" })
			wantGap(t, r.stop(), "net1: up to ")
		})
	}
}

// An interface that has left since the capture listed it, before it could be attached, may have packets elsewhere: no message says so later.
func TestInterfaceThatLeavesBeforeTheStart(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			r := startChanged(t.Context(), t, cand.engine(), &Config{NetNS: n.target}, func(s *session) {
				s.attached = false
				if err := s.attach(&links.Link{Name: "net1", Index: 9999, HardwareType: unix.ARPHRD_ETHER, Flags: unix.IFF_UP}); err != nil {
					t.Error(err)
				}
				s.attached = true
			})
			n.senderTo(t, n.target, n.peer, peerIP).send(0, 10)
			res := r.stop()
			exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, 10)
			wantGap(t, res, "net1: "+leftBefore)
		})
	}
}
