//go:build e2e

package security

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// The volumes of an agent's Pod are its own: no user's container mounts them. Even an attacker who could plant a
// symbolic link there gains nothing: the keeper serves, and the probe reads, only regular files. Here the node's root
// plants the links.
func TestAttackSymlinksInVolumes(t *testing.T) {
	_, secret := marker(t)
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: cluster.AgentPod(t, pc)}}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(agent), agent); err != nil {
		t.Fatal(err)
	}
	volumes := "/var/lib/kubelet/pods/" + string(agent.UID) + "/volumes/kubernetes.io~empty-dir/"
	plant := func(t *testing.T, script string) {
		t.Helper()
		cluster.OnNode(t, agent.Spec.NodeName, "sh", "-ec", "cd "+volumes+"; "+script)
	}
	token := cluster.GrantResults(t, cluster.Admin, pc)
	base := "/v1/namespaces/" + ns + "/packetcaptures/" + pc.Name + "/files/" + pc.Status.Pods[0].UID + "/"
	// The keeper itself can read each of these files.
	plant(t, `ln -s /etc/sonde-tls/server.key results/key.pcapng; ln -s /proc/self/environ results/environ.pcapng; ln -s . results/here.pcapng
		ln -s /control results/dir.pcapng; mkfifo -m 666 results/fifo.pcapng; mkdir results/d.pcapng; echo `+secret+` >results/plain.pcapng; chmod 644 results/plain.pcapng
		ln -s plain.pcapng results/link.pcapng`)
	t.Run("protected: results", func(t *testing.T) {
		for _, name := range []string{"key", "environ", "here", "dir", "fifo", "d", "link"} {
			if status, body := cluster.GetResult(t, "kubernetes-admin", base+name+".pcapng", token); status != http.StatusNotFound || strings.Contains(body, secret) {
				t.Errorf("%s: status %d, %.100q, want 404", name, status, body)
			}
		}
	})
	t.Run("control: a regular file", func(t *testing.T) {
		if status, body := cluster.GetResult(t, "kubernetes-admin", base+"plain.pcapng", token); status != http.StatusOK || strings.TrimSpace(body) != secret {
			t.Errorf("status %d, %.100q, want the planted file; otherwise no file of that name would be served at all", status, body)
		}
	})
	t.Run("protected: control", func(t *testing.T) {
		plant(t, `echo Stopped >control/reason; ln -s reason control/`+captureconfig.StopFile)
		eventuallyLogs(t, agent, "no regular file", "too many levels of symbolic links")
		if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(pc), pc); err != nil || pc.Status.Phase != sondev1.PhaseCapturing {
			t.Errorf("%s (%v), want the capture to go on: the probe followed a link", pc.Status.Phase, err)
		}
	})
	// A keeper that was taken over can write it.
	t.Run("protected: a regular stop file ends the probe, and the result is not complete", func(t *testing.T) {
		plant(t, `mv control/reason control/`+captureconfig.StopFile)
		cluster.Eventually(t, 30*time.Second, "the probe ended", func(ctx context.Context) error {
			if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
				return err
			}
			if e := pc.Status.Pods[0]; e.Phase != sondev1.PhaseIncomplete || e.Reason != sondev1.ReasonStopNotRequested {
				return fmt.Errorf("%+v", e)
			}
			return nil
		})
	})
}
