package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/frames"
	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/wireshark"
)

// sendFrames puts raw frames on the wire from the peer.
func (n *testNet) sendFrames(t *testing.T, frames ...[]byte) {
	t.Helper()
	podnet.SendRaw(t, n.peer, "peer0", false, frames...)
}

func TestVLANTagsAreBackInPlace(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) { vlanTags(t, cand) })
	}
}

func TestVLANTagsInWireshark(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			if out := wireshark.Run(t, "tshark", "-n", "-r", vlanTags(t, cand), "-Y", "vlan.id == 0x123"); out == "" {
				t.Error("tshark does not see the VLAN")
			}
		})
	}
}

// vlanTags returns the file.
func vlanTags(t *testing.T, cand candidate) string {
	t.Helper()
	n := newTestNet(t)
	frame := func(to net.HardwareAddr, size int, tags ...uint16) []byte {
		b := append(bytes.Clone(to), 2, 0, 0, 0, 0, 9)
		for _, tag := range tags {
			b = binary.BigEndian.AppendUint16(b, tag)
		}
		b = binary.BigEndian.AppendUint16(b, 0x88b6)
		for len(b) < size {
			b = append(b, byte(len(b)))
		}
		return b
	}
	target := n.mac(t, n.target, "eth0")
	stranger := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	group := net.HardwareAddr{1, 0, 0x5e, 1, 1, 1}
	everyone := net.HardwareAddr{255, 255, 255, 255, 255, 255}
	sent := []struct {
		frame []byte
		flags pcapng.Flags
	}{
		{frame(target, 60), pcapng.Inbound | pcapng.Unicast},
		{frame(target, 60, 0x8100, 0x0064), pcapng.Inbound | pcapng.Unicast},
		{frame(target, 60, 0x8100, 0x0000), pcapng.Inbound | pcapng.Unicast}, // priority tag of zero
		{frame(everyone, 100, 0x8100, 0xe123), pcapng.Inbound | pcapng.Broadcast},
		{frame(group, 900, 0x88a8, 0x0005), pcapng.Inbound | pcapng.Multicast},
		{frame(stranger, 1500, 0x88a8, 0x0005, 0x8100, 0x0006), pcapng.Inbound | pcapng.Promiscuous},
	}
	full := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"eth0"}})
	short := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"eth0"}, SnapLen: 58})
	for _, s := range sent {
		n.sendFrames(t, s.frame)
	}
	for _, r := range []*running{full, short} {
		f := readFile(t, r.stop().Path)
		snap := int(f.ifaces[0].SnapLen)
		i := 0
		for _, p := range f.packets[0] {
			if len(p.Data) < 12 || p.Data[11] != 9 || p.Data[6] != 2 {
				continue // neighbour discovery
			}
			want := sent[i]
			if !bytes.Equal(want.frame[:min(snap, len(want.frame))], p.Data) || int(p.Length) != len(want.frame) {
				t.Errorf("snaplen %d, frame %d:\nsent % x\ngot  % x (of %d)", snap, i, want.frame, p.Data, p.Length)
			}
			if p.Flags != want.flags {
				t.Errorf("frame %d: flags %#x, want %#x", i, p.Flags, want.flags)
			}
			i++
		}
		if i != len(sent) {
			t.Errorf("snaplen %d: %d of %d frames", snap, i, len(sent))
		}
	}
	return full.path
}

