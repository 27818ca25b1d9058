package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/numbered"
	"github.com/sonde-operator/sonde/test/wireshark"
)

// Capture makes a PacketCapture of Deployment target and returns it when all probes are attached.
func Capture(t *testing.T, c client.Client, ns string, spec sondev1.PacketCaptureSpec) *sondev1.PacketCapture {
	t.Helper()
	pc := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "cap-", Namespace: ns}, Spec: spec}
	if err := c.Create(t.Context(), pc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Admin.Delete(context.WithoutCancel(t.Context()), pc) })
	AwaitCapturing(t, pc)
	return pc
}

// Trace makes a Trace and returns it when all probes are attached.
func Trace(t *testing.T, c client.Client, ns string, spec sondev1.TraceSpec) *sondev1.Trace {
	t.Helper()
	tr := &sondev1.Trace{ObjectMeta: metav1.ObjectMeta{GenerateName: "trace-", Namespace: ns}, Spec: spec}
	if err := c.Create(t.Context(), tr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Admin.Delete(context.WithoutCancel(t.Context()), tr) })
	AwaitCapturing(t, tr)
	return tr
}

// AwaitCapturing waits until all probes of the capture are attached.
func AwaitCapturing(t *testing.T, capture sondev1.Capture) {
	t.Helper()
	Eventually(t, 90*time.Second, "all probes attached", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(capture), capture); err != nil {
			return err
		}
		if s := capture.CaptureStatus(); !apimeta.IsStatusConditionTrue(s.Conditions, sondev1.ConditionCapturing) {
			return fmt.Errorf("phase %s, conditions %+v, pods %+v", s.Phase, s.Conditions, s.Pods)
		}
		return nil
	})
	WantEngine(t, capture)
}

// AwaitFinal waits until the capture is over.
func AwaitFinal(t *testing.T, capture sondev1.Capture, within time.Duration) {
	t.Helper()
	Eventually(t, within, "capture over", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(capture), capture); err != nil {
			return err
		}
		if s := capture.CaptureStatus(); !s.Phase.Final() {
			return fmt.Errorf("phase %s, pods %+v", s.Phase, s.Pods)
		}
		return nil
	})
	WantEngine(t, capture)
}

// Stop ends the capture early and waits for it.
func Stop(t *testing.T, capture sondev1.Capture) {
	t.Helper()
	if err := Admin.Patch(t.Context(), capture, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"stop":true}}`))); err != nil {
		t.Fatal(err)
	}
	AwaitFinal(t, capture, time.Minute)
}

// Download fetches one file per Pod through the plugin and returns what is in them, by Pod name.
func Download(t *testing.T, pc *sondev1.PacketCapture) map[string]Contents {
	t.Helper()
	got := map[string]Contents{}
	for pod, file := range DownloadFiles(t, pc, ".pcapng") {
		got[pod] = Read(t, file)
	}
	return got
}

// DownloadFiles fetches one file per Pod through the plugin and returns where they are, by Pod name.
func DownloadFiles(t *testing.T, capture sondev1.Capture, suffix string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "files")
	name := strings.ToLower(capture.KindName()) + "/" + capture.GetName()
	args := []string{"download", name, "-n", capture.GetNamespace(), "--keep-separate", "-o", dir}
	out, err := osexec.CommandContext(t.Context(), Plugin, args...).CombinedOutput()
	// 3 says that what was saved is not whole.
	var exit *osexec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 && capture.CaptureStatus().Phase == sondev1.PhaseIncomplete {
		err = nil
	}
	if err != nil {
		t.Fatalf("kubectl sonde %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files downloaded (%v); the Plugin said\n%s", err, out)
	}
	byPod := map[string]string{}
	for _, f := range files {
		pod := strings.TrimSuffix(filepath.Base(f), suffix)
		byPod[strings.TrimSuffix(pod, "-"+capture.CaptureStatus().JobID)] = f
	}
	return byPod
}

// Contents of a capture file: how often each numbered packet of each run is in it.
type Contents struct {
	Packets int
	Numbers map[uint32]map[uint64]int
	// What the file says of itself, in the statistics of all its interfaces.
	Received, Dropped, Delivered uint64
}

// Count returns how many different numbers of a run there are, and how many packets carry them.
func (c Contents) Count(run uint32) (different, packets int) {
	for _, n := range c.Numbers[run] {
		packets += n
	}
	return len(c.Numbers[run]), packets
}

// Read returns what is in a capture file, which neither capinfos nor tshark may find fault with.
func Read(t *testing.T, file string) Contents {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	NoWarning(t, file)
	got := Contents{Numbers: map[uint32]map[uint64]int{}}
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
		}
	}
}

// NoWarning has capinfos and tshark read a file; neither may say a word on standard error.
func NoWarning(t *testing.T, file string) {
	t.Helper()
	wireshark.Run(t, "capinfos", file)
	wireshark.Run(t, "tshark", "-n", "-r", file, "-T", "fields", "-e", "frame.number")
}

// Entry returns the status entry of a Pod.
func Entry(t *testing.T, capture sondev1.Capture, pod string) sondev1.PodResult {
	t.Helper()
	for _, e := range capture.CaptureStatus().Pods {
		if e.Name == pod {
			return e
		}
	}
	t.Fatalf("no entry for Pod %s in %+v", pod, capture.CaptureStatus().Pods)
	return sondev1.PodResult{}
}

// NothingLeft waits until no object of the capture is left in the operator's namespace: 30 s at most.
func NothingLeft(t *testing.T, uid string) {
	t.Helper()
	Eventually(t, 30*time.Second, "nothing left of the capture", func(ctx context.Context) error {
		for kind, list := range map[string]client.ObjectList{
			"Jobs": &batchv1.JobList{}, "Pods": &corev1.PodList{}, "ConfigMaps": &corev1.ConfigMapList{}, "Secrets": &corev1.SecretList{},
		} {
			if err := Admin.List(ctx, list, client.InNamespace(OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: uid}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if n := apimeta.LenList(list); n != 0 {
				return fmt.Errorf("%d %s", n, kind)
			}
		}
		return nil
	})
}
