//go:build e2e

package limits

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A Pod's ring of files holds exactly the newest packets and stays within its bound while it is written. Status and
// files agree, and the plugin joins the files into one.
func TestLimitsRotate(t *testing.T) {
	const sent = 20000
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 1, "sink")
	p := cluster.ReadyPods(t, target, 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	rotate := sondev1.Rotate{MaxBytes: 1 << 20, Files: 3}
	most := rotate.MaxBytes * int64(rotate.Files)
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp", Rotate: &rotate, MaxBytes: most})
	ended := make(chan struct{})
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		for {
			select {
			case <-ended:
				return
			default:
				wantRingBound(t, p.Spec.NodeName, pc.Status.JobID, rotate)
			}
		}
	}()
	cluster.Send(t, sender, cluster.UDPAddr(p.Status.PodIP), 1, sent, "-size", "400", "-rate", "5000")
	close(ended)
	<-looked
	cluster.Stop(t, pc)
	e := cluster.Entry(t, pc, p.Name)
	if e.Phase != sondev1.PhaseCompleted || e.Packets+e.Overwritten != sent || e.Overwritten == 0 || e.Dropped.Total() != 0 || len(e.Files) != int(rotate.Files) {
		t.Errorf("status %+v, want a full ring", e)
	}
	if total := pc.Status.Totals; total.Packets != e.Packets || total.Overwritten != e.Overwritten {
		t.Errorf("totals %+v, want the counts of the one Pod %+v", total, e)
	}
	out := filepath.Join(t.TempDir(), "all.pcapng")
	if b, err := exec.CommandContext(t.Context(), cluster.Plugin, "download", pc.Name, "-n", ns, "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("download: %v\n%s", err, b)
	}
	got := cluster.Read(t, out)
	if int64(got.Packets) != e.Packets {
		t.Errorf("got %d packets in the merged file, want %d as in the status", got.Packets, e.Packets)
	}
	for seq := uint64(sent - got.Packets); seq < sent; seq++ { //nolint:gosec // small counts
		if got.Numbers[1][seq] != 1 {
			t.Fatalf("got packet %d %d times, want each of the newest %d once", seq, got.Numbers[1][seq], got.Packets)
		}
	}
	var bytes int64
	for _, f := range e.Files {
		bytes += f.Bytes
	}
	if st, err := os.Stat(out); err != nil || bytes > most || st.Size() > bytes {
		t.Errorf("merged file %v (%v), files of %d bytes in sum, want at most %d", st, err, bytes, most)
	}
}

// wantRingBound reads the sizes of the files on the node while they are written. It reads the newest first: if the
// oldest still exists at the end, all files existed at the same time.
func wantRingBound(t *testing.T, node, jobID string, rotate sondev1.Rotate) {
	t.Helper()
	files := "/var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/results/*-" + jobID + "-[0-9][0-9][0-9][0-9][0-9].pcapng"
	out := cluster.OnNode(t, node, "sh", "-c", "for f in $(printf '%s\\n' "+files+" | sort -r); do stat -c %s $f 2>/dev/null; done; true")
	var sum int64
	sizes := strings.Fields(out)
	for _, f := range sizes {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil || n > rotate.MaxBytes {
			t.Errorf("got a file of %s bytes, want at most %d (%v)", f, rotate.MaxBytes, err)
		}
		sum += n
	}
	if len(sizes) > int(rotate.Files) || sum > rotate.MaxBytes*int64(rotate.Files) {
		t.Errorf("got %d files of %d bytes in sum, want at most %d of %d each", len(sizes), sum, rotate.Files, rotate.MaxBytes)
	}
}