// The kernel returns a packet to all to the sockets of its sender, without a link header. The file has the packet that leaves alone.
func TestPacketsToAllAreThereOnce(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			var index int
			n.in(t, n.target, func(h *netlink.Handle) error {
				l, err := h.LinkByName("eth0")
				if err == nil {
					index = l.Attrs().Index
				}
				return err
			})
			data := []byte("to all")
			r := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"eth0"}})
			for network, to := range map[string]net.UDPAddr{"udp4": {IP: net.IPv4(10, 77, 0, 255)}, "udp6": {IP: net.IPv6linklocalallnodes, Zone: strconv.Itoa(index)}} {
				c := n.udp(t, n.target, network, ":0")
				to.Port = frames.Discard
				if _, err := c.WriteToUDP(data, &to); err != nil {
					t.Fatal(err)
				}
			}
			got := map[string]int{}
			for _, p := range readFile(t, r.stop().Path).packets[0] {
				if bytes.HasSuffix(p.Data, data) {
					got[fmt.Sprintf("protocol %#x, flags %#x", binary.BigEndian.Uint16(p.Data[12:]), p.Flags)]++
				}
			}
			want := map[string]int{
				fmt.Sprintf("protocol %#x, flags %#x", unix.ETH_P_IP, pcapng.Outbound):   1,
				fmt.Sprintf("protocol %#x, flags %#x", unix.ETH_P_IPV6, pcapng.Outbound): 1,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("packets (-want +got):\n%s", diff)
			}
		})
	}
}

// The file of several interfaces is nearly in time order. A merge makes the order strict.
func TestMergedFileIsInStrictTimeOrder(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			lo, out := n.senderTo(t, n.target, n.target, "127.0.0.1"), n.senderTo(t, n.target, n.peer, peerIP)
			r := start(t, cand.engine(), &Config{NetNS: n.target})
			for i := uint32(0); i < many; i += 200 {
				lo.send(i, i+200)
				if i < many/2 || i%2000 == 0 { // busy on both, then on lo with a little on eth0
					out.send(i, i+200)
				}
			}
			res := r.stop()
			src, err := os.Open(res.Path)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			path := filepath.Join(t.TempDir(), "merged.pcapng")
			dst, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer dst.Close()
			merged, err := pcapng.Merge(dst, []io.Reader{src}, pcapng.MergeOptions{})
			if err != nil || merged.Late != 0 || merged.Packets != res.Account.Written {
				t.Errorf("merge: %+v, %v; %d packets were written", merged, err, res.Account.Written)
			}
			if info := wireshark.Run(t, "capinfos", path); !strings.Contains(info, "Strict time order:   True") {
				t.Errorf("capinfos says:\n%s", info)
			}
			exactly(t, readFile(t, path).numbers(t, "lo"), 0, many)
		})
	}
}

// A TCP stream over veth has segments of up to 64 KiB.
func TestGSOFramesAreWhole(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			const size = 8 << 20
			n := newTestNet(t)
			r := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"eth0"}})
			want := make([]byte, size)
			_, _ = rand.NewChaCha8([32]byte{}).Read(want) // never fails
			stream(t, n, want)
			res := r.stop()
			if res.Account.Truncated != 0 || res.Account.Dropped() != 0 {
				t.Errorf("account %+v", res.Account.Counters)
			}
			got := make([]byte, size)
			have, largest, isn := 0, 0, uint32(0)
			for _, p := range readFile(t, res.Path).packets[0] {
				if len(p.Data) < 54 || p.Data[23] != unix.IPPROTO_TCP || binary.BigEndian.Uint16(p.Data[36:]) != frames.Discard {
					continue
				}
				seq := binary.BigEndian.Uint32(p.Data[38:])
				if p.Data[47]&2 != 0 {
					isn = seq + 1
					continue
				}
				payload := p.Data[34+int(p.Data[46]>>4)*4:]
				largest = max(largest, len(payload))
				if at := int(seq - isn); at >= 0 && at+len(payload) <= size {
					have += copy(got[at:], payload)
				}
			}
			if largest < 32<<10 {
				t.Errorf("the largest segment has %d bytes: no GSO here", largest)
			}
			if have < size || !bytes.Equal(want, got) {
				t.Errorf("%d bytes sent, %d are in the file, all equal: %v", size, have, bytes.Equal(want, got))
			}
		})
	}
}

