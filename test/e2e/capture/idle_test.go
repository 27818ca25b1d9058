//go:build e2e

package capture

import (
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// For a minute of an unchanged world with running captures, the manager writes nothing but its lease.
func TestIdleManagerWritesNothing(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 2, "sink")
	for range 2 {
		cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	}
	// What the start itself makes is written by then: the last write is awaited, not a time.
	cluster.Eventually(t, time.Minute, "five quiet seconds", cluster.QuietFor(t, 5*time.Second))
	from := time.Now()
	timer := time.NewTimer(60 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	for _, e := range cluster.ManagerWrites(t, from) {
		t.Errorf("%s %s", e.Verb, e.RequestURI)
	}
}
