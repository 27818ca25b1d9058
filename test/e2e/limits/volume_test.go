//go:build e2e

package limits

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A capture that fills its maxBytes is never evicted for the size of its volume. The test keeps the file until the
// kubelet has measured the volume with the whole file in it more than once.
func TestLimitsVolumeSize(t *testing.T) {
	needNodeDisks(t)
	cluster.NoAgents(t, agentsGone)
	const maxBytes = 100 << 20
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sender", 1, "idle")
	p := cluster.ReadyPods(t, target, 1)[0]
	sink := cluster.UDPAddr(cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)[0].Status.PodIP)
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{
		TargetDeployment: "sender", Duration: "5m", Filter: "udp port 9999", MaxBytes: maxBytes, FollowPods: new(false),
	})
	cluster.Send(t, &p, sink, 1, 90000, "-rate", "5000", "-size", "1400")
	cluster.AwaitFinal(t, pc, time.Minute)
	e := cluster.Entry(t, pc, p.Name)
	if e.Phase != sondev1.PhaseCompleted || e.Reason != sondev1.ReasonByteLimit || len(e.Files) != 1 {
		t.Fatalf("%+v, want Completed, ByteLimit and a file", e)
	}
	if size := e.Files[0].Bytes; size > maxBytes || size < maxBytes-2000 {
		t.Errorf("the file has %d bytes, want slightly less than %d", size, maxBytes)
	}
	control := overfull(t, ns, p.Spec.NodeName)
	awaitMeasured(t, pc, e.Files[0].Bytes)
	awaitEvicted(t, control)
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(pc), pc); err != nil {
		t.Fatal(err)
	}
	if e := cluster.Entry(t, pc, p.Name); e.Phase != sondev1.PhaseCompleted || len(e.Files) != 1 {
		t.Errorf("after the kubelet measured the volume: got %+v, want Completed with a file", e)
	}
	if got := cluster.Download(t, pc)[p.Name]; int64(got.Packets) != e.Packets {
		t.Errorf("got %d packets in the file, want %d", got.Packets, e.Packets)
	}
}

// awaitMeasured waits until the kubelet has measured the volume of the capture's agent twice with the whole file in it.
// Its eviction manager uses the same figures.
func awaitMeasured(t *testing.T, pc *sondev1.PacketCapture, size int64) {
	t.Helper()
	times := map[string]bool{}
	cluster.Eventually(t, 5*time.Minute, "volume measured twice", func(ctx context.Context) error {
		var agents corev1.PodList
		if err := cluster.Admin.List(ctx, &agents, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(pc.UID)}); err != nil {
			return err
		}
		if len(agents.Items) != 1 || agents.Items[0].Status.Phase != corev1.PodRunning {
			t.Fatalf("the agent's Pod has stopped: %+v", agents.Items)
		}
		at, used, err := volumeUsage(ctx, &agents.Items[0], "results")
		if err != nil {
			return err
		}
		if used >= size {
			times[at] = true
		}
		if len(times) < 2 {
			return fmt.Errorf("measured at %v; at %s it had %d bytes, want %d", times, at, used, size)
		}
		return nil
	})
}

// volumeUsage returns when the kubelet last measured a volume of a Pod, and its size in bytes.
func volumeUsage(ctx context.Context, p *corev1.Pod, volume string) (at string, used int64, err error) {
	cs, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		return "", 0, err
	}
	b, err := cs.CoreV1().RESTClient().Get().Resource("nodes").Name(p.Spec.NodeName).SubResource("proxy").Suffix("stats/summary").DoRaw(ctx)
	if err != nil {
		return "", 0, err
	}
	var summary struct {
		Pods []struct {
			PodRef struct {
				UID string `json:"uid"`
			} `json:"podRef"`
			Volume []struct {
				Name      string `json:"name"`
				Time      string `json:"time"`
				UsedBytes int64  `json:"usedBytes"`
			} `json:"volume"`
		} `json:"pods"`
	}
	if err := json.Unmarshal(b, &summary); err != nil {
		return "", 0, err
	}
	for _, pod := range summary.Pods {
		for _, v := range pod.Volume {
			if pod.PodRef.UID == string(p.UID) && v.Name == volume {
				return v.Time, v.UsedBytes, nil
			}
		}
	}
	return "", 0, fmt.Errorf("volume %s of %s is not measured yet", volume, p.Name)
}

// overfull creates a Pod that writes more into its volume than its limit. As the control, the kubelet must evict it.
func overfull(t *testing.T, ns, node string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "overfull"}, Spec: corev1.PodSpec{
		NodeName: node, TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{
			Name: "c", Image: "sonde.local/busybox:1", Command: []string{"sh", "-c", "dd if=/dev/zero of=/data/file bs=1M count=20; exec sleep 100000"},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(10<<20, resource.BinarySI)},
		}}},
	}}
	if err := cluster.Admin.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func awaitEvicted(t *testing.T, p *corev1.Pod) {
	t.Helper()
	cluster.Eventually(t, 3*time.Minute, "the Pod whose volume is too large evicted", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.Reason != "Evicted" {
			return fmt.Errorf("phase %s, reason %q", p.Status.Phase, p.Status.Reason)
		}
		return nil
	})
}
