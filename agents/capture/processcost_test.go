package capture

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"golang.org/x/sys/unix"
)

// BenchmarkProcesses reports how long the program at ingress runs for a packet of 64 bytes, with and without the names of
// processes, by the kernel's statistics: few flows to one socket, and flows of one packet.
func BenchmarkProcesses(b *testing.B) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Skip(err)
	}
	defer func(c io.Closer) { _ = c.Close() }(stats)
	for _, flows := range []int{4, 10_000} {
		for name, p := range map[string]*backend.Processes{"off": nil, "on": {}} {
			b.Run(fmt.Sprintf("flows=%d/%s", flows, name), func(b *testing.B) { benchmarkProcesses(b, flows, p) })
		}
	}
}

func benchmarkProcesses(b *testing.B, flows int, p *backend.Processes) {
	n := newTestNet(b)
	_ = n.udp(b, n.target, "udp4", targetIP+":9")
	c, err := tcx.engine().Open(&Config{NetNS: n.target, Dir: b.TempDir(), Base: "b", Interfaces: []string{"eth0"}, Processes: p})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan Result, 1)
	go func() { done <- c.Run(ctx) }()
	sources := make([]int, flows)
	err = links.InNetNS(int(n.peer.Fd()), func() error {
		for i := range sources {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			sources[i] = fd
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 77, 0, 1}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		for _, fd := range sources {
			_ = unix.Close(fd)
		}
	}()
	payload := make([]byte, 22)
	before := ingressCost(b)
	for i := 0; b.Loop(); i++ {
		binary.LittleEndian.PutUint64(payload, uint64(i))
		_, _ = unix.Write(sources[i%flows], payload)
		if i%10_000 == 9999 {
			time.Sleep(10 * time.Millisecond)
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

// ingressCost returns the statistics of all programs at ingress on this machine.
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

