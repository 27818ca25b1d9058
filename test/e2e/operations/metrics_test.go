//go:build e2e

package operations

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Only subjects bound to sonde-metrics-reader can read metrics, and the metrics are up to date.
func TestOpsMetrics(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	reader, other := cluster.MetricsReader(t, ns), cluster.ServiceAccountToken(t, ns, "other")
	pods := cluster.ManagerPods(t)
	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"bound":         {token: reader, want: 200},
		"another's":     {token: other, want: 403},
		"no token":      {want: 401},
		"no real token": {token: "made.up.here", want: 500}, // so controller-runtime answers to it
	} {
		t.Run(name, func(t *testing.T) {
			for i := range pods {
				if code, _ := cluster.Scrape(t, &pods[i], tc.token); code != tc.want {
					t.Errorf("%s answers %d, want %d", pods[i].Name, code, tc.want)
				}
			}
		})
	}

	before := cluster.ScrapeAll(t, reader)
	target := cluster.Deployment(t, ns, "sink", 1, "sink")
	p := cluster.ReadyPods(t, target, 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp"})
	running := cluster.ScrapeAll(t, reader)
	cluster.Send(t, sender, cluster.UDPAddr(p.Status.PodIP), 1, 700)
	cluster.Stop(t, pc)
	refused := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "cap-", Namespace: ns}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "24h"}}
	if err := cluster.Admin.Create(t.Context(), refused); err == nil {
		t.Fatal("a capture above the ceiling was admitted")
	}
	perReplica := float64(len(pods)) // each replica reports the gauge
	cluster.Eventually(t, 30*time.Second, "metrics of the capture", func(context.Context) error {
		after := cluster.ScrapeAll(t, reader)
		for series, want := range map[string]float64{
			"sonde_packets_total":                      700,
			`sonde_refusals_total{reason="Forbidden"}`: 1,
			`sonde_captures{phase="Completed"}`:        perReplica,
		} {
			if got := after[series] - before[series]; got != want {
				return fmt.Errorf("%s grew by %v, want %v", series, got, want)
			}
		}
		for _, place := range []string{"kernel", "ring", "writer", "unlisted"} {
			series := `sonde_dropped_packets_total{place="` + place + `"}`
			if got, ok := after[series]; !ok || got != before[series] {
				return fmt.Errorf("%s is %v (found: %t), want it unchanged", series, got, ok)
			}
		}
		if errs, ok := after[`controller_runtime_reconcile_errors_total{controller="packetcapture"}`]; !ok {
			return fmt.Errorf("found no metric of reconcile errors: %v", errs)
		}
		return nil
	})
	if got := running[`sonde_captures{phase="Capturing"}`] - before[`sonde_captures{phase="Capturing"}`]; got != perReplica {
		t.Errorf("captures that run grew by %v, want 1 on each replica", got)
	}
	if got := running["sonde_jobs"] - before["sonde_jobs"]; got != perReplica {
		t.Errorf("Jobs grew by %v, want 1 on each replica", got)
	}
}
