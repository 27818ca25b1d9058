//go:build e2e

package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/cluster"
	"github.com/sonde-operator/sonde/test/wireshark"
)

// Three Pods, and a fourth one that joins: all numbered packets are in the stream while they are captured, in the order of time, and
// capinfos and tshark read it without a warning.
func TestPluginFollow(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	d := cluster.Deployment(t, ns, "sink", 3, "sink")
	pods := cluster.ReadyPods(t, d, 3)
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", Filter: fmt.Sprintf("udp port %d", cluster.UDPPort)})
	cluster.AwaitCapturing(t, pc)
	cmd, out, errOut := cluster.StartPlugin(t, "follow", pc.Name, "-n", ns)
	const count = 500
	for i := range pods {
		cluster.Send(t, sender, cluster.UDPAddr(pods[i].Status.PodIP), uint32(i+1), count) //nolint:gosec // three Pods
	}
	sent := time.Now()
	cluster.Eventually(t, 20*time.Second, "the packets are in the stream while the capture runs", func(context.Context) error {
		if n, _ := packetsIn(out.String()); n < 3*count {
			return fmt.Errorf("%d packets", n)
		}
		return nil
	})
	t.Logf("all are in the stream %s after they were sent", time.Since(sent).Round(100*time.Millisecond))
	first := pods[0] // the stream may end before it lists the Pod that joins
	cluster.Scale(t, d, 4)
	pods = cluster.ReadyPods(t, d, 4)
	cluster.AwaitAttached(t, pc, pods)
	for i := range pods {
		cluster.Send(t, sender, cluster.UDPAddr(pods[i].Status.PodIP), uint32(i+11), count) //nolint:gosec // four Pods
	}
	cluster.Stop(t, pc)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errOut)
	}
	if _, late := packetsIn(out.String()); late > 0 {
		t.Errorf("%d packets are out of the order of time", late)
	}
	file := filepath.Join(t.TempDir(), "stream.pcapng")
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got := cluster.Read(t, file)
	for _, run := range []uint32{1, 2, 3, 11, 12, 13, 14} {
		if different, n := got.Count(run); different != count || n != count {
			t.Errorf("run %d: %d numbers in %d packets, want %d", run, different, n, count)
		}
	}
	if !strings.Contains(errOut.String(), "packets of 4 Pods") {
		t.Errorf("the plugin says %s", errOut)
	}
	wantNames(t, file, sender, &first)
	saved := filepath.Join(t.TempDir(), "saved.pcapng")
	if out, err := exec.CommandContext(t.Context(), cluster.Plugin, "download", pc.Name, "-n", ns, "-o", saved).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantNames(t, saved, sender, &first)
}

// wantNames checks that tshark names a Pod of the capture and one of its peers.
func wantNames(t *testing.T, file string, from, to *corev1.Pod) {
	t.Helper()
	want := fmt.Sprintf("%[1]s/%[2]s\t%[1]s/%[3]s\n", from.Namespace, from.Name, to.Name)
	if shown := wireshark.Run(t, "tshark", "-N", "n", "-r", file, "-T", "fields", "-e", "ip.src_host", "-e", "ip.dst_host"); !strings.Contains(shown, want) {
		first, _, _ := strings.Cut(shown, "\n")
		t.Errorf("%s has no packet %q; the first one is %q", filepath.Base(file), want, first)
	}
}

// followUnread starts follow, whose output nobody reads but the caller.
func followUnread(t *testing.T, pc *sondev1.PacketCapture) (cmd *exec.Cmd, out *bufio.Reader, errOut *cluster.Screen) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	errOut = &cluster.Screen{}
	cmd = exec.CommandContext(t.Context(), cluster.Plugin, "follow", pc.Name, "-n", pc.Namespace)
	cmd.Stdout, cmd.Stderr = w, errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	return cmd, bufio.NewReaderSize(r, 1<<16), errOut
}

