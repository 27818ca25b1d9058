package cli

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// The load of the benchmark: so many Pods, with so many bytes of packets per second in all, for so long.
const (
	benchPods = 10
	benchRate = 50 << 20
	benchTime = 10 * time.Second
	// benchTick is the keeper's interval.
	benchTick = 25 * time.Millisecond
)

// BenchmarkFollow runs the plugin as a process of its own that follows ten Pods over HTTP/2 and TLS, and reports what that process takes:
// the goal is at most one core and 64 MiB at 50 MB/s, without a packet left out.
func BenchmarkFollow(b *testing.B) {
	for b.Loop() {
		s := newAPIServer(b)
		s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
		server := newLoad(b, s)
		time.AfterFunc(benchTime, func() {
			s.later("packetcaptures/web", func(c v1alpha1.Capture) { c.CaptureStatus().Phase = v1alpha1.PhaseCompleted })
		})
		authority := filepath.Join(b.TempDir(), "ca.crt")
		certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		if err := os.WriteFile(authority, certificate, 0o600); err != nil {
			b.Fatal(err)
		}
		cmd := exec.CommandContext(b.Context(), os.Args[0], "--certificate-authority", authority, "follow", "web")
		cmd.Env = append(os.Environ(), testServer+"="+server.URL, "KUBECONFIG=none")
		var said bytes.Buffer
		out := &discard{}
		cmd.Stdout, cmd.Stderr = out, &said
		began := time.Now()
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		anonymous := make(chan float64)
		go peakMemory(cmd.Process.Pid, anonymous)
		if err := cmd.Wait(); err != nil {
			b.Fatalf("%v\n%s", err, &said)
		}
		usage := cmd.ProcessState.SysUsage().(*syscall.Rusage) //nolint:forcetypeassert // on Linux
		cpu := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		b.ReportMetric(float64(out.n)/1e6/benchTime.Seconds(), "MB/s")
		b.ReportMetric(cpu.Seconds()/time.Since(began).Seconds(), "cores")
		b.ReportMetric(float64(usage.Maxrss)/1024, "MiB-RSS")
		b.ReportMetric(<-anonymous, "MiB-anonymous")
		b.Log(said.String()[strings.LastIndex(said.String(), "dropped\n"):])
	}
}

// peakMemory sends the most memory that a process had, in MiB, without the pages of its program file.
func peakMemory(pid int, peak chan<- float64) {
	most := 0.0
	for {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, line, found := strings.Cut(string(status), "RssAnon:")
		if err != nil || !found {
			peak <- most
			return
		}
		var kib float64
		_, _ = fmt.Sscan(line, &kib)
		most = max(most, kib/1024)
		time.Sleep(20 * time.Millisecond)
	}
}

// discard counts what is written to it. Unlike io.Discard, it is behind a pipe.
type discard struct{ n int64 }

func (d *discard) Write(b []byte) (int, error) {
	d.n += int64(len(b))
	return len(b), nil
}

// newLoad serves what s serves, over HTTP/2 and TLS, and the growing files of ten Pods.
func newLoad(b *testing.B, s *apiServer) *httptest.Server {
	b.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/live/"):
			serveLoad(s, w, r)
		case strings.HasSuffix(r.URL.Path, "/progress"):
			for n := range benchPods {
				fmt.Fprintf(w, `{"pod":"web-%[1]d","uid":"u%[1]d","node":"n1","phase":"Capturing","account":{"v":1,"state":"capturing","files":[{"name":"%[1]d.pcapng"}]}}`+"\n", n)
			}
			w.(http.Flusher).Flush()
			awaitEnd(s, r)
		default:
			s.mux.ServeHTTP(w, r)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	b.Cleanup(server.Close)
	return server
}

// serveLoad sends packets of mixed sizes at the rate of one Pod until the capture has ended.
func serveLoad(s *apiServer, w http.ResponseWriter, r *http.Request) {
	head := pcapng.AppendInterface(pcapng.AppendSection(nil, &pcapng.Section{}), &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	_, _ = w.Write(head)
	data := make([]byte, 1500)
	var blocks []byte
	for tick := time.NewTicker(benchTick); !isOver(s) && r.Context().Err() == nil; <-tick.C {
		const most = benchRate / benchPods / int(time.Second/benchTick)
		began := time.Now().Add(-benchTick)
		for blocks = blocks[:0]; len(blocks) < most; {
			at := uint64(began.Add(benchTick * time.Duration(len(blocks)) / time.Duration(most)).UnixNano())
			for _, size := range []int{64, 1500, 120, 1500, 576, 1500} {
				blocks = pcapng.AppendPacket(blocks, &pcapng.Packet{Time: at, Data: data[:size], Length: uint32(size)})
			}
		}
		_, _ = w.Write(blocks)
		w.(http.Flusher).Flush()
	}
}

// isOver reports whether the capture has ended.
func isOver(s *apiServer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.captures["packetcaptures/web"].CaptureStatus().Phase.Final()
}

// awaitEnd returns when the capture or the request has ended.
func awaitEnd(s *apiServer, r *http.Request) {
	for !isOver(s) && r.Context().Err() == nil {
		time.Sleep(benchTick)
	}
}
