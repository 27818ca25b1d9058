package processes

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/sockets"
)

// says counts the packets to a port of the target by what they say.
func (w *world) says(path string, from, to uint16) map[string]int {
	w.t.Helper()
	got := map[string]int{}
	sockets.EachPacket(w.t, path, func(p *pcapng.Packet) {
		ports, ok := sockets.PortsOf(p.Data)
		if !ok || p.Flags.Direction() != pcapng.Inbound || ports[1] != to || from != 0 && ports[0] != from {
			return
		}
		what := p.Process.Reason.Name()
		if p.Process.Reason == pcapng.ProcessKnown {
			what = fmt.Sprint("pid ", p.Process.PID)
		}
		got[what]++
	})
	return got
}

// Two processes have UDP sockets at one address, in ways that the sockets' own options do not show. One is connected to the peer. Packets
// from there name its process, also just after packets that the other one receives.
func TestProcessesWithSocketsAtOneAddress(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]string{
		"SO_REUSEADDR was cleared": "a", "SO_REUSEPORT was cleared": "p", "SO_BINDTODEVICE was cleared": "d",
		"another address before": "c",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			stop := w.start()
			w.Run(7000, w.Program, "beside-"+how)
			other, connected := w.PIDs[7000][0], w.PIDs[7000][1]
			for range 100 {
				w.Ask("udp", podnet.TargetIP, 7000, 1) // which the programs could remember
				time.Sleep(5 * time.Millisecond)
			}
			path := stop().Path
			got, others := w.says(path, 9000, 7000), w.says(path, 0, 7000)
			if n := got[fmt.Sprint("pid ", other)]; n > 0 || got[fmt.Sprint("pid ", connected)] == 0 {
				t.Errorf("packets that only process %d receives: %v", connected, got)
			}
			if others[fmt.Sprint("pid ", other)] == 0 {
				t.Errorf("no packet names the other process, %d: %v", other, others)
			}
		})
	}
}

// A process connects its socket to the peer, and then to another host with the same ports. Packets of the first connection have no
// receiver then: they do not name the process, although the socket is the same, and connected.
func TestProcessesOfASocketThatIsConnectedAnew(t *testing.T) {
	t.Parallel()
	const other = "fd77::5:0:0:3"
	w := newWorld(t)
	podnet.Up(t, w.Peer, "peer0", other+"/64")
	podnet.Know(t, w.Target, "eth0", podnet.MAC(t, w.Peer, "peer0"), other)
	serveEcho(t, w.Peer, net.JoinHostPort(other, "9000"))
	stop := w.start()
	w.Run(7000, w.Program, "reconnect")
	late := tcp6Frame(podnet.MAC(t, w.Target, "eth0"), podnet.PeerV6, podnet.TargetV6, 9000, 7000)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		podnet.SendRaw(t, w.Peer, "peer0", false, slices.Repeat([][]byte{late}, 20)...)
	}
	path := stop().Path
	elsewhere, sent, wrong, sentSince, wrongSince := false, 0, 0, 0, 0
	sockets.EachPacket(t, path, func(p *pcapng.Packet) {
		switch out := p.Flags.Direction() == pcapng.Outbound; {
		case len(p.Data) < 74 || p.Data[20] != unix.IPPROTO_TCP:
		case out: // what came since the last packet came while the socket was connected to that host
			if elsewhere = net.IP(p.Data[38:54]).Equal(net.ParseIP(other)); elsewhere {
				sent, wrong = sent+sentSince, wrong+wrongSince
			}
			sentSince, wrongSince = 0, 0
		case elsewhere && bytes.Equal(p.Data[14:], late[14:]):
			sentSince++
			if p.Process.Reason == pcapng.ProcessKnown {
				wrongSince++
			}
		}
	})
	if sent == 0 || wrong > 0 {
		t.Errorf("%d of %d packets without a receiver name a process", wrong, sent)
	}
}

// serveEcho answers all that comes over TCP to an address of a namespace.
func serveEcho(t *testing.T, ns *os.File, addr string) {
	t.Helper()
	var l net.Listener
	err := links.InNetNS(int(ns.Fd()), func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
}

// tcp6Frame is a segment with a wrong checksum, so that the kernel does not answer it.
func tcp6Frame(to net.HardwareAddr, from, ip string, fromPort, port uint16) []byte {
	f := make([]byte, 74)
	copy(f, to)
	copy(f[12:], []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, unix.IPPROTO_TCP, 64})
	copy(f[22:], net.ParseIP(from).To16())
	copy(f[38:], net.ParseIP(ip).To16())
	copy(f[54:], []byte{byte(fromPort >> 8), byte(fromPort), byte(port >> 8), byte(port), 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 1, 1})
	return f
}