// A reader that stops for half a minute loses packets of its stream, which are counted there. The file has all of them, and the sender keeps
// its rate.
func TestPluginFollowSlowReader(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	sink := cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", Filter: fmt.Sprintf("udp port %d", cluster.UDPPort)})
	cmd, stream, errOut := followUnread(t, pc)
	cluster.Send(t, sender, cluster.UDPAddr(sink.Status.PodIP), 1, 100)
	if _, err := stream.Peek(1); err != nil {
		t.Fatal(err)
	}
	const count = 150_000 // 220 MB, far more than the buffers of keeper, manager, API server, plugin and pipe together
	began := time.Now()
	cluster.Send(t, sender, cluster.UDPAddr(sink.Status.PodIP), 2, count, "-size", "1400", "-rate", "5000")
	t.Logf("%d packets were sent in %s while nobody read the stream", count, time.Since(began).Round(100*time.Millisecond))

	cluster.Stop(t, pc)
	file := filepath.Join(t.TempDir(), "stream.pcapng")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, stream); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(errOut.String(), "because its reader was slow") {
		t.Errorf("%v\n%s", err, errOut)
	}
	inStream, inFile := cluster.Read(t, file), cluster.Download(t, pc)[sink.Name]
	if different, n := inFile.Count(2); different != count || n != count {
		t.Errorf("the file has %d numbers in %d packets, want %d", different, n, count)
	}
	if missing := uint64(inFile.Packets - inStream.Packets); missing == 0 || inStream.Dropped != missing { //nolint:gosec // the file has more
		t.Errorf("the stream lacks %d packets and counts %d", missing, inStream.Dropped)
	}
	if inStream.Delivered != uint64(inStream.Packets) { //nolint:gosec // no negative number
		t.Errorf("the stream has %d packets and counts %d", inStream.Packets, inStream.Delivered)
	}
}

// The command capture streams the packets of all Pods while they are captured. Ctrl-C ends it with all packets in the stream, and leaves
// neither the PacketCapture nor a file.
func TestPluginCaptureLive(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	pods := cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 2, "sink"), 2)
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	cmd, out, errOut := cluster.StartPlugin(t, "capture", "deploy/sink", "-n", ns, "--name", "live", "--for", "10m", "--live",
		"--filter", fmt.Sprintf("udp port %d", cluster.UDPPort))
	pc := &sondev1.PacketCapture{}
	pc.Namespace, pc.Name = ns, "live"
	cluster.AwaitCapturing(t, pc)
	const count = 500
	for i := range pods {
		cluster.Send(t, sender, cluster.UDPAddr(pods[i].Status.PodIP), uint32(i+1), count) //nolint:gosec // two Pods
	}
	cluster.Eventually(t, 20*time.Second, "the packets are in the stream while the capture runs", func(context.Context) error {
		if n, _ := packetsIn(out.String()); n < 2*count {
			return fmt.Errorf("%d packets", n)
		}
		return nil
	})
	if err := interrupt(t, cmd); err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", err, errOut)
	}
	if n, late := packetsIn(out.String()); n != 2*count || late > 0 {
		t.Errorf("%d packets, %d of them late, want %d\n%s", n, late, 2*count, errOut)
	}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(pc), pc); !apierrors.IsNotFound(err) {
		t.Errorf("the PacketCapture is left: %v", err)
	}
}

// packetsIn counts the packets of a stream that may end within a block, and those that are earlier than one before them.
func packetsIn(stream string) (n, late int) {
	r := pcapng.NewReader(strings.NewReader(stream))
	for last := uint64(0); ; {
		b, err := r.Next()
		if err != nil {
			return n, late
		}
		if p, ok := b.(*pcapng.Packet); ok {
			if n++; p.Time < last {
				late++
			}
			last = max(last, p.Time)
		}
	}
}

// What cannot be followed is refused with the next step.
func TestPluginFollowRefuses(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"})
	cluster.Stop(t, pc)
	cmd, _, errOut := cluster.StartPlugin(t, "follow", pc.Name, "-n", ns)
	if err := cmd.Wait(); err == nil || !strings.Contains(errOut.String(), "kubectl sonde download "+pc.Name) {
		t.Errorf("%v, %s", err, errOut)
	}
	cmd, _, errOut = cluster.StartPlugin(t, "follow", "missing", "-n", ns)
	if err := cmd.Wait(); err == nil || !strings.Contains(errOut.String(), "missing") {
		t.Errorf("%v, %s", err, errOut)
	}
}
