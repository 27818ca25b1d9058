package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/privileged"
)

// echoPort is the port of the peer's echo servers, as in testdata/sockets.c.
const echoPort = "9000"

// programsVar, in the environment, names the directory of the compiled sockets.c on a machine without a compiler. It has no
// Python and no nft either.
const programsVar = "SONDE_TEST_PROGRAMS"

// preferred returns the preferred backend that names processes.
func preferred() candidate {
	if slices.ContainsFunc(each, func(c candidate) bool { return c.name == tcx.name }) {
		return tcx
	}
	return clsact
}

// socketWorld is programs with sockets that the test knows, and a peer that talks to them.
type socketWorld struct {
	*testNet
	tb      testing.TB
	program string // of testdata/sockets.c
	results string // the directory of the capture's file

	mu   sync.Mutex
	pids map[uint16][]uint32 // who has the socket of a port
	// either are ports whose sockets several processes may use: each of them is right.
	either []uint16
	// answers are ports whose connections change hands: only packets with data that the target sends are its process's for sure.
	answers []uint16
}

func newSocketWorld(tb testing.TB) *socketWorld {
	tb.Helper()
	privileged.AloneWithScans(tb)
	w := &socketWorld{testNet: newTestNet(tb), tb: tb, pids: map[uint16][]uint32{}}
	if dir := os.Getenv(programsVar); dir != "" {
		w.program = filepath.Join(dir, "sockets")
	} else {
		w.program = filepath.Join(tb.TempDir(), "sockets")
		out, err := exec.Command("gcc", "-O2", "-pthread", "-Wall", "-Werror", "-o", w.program, "testdata/sockets.c").CombinedOutput()
		if err != nil {
			tb.Fatalf("build the sockets (make deps installs gcc): %v\n%s", err, out)
		}
	}
	for _, ip := range []string{peerIP, peerV6} {
		w.serveEcho(net.JoinHostPort(ip, echoPort))
	}
	return w
}

