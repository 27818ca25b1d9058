package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
)

func TestCounters(t *testing.T) {
	r := prometheus.NewRegistry()
	if err := metrics.Register(r); err != nil {
		t.Fatal(err)
	}
	// Prometheus sees no increase in the first value of a series.
	const zero = `
# HELP sonde_dropped_packets_total Packets that matched and are in no file, by the place where they were lost; unlisted: in Pods that a status had no room for.
# TYPE sonde_dropped_packets_total counter
sonde_dropped_packets_total{place="kernel"} 0
sonde_dropped_packets_total{place="ring"} 0
sonde_dropped_packets_total{place="unlisted"} 0
sonde_dropped_packets_total{place="writer"} 0
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(zero), "sonde_dropped_packets_total"); err != nil {
		t.Error(err)
	}
	metrics.Ended(&sondev1.CaptureStatus{
		Totals: sondev1.Totals{Packets: 10, Dropped: 9, Overwritten: 7},
		Pods:   []sondev1.PodResult{{Dropped: sondev1.Dropped{Kernel: 1, Ring: 2}}, {Dropped: sondev1.Dropped{Writer: 3}}},
	})
	metrics.Ended(&sondev1.CaptureStatus{Totals: sondev1.Totals{Packets: 5}})
	metrics.Ended(&sondev1.CaptureStatus{Totals: sondev1.Totals{Events: 8, Lost: 2}})
	metrics.Ended(&sondev1.CaptureStatus{Totals: sondev1.Totals{Events: 3}})
	metrics.Refused("Forbidden")
	want := `
# HELP sonde_dropped_packets_total Packets that matched and are in no file, by the place where they were lost; unlisted: in Pods that a status had no room for.
# TYPE sonde_dropped_packets_total counter
sonde_dropped_packets_total{place="kernel"} 1
sonde_dropped_packets_total{place="ring"} 2
sonde_dropped_packets_total{place="unlisted"} 3
sonde_dropped_packets_total{place="writer"} 3
# HELP sonde_events_total Events in the files of traces that have ended.
# TYPE sonde_events_total counter
sonde_events_total 11
# HELP sonde_lost_events_total Events of traces that have ended which are in no file.
# TYPE sonde_lost_events_total counter
sonde_lost_events_total 2
# HELP sonde_overwritten_packets_total Packets of captures that have ended which were in a file that gave way to a newer one.
# TYPE sonde_overwritten_packets_total counter
sonde_overwritten_packets_total 7
# HELP sonde_packets_total Packets in the files of captures that have ended.
# TYPE sonde_packets_total counter
sonde_packets_total 15
# HELP sonde_refusals_total Requests that the webhooks refused, by the reason of the answer.
# TYPE sonde_refusals_total counter
sonde_refusals_total{reason="Forbidden"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
