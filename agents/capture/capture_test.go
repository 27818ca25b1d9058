package capture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/frames"
	"github.com/sonde-operator/sonde/test/wireshark"
)

const many = 5000

func TestEveryPacketOnce(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			paths := map[string]*sender{
				"out":  n.senderTo(t, n.target, n.peer, peerIP),
				"out6": n.senderTo(t, n.target, n.peer, peerV6),
				"in":   n.senderTo(t, n.peer, n.target, targetIP),
				"lo":   n.senderTo(t, n.target, n.target, "127.0.0.1"),
				"lo6":  n.senderTo(t, n.target, n.target, "::1"),
			}
			r := start(t, cand.engine(), &Config{
				NetNS: n.target, Description: "shop/web-1 on node-a", FilterText: "",
				Section: pcapng.Section{Application: "sonde", OS: "Linux", Comments: []string{"who: alice", "what: shop/web"}},
			})
			base := uint32(0)
			for _, name := range []string{"out", "in", "out6"} {
				paths[name].send(base, base+many)
				base += many
			}
			paths["lo"].send(0, many)
			paths["lo6"].send(many, 2*many)
			res := r.stop()
			if res.Reason != recording.Stopped || !res.Reason.Complete() || res.Err != nil {
				t.Errorf("reason %s, error %v", res.Reason, res.Err)
			}
			if d := res.Account.Dropped(); d != 0 {
				t.Errorf("%d dropped", d)
			}
			f := readFile(t, res.Path)
			exactly(t, f.numbers(t, "eth0"), 0, 3*many)
			exactly(t, f.numbers(t, "lo"), 0, 2*many)
			directions(t, f)
			if first, last := res.Account.FirstPacket, res.Account.LastPacket; first.IsZero() || !last.After(first) || time.Since(last) > time.Minute {
				t.Errorf("packets from %v to %v", first, last)
			}
			info := wireshark.Run(t, "capinfos", "-M", res.Path)
			for _, want := range []string{"Name = eth0", "Description = shop/web-1 on node-a", "what: shop/web", "nanoseconds"} {
				if !strings.Contains(info, want) {
					t.Errorf("capinfos does not say %q:\n%s", want, info)
				}
			}
			if out := wireshark.Run(t, "tshark", "-n", "-r", res.Path, "-Y", "_ws.malformed"); out != "" {
				t.Errorf("tshark finds malformed packets:\n%s", out)
			}
		})
	}
}

// directions checks the direction flags on eth0. A packet's number says which direction is right.
func directions(t *testing.T, f *content) {
	t.Helper()
	wrong := 0
	for _, p := range f.packets[f.iface(t, "eth0")] {
		n, ok := numberOf(p.Data)
		want := pcapng.Outbound
		if n >= many && n < 2*many {
			want = pcapng.Inbound | pcapng.Unicast
		}
		if ok && p.Flags != want {
			wrong++
		}
	}
	if wrong > 0 {
		t.Errorf("%d packets have the wrong direction", wrong)
	}
}

func TestFilterAndNamedInterface(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			lo, out := n.senderTo(t, n.target, n.target, "127.0.0.1"), n.senderTo(t, n.target, n.peer, peerIP)
			other := n.udp(t, n.target, "udp4", ":0")
			r := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard(), FilterText: "udp dst port 9"})
			for range 50 {
				if _, err := other.WriteToUDP([]byte("not wanted"), &net.UDPAddr{IP: out.to.IP, Port: frames.Discard + 1}); err != nil {
					t.Fatal(err)
				}
			}
			lo.send(0, 100)
			out.send(0, 500)
			res := r.stop()
			f := readFile(t, res.Path)
			if len(f.ifaces) != 1 || f.ifaces[0].Filter != "udp dst port 9" {
				t.Errorf("interfaces %+v", f.ifaces)
			}
			exactly(t, f.numbers(t, "eth0"), 0, 500)
			if res.Account.Received != 500 {
				t.Errorf("%d packets passed the filter, want 500", res.Account.Received)
			}
		})
	}
}

