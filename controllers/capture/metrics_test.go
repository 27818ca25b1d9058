package capture

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), append(deployment("web-1", "web-2"), other("new", 0, func(pc *sondev1.PacketCapture) { pc.Namespace = "private" }))...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.agents(w.end(done(sondev1.ReasonPacketLimit)))
	w.clock.Step(31e9)
	w.settle()
	want := `
# HELP sonde_captures PacketCaptures and Traces that exist, by phase.
# TYPE sonde_captures gauge
sonde_captures{phase="Capturing"} 0
sonde_captures{phase="Completed"} 1
sonde_captures{phase="Ending"} 0
sonde_captures{phase="Failed"} 0
sonde_captures{phase="Incomplete"} 0
sonde_captures{phase="Pending"} 1
# HELP sonde_jobs Agent Jobs that exist, of captures that exist.
# TYPE sonde_jobs gauge
sonde_jobs 2
`
	if err := testutil.CollectAndCompare(Metrics(w.client, operatorNamespace), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