// A packet for an address that is not the Pod's names no process, although a socket for all addresses has its port. The Pod forwards such
// packets, or drops them.
func TestProcessesOfAllAddresses(t *testing.T) {
	t.Parallel()
	const foreign, foreignV6 = "10.99.0.7", "fd99::7"
	for _, forwards := range []bool{false, true} {
		t.Run(fmt.Sprint("forwards=", forwards), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			setForwarding(t, w.Target, forwards)
			podnet.Up(t, w.Target, "lo", "10.88.0.1/32", "fd88::1/128")
			w.Run(7000, w.Program, "any")
			w.Run(7010, w.Program, "any6")
			stop := w.start()
			mac := podnet.MAC(t, w.Target, "eth0")
			const each = 5
			for range each {
				for _, ip := range []string{podnet.TargetIP, "10.88.0.1", foreign} {
					podnet.SendRaw(t, w.Peer, "peer0", false, udpFrame(mac, ip, 7002))
				}
				for _, ip := range []string{podnet.TargetV6, "fd88::1", foreignV6} {
					podnet.SendRaw(t, w.Peer, "peer0", false, udp6Frame(mac, ip, 7013))
				}
				podnet.SendRaw(t, w.Peer, "peer0", false, udpFrame(mac, podnet.TargetIP, 7013), udpFrame(mac, foreign, 7013))
			}
			path := stop().Path
			for port, families := range map[uint16]int{7002: 1, 7013: 2} {
				known := fmt.Sprint("pid ", w.PIDs[port][0])
				want := map[string]int{known: 2 * each, pcapng.ProcessNoReceiver.Name(): each}
				if families == 2 {
					want = map[string]int{known: 3 * each, pcapng.ProcessNoReceiver.Name(): 2 * each}
				}
				if diff := cmp.Diff(want, w.says(path, 0, port)); diff != "" {
					t.Errorf("port %d (-want +got):\n%s", port, diff)
				}
			}
		})
	}
}

// setForwarding sets whether a Pod forwards packets. It has no route for those that the test sends.
func setForwarding(t *testing.T, target *os.File, on bool) {
	t.Helper()
	value := []byte("0")
	if on {
		value = []byte("1")
	}
	err := links.InNetNS(int(target.Fd()), func() error {
		for _, file := range []string{"ipv4/conf/eth0", "ipv6/conf/all", "ipv6/conf/eth0"} {
			if err := os.WriteFile("/proc/sys/net/"+file+"/forwarding", value, 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// udp6Frame is udpFrame with IPv6.
func udp6Frame(to net.HardwareAddr, ip string, port uint16) []byte {
	return udp6FrameFrom(podnet.PeerV6, to, ip, port)
}

func udp6FrameFrom(from string, to net.HardwareAddr, ip string, port uint16) []byte {
	f := make([]byte, 70)
	copy(f, to)
	copy(f[12:], []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 17, 64})
	copy(f[22:], net.ParseIP(from).To16())
	copy(f[38:], net.ParseIP(ip).To16())
	copy(f[54:], []byte{0x4e, 0x20, byte(port >> 8), byte(port), 0, 16})
	return f
}

// Packets with an address of loopback from elsewhere, IPv6 packets with an IPv4 address, and packets with the tag of a VLAN that the Pod
// does not have, reach no process: the kernel drops them. But a socket has their port.
func TestProcessesOfPacketsThatAreDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Run(7000, w.Program, "any")
	w.Run(7020, w.Program, "any6")
	w.Run(7030, w.Program, "mapped")
	stop := w.start()
	mac := podnet.MAC(t, w.Target, "eth0")
	tag := func(vlan byte, frame []byte) []byte {
		return slices.Concat(frame[:12], []byte{0x81, 0, 0, vlan}, frame[12:])
	}
	const each = 5
	for range each {
		podnet.SendRaw(t, w.Peer, "peer0", false,
			udpFrame(mac, podnet.TargetIP, 7002), udpFrame(mac, "127.0.0.1", 7002), tag(0, udpFrame(mac, podnet.TargetIP, 7002)), tag(7, udpFrame(mac, podnet.TargetIP, 7002)),
			udp6Frame(mac, podnet.TargetV6, 7023), udp6Frame(mac, "::1", 7023), tag(7, udp6Frame(mac, podnet.TargetV6, 7023)),
			udp6FrameFrom("::ffff:"+podnet.PeerIP, mac, podnet.TargetV6, 7023), udp6Frame(mac, "::ffff:127.0.0.1", 7030),
		)
	}
	path := stop().Path
	got, want := map[string]int{}, map[string]int{}
	for _, port := range []uint16{7002, 7023} {
		want[fmt.Sprint(port, " no VLAN: ", pcapng.ProcessKnown)] = each
		want[fmt.Sprint(port, " VLAN 7: ", pcapng.ProcessOtherHost)] = each
		want[fmt.Sprint(port, " no VLAN: ", pcapng.ProcessNoReceiver)] = each
	}
	want[fmt.Sprint(7002, " VLAN 0: ", pcapng.ProcessKnown)] = each
	want[fmt.Sprint(7023, " no VLAN: ", pcapng.ProcessNoReceiver)] = 2 * each
	want[fmt.Sprint(7030, " no VLAN: ", pcapng.ProcessNoReceiver)] = each
	sockets.EachPacket(t, path, func(p *pcapng.Packet) {
		vlan, data := "no VLAN", p.Data
		if len(data) > 18 && data[12] == 0x81 {
			vlan, data = fmt.Sprint("VLAN ", data[15]), slices.Concat(data[:12], data[16:])
		}
		ports, ok := sockets.PortsOf(data)
		if ok && p.Flags.Direction() == pcapng.Inbound && slices.Contains([]uint16{7002, 7023, 7030}, ports[1]) {
			got[fmt.Sprint(ports[1], " ", vlan, ": ", p.Process.Reason)]++
		}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
}