func TestSnapLenCutsAndCounts(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			s := n.blind(t, 1000)
			r := start(t, cand.engine(), &Config{NetNS: n.target, Filters: frames.OnlyDiscard(), SnapLen: 60})
			s.send(0, 100)
			s.size = 0
			s.send(100, 150)
			res := r.stop()
			if a := res.Account; a.Truncated != 100 || a.Written != 150 || a.Bytes != 100*60+50*46 {
				t.Errorf("account %+v", a)
			}
			f := readFile(t, res.Path)
			exactly(t, f.numbers(t, "eth0"), 0, 150)
			for _, p := range f.packets[f.iface(t, "eth0")][:100] {
				if len(p.Data) != 60 || p.Length != 1042 {
					t.Fatalf("packet of %d of %d bytes", len(p.Data), p.Length)
				}
			}
		})
	}
}

func TestTwoCapturesSeeTheSame(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			s := n.senderTo(t, n.target, n.peer, peerIP)
			a := start(t, cand.engine(), &Config{NetNS: n.target, Filters: frames.OnlyDiscard()})
			b := start(t, cand.engine(), &Config{NetNS: n.target})
			s.send(0, many)
			for _, r := range []*running{a, b} {
				res := r.stop()
				exactly(t, readFile(t, res.Path).numbers(t, "eth0"), 0, many)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			cases := map[string]struct {
				timeout time.Duration
				end     func(context.CancelCauseFunc)
				want    recording.Reason
			}{
				"stopped":     {time.Minute, func(cancel context.CancelCauseFunc) { cancel(nil) }, recording.Stopped},
				"target gone": {time.Minute, func(cancel context.CancelCauseFunc) { cancel(fmt.Errorf("watch: %w", recording.ErrTargetGone)) }, recording.TargetGone},
				"duration":    {300 * time.Millisecond, func(context.CancelCauseFunc) {}, recording.Duration},
			}
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
					defer cancel()
					r := startCtx(ctx, t, cand.engine(), &Config{NetNS: n.target})
					tc.end(r.cancel)
					if res := r.wait(); res.Reason != tc.want || res.Err != nil || !res.Reason.Complete() {
						t.Errorf("reason %s (%v), want %s", res.Reason, res.Err, tc.want)
					}
				})
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			dir := t.TempDir()
			if err := os.WriteFile(dir+"/taken.pcapng", []byte("a result"), 0o600); err != nil {
				t.Fatal(err)
			}
			bad := map[pcapng.LinkType]bpfprog.Program{pcapng.LinkTypeEthernet: {{Code: 0xffff}}}
			cases := map[string]struct {
				cfg  Config
				want string
			}{
				"file that exists":   {Config{Dir: dir, Base: "taken"}, "never overwritten"},
				"missing folder":     {Config{Dir: dir + "/none", Base: "x"}, "create result"},
				"limit below header": {Config{Dir: dir, Base: "a", MaxBytes: 10}, "raise the limit"},
				"bad filter":         {Config{Dir: dir, Base: "b", Filters: bad}, "filter"},
				"filter too long":    {Config{Dir: dir, Base: "c", Filters: map[pcapng.LinkType]bpfprog.Program{1: make(bpfprog.Program, 4097)}}, "simplify the filter"},
				"empty filter":       {Config{Dir: dir, Base: "d", Filters: map[pcapng.LinkType]bpfprog.Program{1: {}}}, "simplify the filter"},
			}
			before := openFiles(t)
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					tc.cfg.NetNS = n.target
					_, err := cand.engine().Open(&tc.cfg)
					if err == nil || !strings.Contains(err.Error(), tc.want) {
						t.Errorf("error %v, want %q", err, tc.want)
					}
				})
			}
			file, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if _, err := cand.engine().Open(&Config{NetNS: file, Dir: dir, Base: "e"}); !errors.Is(err, unix.EINVAL) {
				t.Errorf("a file that is not a namespace: %v", err)
			}
			if after := openFiles(t); after > before+1 {
				t.Errorf("%d files are open, %d before", after, before)
			}
		})
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestCloseWithoutRun(t *testing.T) {
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			before := openFiles(t)
			c, err := cand.engine().Open(&Config{NetNS: n.target, Dir: t.TempDir(), Base: "x"})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d files are open, %d before", after, before)
			}
		})
	}
}