// stream sends data from target to peer by TCP.
func stream(t *testing.T, n *testNet, data []byte) {
	t.Helper()
	var l net.Listener
	err := links.InNetNS(int(n.peer.Fd()), func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(peerIP, "9"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, c)
			err = errors.Join(err, c.Close())
		}
		done <- err
	}()
	var c net.Conn
	err = links.InNetNS(int(n.target.Fd()), func() (err error) {
		c, err = net.Dial("tcp", net.JoinHostPort(peerIP, "9"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Write(data)
	if err := errors.Join(err, c.Close(), <-done); err != nil {
		t.Fatal(err)
	}
}

// A reader of the growing file finds complete blocks, except for one that is being written.
func TestFileIsReadableAtAnyMoment(t *testing.T) {
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			t.Parallel() // beside floods of this test alone
			n := newTestNet(t)
			s := n.blind(t, 1400)
			r := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard()})
			sent := uint32(0)
			for range 12 { // 9 MB: many blocks of each backend's ring
				s.send(sent, sent+500)
				sent += 500
				f := readFile(t, r.path)
				if f.err != nil && !errors.Is(f.err, pcapng.ErrTruncated) {
					t.Fatalf("after %d packets: %v", sent, f.err)
				}
				exactly(t, f.numbers(t, "eth0"), 0, uint32(len(f.packets[0])))
			}
			// When the interface is quiet the file has all packets, complete, without final statistics.
			r.until("all packets", func(a record.Account) bool { return a.Written == uint64(sent) })
			if f := readFile(t, r.path); f.err != nil || len(f.packets[0]) != int(sent) {
				t.Errorf("%d of %d packets, error %v", len(f.packets[0]), sent, f.err)
			}
			if st, err := os.Stat(r.path); err != nil || st.Size() != r.Account().FileBytes {
				t.Errorf("size %v, account says %d", st, r.Account().FileBytes)
			}
			r.stop()
		})
	}
}

func TestKilledCaptureLeavesItsLastFlush(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) { testLastFlush(t, cand) })
	}
}

func testLastFlush(t *testing.T, cand candidate) {
	t.Helper()
	n := newTestNet(t)
	dir := t.TempDir()
	c := startChild(t, n.target, cand, dir, "eth0")
	s := n.blind(t, 500)
	s.send(0, 2000)
	path := filepath.Join(dir, childBase+".pcapng")
	await(t, "the flush", func() bool { return len(readFile(t, path).packets[0]) == 2000 })
	s.send(2000, 5000) // some of these are lost with the child
	c.kill()
	f := readFile(t, path)
	if f.err != nil && !errors.Is(f.err, pcapng.ErrTruncated) {
		t.Errorf("file of a killed capture: %v", f.err)
	}
	got := len(f.packets[0])
	exactly(t, f.numbers(t, "eth0"), 0, uint32(got))
	if got < 2000 {
		t.Errorf("%d packets, 2000 had been flushed", got)
	}
	if len(f.stats) != 0 {
		t.Error("a killed capture has final statistics")
	}
}

// The kernel shows packets of a socket with PACKET_QDISC_BYPASS neither to packet sockets nor to programs at tc: no backend
// records or counts them. docs/packetcapture.md says so ("Known limits"). If this test fails, the kernel has changed.
func TestBypassIsNotSeen(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			frame := append(bytes.Clone(n.mac(t, n.peer, "peer0")), 2, 0, 0, 0, 0, 9, 0x88, 0xb6)
			frame = append(frame, make([]byte, 50)...)
			target := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"eth0"}})
			peer := start(t, cand.engine(), &Config{NetNS: n.peer, Interfaces: []string{"peer0"}})
			podnet.SendRaw(t, n.target, "eth0", false, slices.Repeat([][]byte{frame}, 10)...)
			podnet.SendRaw(t, n.target, "eth0", true, slices.Repeat([][]byte{frame}, 100)...)
			for name, tc := range map[string]struct {
				of   *running
				want int
			}{"sender": {target, 10}, "receiver": {peer, 110}} {
				res, got := tc.of.stop(), 0
				for _, p := range readFile(t, res.Path).packets[0] {
					if bytes.Equal(p.Data, frame) {
						got++
					}
				}
				if got != tc.want || res.Account.Dropped() != 0 {
					t.Errorf("%s: %d frames, %d dropped; want %d, and none dropped", name, got, res.Account.Dropped(), tc.want)
				}
			}
		})
	}
}
