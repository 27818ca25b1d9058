//go:build e2e

package plugin

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

func captureRing(t *testing.T, ns string, rotate sondev1.Rotate) *sondev1.PacketCapture {
	t.Helper()
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{
		TargetDeployment: "sink", Duration: "10m", Filter: fmt.Sprintf("udp port %d", cluster.UDPPort),
		Rotate: &rotate, MaxBytes: rotate.MaxBytes * int64(rotate.Files),
	})
	cluster.AwaitCapturing(t, pc)
	return pc
}

// A ring is followed from file to file: the stream has all packets in order, also those that the ring has overwritten. A reader that comes
// later gets those that the ring has.
func TestPluginFollowRing(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	sink := cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	// At 200 packets of 400 bytes per second, a file takes 0.6 s, and a reader may be 9 s behind.
	pc := captureRing(t, ns, sondev1.Rotate{MaxBytes: 64 << 10, Files: 16})
	to := cluster.UDPAddr(sink.Status.PodIP)
	first, firstOut, firstErr := cluster.StartPlugin(t, "follow", pc.Name, "-n", ns)
	const count = 4000
	cluster.Send(t, sender, to, 1, count, "-size", "400", "-rate", "200")
	later, laterOut, laterErr := cluster.StartPlugin(t, "follow", pc.Name, "-n", ns)
	const more = 500
	cluster.Send(t, sender, to, 2, more, "-size", "400", "-rate", "200")
	cluster.Stop(t, pc)
	for _, cmd := range []*exec.Cmd{first, later} {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, firstErr, laterErr)
		}
	}
	e := cluster.Entry(t, pc, sink.Name)
	if e.Packets+e.Overwritten != count+more || e.Overwritten == 0 || e.Dropped.Total() != 0 {
		t.Fatalf("status %+v, want a full ring that dropped nothing", e)
	}
	got := readStream(t, firstOut)
	for run, want := range map[uint32]int{1: count, 2: more} {
		if different, n := got.Count(run); different != want || n != want {
			t.Errorf("run %d: %d numbers in %d packets, want %d\n%s", run, different, n, want, firstErr)
		}
	}
	if got.Unordered > 0 || got.Dropped != 0 || got.Delivered != count+more {
		t.Errorf("%d packets are not in order; %d dropped, %d delivered", got.Unordered, got.Dropped, got.Delivered)
	}
	late := readStream(t, laterOut)
	if different, n := late.Count(2); different != more || n != more || late.Unordered > 0 || late.Packets == count+more {
		t.Errorf("later: %d numbers in %d packets of %d, %d not in order\n%s", different, n, late.Packets, late.Unordered, laterErr)
	}
	if !strings.Contains(laterErr.String(), "because they were captured before it began") {
		t.Errorf("later, the plugin says %s", laterErr)
	}
}

// A reader that stops for half a minute loses files of the ring. The stream goes on with the oldest file, and counts what it lacks. Drops of
// the capture itself are in the statistics of the files that it has.
func TestPluginRingSlowReader(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	sink := cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := captureRing(t, ns, sondev1.Rotate{MaxBytes: 1 << 20, Files: 4})
	cmd, begun, errOut := followUnread(t, pc)
	to := cluster.UDPAddr(sink.Status.PodIP)
	cluster.Send(t, sender, to, 1, 100)
	if _, err := begun.Peek(4000); err != nil { // packets: what was captured before the stream began does not count as lost
		t.Fatal(err)
	}
	const count = 150_000 // 220 MB, far more than the ring and all buffers together
	cluster.Send(t, sender, to, 2, count, "-size", "1400", "-rate", "5000")
	cluster.Stop(t, pc)
	stream := &cluster.Screen{}
	if _, err := io.Copy(stream, begun); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(errOut.String(), "because its reader was slow") {
		t.Errorf("%v\n%s", err, errOut)
	}
	e, got := cluster.Entry(t, pc, sink.Name), readStream(t, stream)
	if missing := uint64(e.Packets + e.Overwritten - int64(got.Packets)); missing == 0 || got.Dropped < missing || got.Dropped > missing+uint64(e.Dropped.Total()) { //nolint:gosec // no negative number
		t.Errorf("the stream lacks %d packets and counts %d; status %+v", missing, got.Dropped, e)
	}
}

// readStream returns the contents of what the plugin wrote.
func readStream(t *testing.T, out *cluster.Screen) cluster.Contents {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stream.pcapng")
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return cluster.Read(t, file)
}
