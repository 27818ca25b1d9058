package follow

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// benchmark of a stream: so many Pods, each with this many packets of a mix of sizes.
const (
	benchPods    = 10
	benchPackets = 400_000
	// benchRate of each Pod in bytes per second, when its packets come evenly.
	benchRate = 5 << 20
)

var benchSizes = []int{64, 1500, 120, 1500, 576, 1500}

// BenchmarkStream merges 10 Pods as fast as it can. It reports MB/s per core, and the peak of the heap in MiB.
func BenchmarkStream(b *testing.B) { benchmarkStream(b, 0) }

// BenchmarkStreamAtRate merges 10 Pods with 50 MiB/s in all, and reports the cores that this takes.
func BenchmarkStreamAtRate(b *testing.B) { benchmarkStream(b, benchRate) }

func benchmarkStream(b *testing.B, rate int) {
	b.Helper()
	for b.Loop() {
		runtime.GC()
		debug.FreeOSMemory()
		stop, peak := make(chan struct{}), make(chan uint64)
		go watchHeap(stop, peak)
		var bytes atomic.Int64
		began, cpuBefore := time.Now(), cpuTime()
		s := New(b.Context(), Options{Out: io.Discard, Blocks: func(ctx context.Context, _, _ string, _ bool, w results.BlockSink) error {
			return benchPod(ctx, w, rate, &bytes)
		}})
		for n := range benchPods {
			s.Update(update(fmt.Sprint(n)))
		}
		s.pods.Drain(b.Context()) //nolint:errcheck // Finish returns the error, too
		r, err := s.Finish(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		cpu, took := cpuTime()-cpuBefore, time.Since(began)
		close(stop)
		b.ReportMetric(float64(bytes.Load())/1e6/cpu.Seconds(), "MB/core-s")
		b.ReportMetric(float64(bytes.Load())/1e6/took.Seconds(), "MB/s")
		b.ReportMetric(cpu.Seconds()/took.Seconds(), "cores")
		b.ReportMetric(float64(<-peak)/(1<<20), "peak-MiB")
		b.ReportMetric(float64(r.Packets), "packets")
	}
}

// benchPod sends the packets of one Pod, at a rate in bytes per second unless that is 0.
func benchPod(ctx context.Context, w io.Writer, rate int, bytes *atomic.Int64) error {
	head := pcapng.AppendSection(nil, &pcapng.Section{})
	if _, err := w.Write(head); err != nil {
		return err
	}
	if _, err := w.Write(pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})); err != nil {
		return err
	}
	data := make([]byte, 1500)
	var block []byte
	began, sent := time.Now(), 0
	for n := 0; ctx.Err() == nil; n++ {
		switch {
		case rate == 0 && n == benchPackets, rate > 0 && time.Since(began) > 5*time.Second:
			return nil
		case rate > 0 && n%1000 == 0: // the keeper sends packets in groups
			time.Sleep(time.Until(began.Add(time.Duration(sent) * time.Second / time.Duration(rate))))
		}
		size := benchSizes[n%len(benchSizes)]
		block = pcapng.AppendPacket(block[:0], &pcapng.Packet{Time: uint64(time.Now().UnixNano()), Data: data[:size], Length: uint32(size)})
		sent += len(block)
		bytes.Add(int64(len(block)))
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
	return nil
}

// watchHeap sends the peak of the heap in bytes.
func watchHeap(stop <-chan struct{}, peak chan<- uint64) {
	var most uint64
	for {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapInuse)
		select {
		case <-stop:
			peak <- most
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
