//go:build e2e

package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// The pause switch removes all probes of all captures within 10 s and keeps their results. New captures are refused
// with a message that names the switch. Afterwards captures work again.
func TestOpsPaused(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 2, "sink")
	pods := cluster.ReadyPods(t, target, 2)
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	var running []*sondev1.PacketCapture
	for range 3 {
		running = append(running, cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", Filter: "udp"}))
	}
	for i := range pods {
		cluster.Send(t, sender, cluster.UDPAddr(pods[i].Status.PodIP), 1, 1000)
	}
	pauseSwitch := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: "sonde-config"}, Data: map[string]string{"paused": "true"}}
	if err := cluster.Admin.Create(t.Context(), pauseSwitch); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), pauseSwitch) })
	cluster.Eventually(t, 10*time.Second, "no probe on any node", func(context.Context) error {
		for _, p := range cluster.AgentProcesses(t) {
			if strings.Contains(p, "/agent probe") {
				return fmt.Errorf("probe still runs: %s", p)
			}
		}
		return nil
	})
	for _, pc := range running {
		cluster.AwaitFinal(t, pc, 30*time.Second)
		cluster.WantNotAdmitted(t, pc, sondev1.ReasonPaused)
		if pc.Status.Phase != sondev1.PhaseIncomplete {
			t.Errorf("phase %s, want Incomplete", pc.Status.Phase)
		}
		if c := apimeta.FindStatusCondition(pc.Status.Conditions, sondev1.ConditionComplete); c == nil || c.Reason != sondev1.ReasonPaused {
			t.Errorf("condition Complete %+v, want the reason Paused", c)
		}
		for name, got := range cluster.Download(t, pc) {
			if different, n := got.Count(1); different != 1000 || n != 1000 {
				t.Errorf("%s/%s: got %d numbers in %d packets, want 1000", pc.Name, name, different, n)
			}
		}
	}
	refused := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "cap-", Namespace: ns}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink"}}
	if err := cluster.Admin.Create(t.Context(), refused); err == nil || !strings.Contains(err.Error(), "paused") || !strings.Contains(err.Error(), "sonde-config") {
		t.Errorf("a new capture: %v, want a refusal that names the switch", err)
	}
	b, err := json.Marshal(map[string]any{"data": map[string]string{"paused": "false"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Admin.Patch(t.Context(), pauseSwitch, client.RawPatch("application/merge-patch+json", b)); err != nil {
		t.Fatal(err)
	}
	again := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	cluster.Stop(t, again)
	if again.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("after the pause: phase %s, want Completed", again.Status.Phase)
	}
}
