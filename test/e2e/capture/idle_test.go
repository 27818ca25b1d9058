//go:build e2e

package capture

import (
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// While captures run and nothing changes, the manager writes only its lease for a minute.
func TestIdleManagerWritesNothing(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 2, "sink")
	for range 2 {
		cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	}
	// Wait for the last write of the start-up itself, instead of a fixed time.
	cluster.Eventually(t, time.Minute, "5 s without writes", cluster.QuietFor(t, 5*time.Second))
	from := time.Now()
	timer := time.NewTimer(60 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	for _, e := range cluster.ManagerWrites(t, from) {
		t.Errorf("the manager sent %s %s, want no writes", e.Verb, e.RequestURI)
	}
}
