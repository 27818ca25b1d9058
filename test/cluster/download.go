package cluster

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/numbered"
	"github.com/sonde-operator/sonde/test/wireshark"
)

// Download fetches one file per Pod through the plugin and returns their contents by Pod name.
func Download(t *testing.T, pc *sondev1.PacketCapture) map[string]Contents {
	t.Helper()
	got := map[string]Contents{}
	for pod, file := range DownloadFiles(t, pc, ".pcapng") {
		got[pod] = Read(t, file)
	}
	return got
}

// DownloadFiles fetches one file per Pod through the plugin and returns their paths by Pod name.
func DownloadFiles(t *testing.T, capture sondev1.Capture, suffix string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "files")
	name := strings.ToLower(capture.KindName()) + "/" + capture.GetName()
	args := []string{"download", name, "-n", capture.GetNamespace(), "--keep-separate", "-o", dir}
	out, err := exec.CommandContext(t.Context(), Plugin, args...).CombinedOutput()
	// The exit code 3 says that a saved file is incomplete.
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 && capture.CaptureStatus().Phase == sondev1.PhaseIncomplete {
		err = nil
	}
	if err != nil {
		t.Fatalf("kubectl sonde %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files downloaded (%v); the plugin printed\n%s", err, out)
	}
	byPod := map[string]string{}
	for _, f := range files {
		pod := strings.TrimSuffix(filepath.Base(f), suffix)
		byPod[strings.TrimSuffix(pod, "-"+capture.CaptureStatus().JobID)] = f
	}
	return byPod
}

// Contents counts the packets of a capture file: how often it holds each numbered packet of each run.
type Contents struct {
	Packets int
	Numbers map[uint32]map[uint64]int
	// Unordered counts packets with a lower number than an earlier one of their run.
	Unordered int
	// The totals that the file states in the statistics of its interfaces.
	Received, Dropped, Delivered uint64
}

// Count returns how many different numbers of a run there are, and how many packets carry them.
func (c Contents) Count(run uint32) (different, packets int) {
	for _, n := range c.Numbers[run] {
		packets += n
	}
	return len(c.Numbers[run]), packets
}

// Read returns the contents of a capture file. The test fails if capinfos or tshark complains about the file.
func Read(t *testing.T, file string) Contents {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	NoWarning(t, file)
	got, last := Contents{Numbers: map[uint32]map[uint64]int{}}, map[uint32]uint64{}
	r := pcapng.NewReader(bytes.NewReader(b))
	for {
		block, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if s, ok := block.(*pcapng.Statistics); ok {
			got.Received += *s.Received
			got.Dropped += *s.IfDrop
			got.Delivered += *s.Delivered
		}
		p, ok := block.(*pcapng.Packet)
		if !ok {
			continue
		}
		got.Packets++
		decoded := gopacket.NewPacket(p.Data, layers.LayerTypeEthernet, gopacket.NoCopy)
		udp, ok := decoded.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok {
			continue
		}
		if run, seq, ok := numbered.Get(udp.Payload); ok {
			if got.Numbers[run] == nil {
				got.Numbers[run] = map[uint64]int{}
			}
			got.Numbers[run][seq]++
			if seq < last[run] {
				got.Unordered++
			}
			last[run] = max(last[run], seq)
		}
	}
}

// NoWarning fails the test if capinfos or tshark prints anything on standard error for a file.
func NoWarning(t *testing.T, file string) {
	t.Helper()
	wireshark.Run(t, "capinfos", file)
	wireshark.Run(t, "tshark", "-n", "-r", file, "-T", "fields", "-e", "frame.number")
}