// serveEcho answers everything at an address of the peer.
func (w *socketWorld) serveEcho(addr string) {
	u := w.udp(w.tb, w.peer, "udp", addr)
	go func() {
		b := make([]byte, 2000)
		for {
			n, from, err := u.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = u.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	var l net.Listener
	err := links.InNetNS(int(w.peer.Fd()), func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	if err != nil {
		w.tb.Fatal(err)
	}
	w.tb.Cleanup(func() { _ = l.Close() })
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

// run starts a program in the target's namespace, and returns when its sockets are open.
func (w *socketWorld) run(port int, name string, args ...string) *exec.Cmd {
	w.tb.Helper()
	return w.runIn("", port, name, args...)
}

// runIn is run in a cgroup, if one is given.
func (w *socketWorld) runIn(cgroup string, port int, name string, args ...string) *exec.Cmd {
	w.tb.Helper()
	if cgroup != "" {
		args = append([]string{"-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(cgroup, "cgroup.procs"), name}, args...)
		name = "sh"
	}
	cmd := exec.Command(name, append(args, targetIP, peerIP, targetV6, peerV6, strconv.Itoa(port))...)
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), goSockets+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.tb.Fatal(err)
	}
	if err := links.InNetNS(int(w.target.Fd()), cmd.Start); err != nil {
		w.tb.Fatal(err)
	}
	w.tb.Cleanup(func() { w.kill(cmd) })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "ready" {
			return cmd
		}
		var pid, port int
		if _, err := fmt.Sscan(lines.Text(), &pid, &port); err != nil {
			w.tb.Fatalf("%s says %q", name, lines.Text())
		}
		w.mu.Lock()
		w.pids[uint16(port)] = append(w.pids[uint16(port)], uint32(pid))
		w.mu.Unlock()
	}
	w.tb.Fatalf("%s ended", name)
	return nil
}

// kill ends a program and the children that it has printed.
func (w *socketWorld) kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pids := range w.pids {
		for _, pid := range pids {
			if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && exe == w.program {
				p, _ := os.FindProcess(int(pid)) // never fails on Linux
				_ = p.Kill()
			}
		}
	}
}

// ask sends messages to a port of the target over one connection, and awaits an answer to each.
func (w *socketWorld) ask(network, ip string, port, messages int) {
	w.tb.Helper()
	var c net.Conn
	err := links.InNetNS(int(w.peer.Fd()), func() (err error) {
		c, err = net.Dial(network, net.JoinHostPort(ip, strconv.Itoa(port)))
		return err
	})
	if err != nil {
		w.tb.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 100)
	for range messages {
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, err := c.Write([]byte("a question of some bytes"))
		if err == nil {
			_, err = c.Read(b)
		}
		if err != nil {
			w.tb.Fatalf("ask port %d: %v", port, err)
		}
	}
}

// score counts the packets of one port by what they say.
type score struct {
	right, wrong, unknown int
	reasons               map[pcapng.ProcessReason]int
	example               string // of a wrong packet
	last                  *pcapng.Process
}

// eachBlock calls a function for each block of a file.
func eachBlock(tb testing.TB, path string, visit func(pcapng.Block)) {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for r := pcapng.NewReader(f); ; {
		b, err := r.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, pcapng.ErrTruncated) { // the capture still writes it
			return
		}
		if err != nil {
			tb.Fatal(err)
		}
		visit(b)
	}
}

// eachPacket calls a function for each packet of a file.
func eachPacket(tb testing.TB, path string, visit func(*pcapng.Packet)) {
	tb.Helper()
	eachBlock(tb, path, func(b pcapng.Block) {
		if p, ok := b.(*pcapng.Packet); ok {
			visit(p)
		}
	})
}

// scores compares the packets of a file with the holders of the target's ports.
func (w *socketWorld) scores(path string) map[uint16]*score {
	w.tb.Helper()
	all := map[uint16]*score{}
	eachPacket(w.tb, path, func(p *pcapng.Packet) {
		port, ok := targetPort(p.Data)
		if !ok || slices.Contains(w.answers, port) && (p.Flags.Direction() != pcapng.Outbound || p.Length < 80) {
			return
		}
		if all[port] == nil {
			all[port] = &score{reasons: map[pcapng.ProcessReason]int{}}
		}
		all[port].add(p, w.pids[port], slices.Contains(w.either, port))
	})
	return all
}

// changed are the comments of a packet whose process was renamed, or replaced in its record, while the packet was written.
var changed = []string{"process unknown"}

func (s *score) add(p *pcapng.Packet, pids []uint32, either bool) {
	s.last = p.Process
	switch {
	case p.Process == nil && slices.Equal(p.Comments, changed):
		s.unknown++
	case p.Process == nil || len(p.Comments) != 1 || p.Comments[0] != p.Process.String():
		s.wrong++
		s.example = fmt.Sprintf("comments %q, process %v", p.Comments, p.Process)
	case p.Process.Reason != pcapng.ProcessKnown:
		s.unknown++
		s.reasons[p.Process.Reason]++
	case (len(pids) == 1 || either) && slices.Contains(pids, p.Process.PID):
		s.right++
	default:
		s.wrong++
		s.example = fmt.Sprintf("%v, want a process of %v", p.Process, pids)
	}
}

// targetPort returns the target's port of a TCP or UDP packet in an Ethernet frame.
func targetPort(frame []byte) (uint16, bool) {
	ports, ok := portsOf(frame)
	if !ok {
		return 0, false
	}
	source := netip.AddrFrom4([4]byte(frame[26:30]))
	if frame[12] == 0x86 {
		source = netip.AddrFrom16([16]byte(frame[22:38]))
	}
	if s := source.String(); s == targetIP || s == targetV6 {
		return ports[0], true
	}
	return ports[1], true
}

// portsOf returns source and destination port of a TCP or UDP packet in an Ethernet frame, whose headers have no options.
func portsOf(frame []byte) (ports [2]uint16, ok bool) {
	const ethernet, ipv4, ipv6, tcp, udp = 14, 20, 40, 6, 17
	if len(frame) < ethernet+ipv4+8 {
		return ports, false
	}
	protocol, at := frame[23], ethernet+ipv4
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
	case 0x86dd:
		protocol, at = frame[20], ethernet+ipv6
	default:
		return ports, false
	}
	if protocol != tcp && protocol != udp || len(frame) < at+4 {
		return ports, false
	}
	return [2]uint16{binary.BigEndian.Uint16(frame[at:]), binary.BigEndian.Uint16(frame[at+2:])}, true
}

// report describes the scores of the ports.
func report(all map[uint16]*score) string {
	var lines []string
	for port, s := range all {
		lines = append(lines, fmt.Sprintf("port %d: %d right, %d wrong, %d unknown %v %s", port, s.right, s.wrong, s.unknown, s.reasons, s.example))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
