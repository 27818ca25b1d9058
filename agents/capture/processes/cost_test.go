package processes

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/test/podnet"
)

// BenchmarkProcesses reports how long the program at ingress runs for a packet of 64 bytes by the kernel's statistics, with and
// without the names of processes: few flows, and flows of one packet.
func BenchmarkProcesses(b *testing.B) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Skip(err)
	}
	defer stats.Close()
	for _, flows := range []int{4, 10_000} {
		for name, p := range map[string]*backend.Processes{"off": nil, "on": {}} {
			b.Run(fmt.Sprintf("flows=%d/%s", flows, name), func(b *testing.B) { benchmarkProcesses(b, flows, p) })
		}
	}
}

func benchmarkProcesses(b *testing.B, flows int, p *backend.Processes) {
	b.Helper()
	target, peer := podnet.New(b)
	_ = podnet.UDP(b, target, "udp4", podnet.TargetIP+":9")
	c, err := capture.New(capture.KindBPF).Open(&capture.Config{NetNS: target, Dir: b.TempDir(), Base: "b", Interfaces: []string{"eth0"}, Processes: p})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan capture.Result, 1)
	go func() { done <- c.Run(ctx) }()
	fd, to := frameSocket(b, peer)
	frame := udpFrame(podnet.MAC(b, target, "eth0"), podnet.TargetIP, 9)
	before := ingressCost(b)
	for i := 0; b.Loop(); i++ {
		binary.BigEndian.PutUint16(frame[34:], uint16(20_000+i%flows))
		if err := unix.Sendto(fd, frame, 0, to); err != nil {
			b.Fatal(err)
		}
		if i%10_000 == 0 {
			time.Sleep(10 * time.Millisecond) // for the reader of the rings
		}
	}
	after := ingressCost(b)
	cancel()
	r := <-done
	b.ReportMetric(float64(after.Runtime-before.Runtime)/float64(after.RunCount-before.RunCount), "bpf-ns/packet")
	b.ReportMetric(float64(r.Account.FileBytes)/float64(r.Account.Written), "B/packet")
	if r.Account.Processes != nil {
		b.ReportMetric(float64(r.Account.Processes.Named)/float64(r.Account.Written), "named")
	}
}

// frameSocket returns a socket that sends frames from the peer.
func frameSocket(b *testing.B, peer *os.File) (fd int, to *unix.SockaddrLinklayer) {
	b.Helper()
	podnet.In(b, peer, func(h *netlink.Handle) error {
		l, err := h.LinkByName("peer0")
		if err == nil {
			to = &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index}
		}
		return err
	})
	err := links.InNetNS(int(peer.Fd()), func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Close(fd) })
	return fd, to
}

// udpFrame returns 64 bytes from the peer to a UDP port.
func udpFrame(to net.HardwareAddr, ip string, port uint16) []byte {
	f := make([]byte, 64)
	copy(f, to)
	binary.BigEndian.PutUint16(f[12:], 0x0800)
	copy(f[14:], []byte{0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17})
	copy(f[26:], net.ParseIP(podnet.PeerIP).To4())
	copy(f[30:], net.ParseIP(ip).To4())
	binary.BigEndian.PutUint16(f[36:], port)
	binary.BigEndian.PutUint16(f[38:], 30)
	return f
}

// ingressCost returns the statistics of all captures' programs at ingress on this machine.
func ingressCost(b *testing.B) (sum ebpf.ProgramStats) {
	b.Helper()
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		if info, err := p.Info(); err == nil && info.Name == "sonde_in" {
			if s, err := p.Stats(); err == nil {
				sum.Runtime += s.Runtime
				sum.RunCount += s.RunCount
			}
		}
		_ = p.Close()
	}
	return sum
}
