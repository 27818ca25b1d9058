// Package metrics holds the counters of the manager, and the frame of its gauges, whose values are read from the cache.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// The counters start at zero with the process, as Prometheus expects.
var (
	packets = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sonde_packets_total", Help: "Packets in the files of captures that have ended.",
	})
	overwritten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sonde_overwritten_packets_total", Help: "Packets of captures that have ended which were in a file that gave way to a newer one.",
	})
	dropped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sonde_dropped_packets_total",
		Help: "Packets that matched and are in no file, by the place where they were lost; unlisted: in Pods that a status had no room for.",
	}, []string{"place"})
	events = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sonde_events_total", Help: "Events in the files of traces that have ended.",
	})
	lost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sonde_lost_events_total", Help: "Events of traces that have ended which are in no file.",
	})
	refusals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sonde_refusals_total", Help: "Requests that the webhooks refused, by the reason of the answer.",
	}, []string{"reason"})
)

// Places where packets are lost, the values of the label place.
const (
	placeKernel   = "kernel"
	placeRing     = "ring"
	placeWriter   = "writer"
	placeUnlisted = "unlisted"
)

// Register adds the counters to a registry. Each place starts with 0: Prometheus sees no increase in the first value of a series.
func Register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{packets, overwritten, dropped, events, lost, refusals} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	for _, place := range []string{placeKernel, placeRing, placeWriter, placeUnlisted} {
		dropped.WithLabelValues(place)
	}
	return nil
}

// Ended counts the packets or events of a capture that just became final.
func Ended(status *sondev1.CaptureStatus) {
	packets.Add(float64(max(status.Totals.Packets, 0)))
	overwritten.Add(float64(max(status.Totals.Overwritten, 0)))
	events.Add(float64(max(status.Totals.Events, 0)))
	lost.Add(float64(max(status.Totals.Lost, 0)))
	var d sondev1.Dropped
	for i := range status.Pods {
		e := &status.Pods[i].Dropped
		d.Kernel, d.Ring, d.Writer = d.Kernel+e.Kernel, d.Ring+e.Ring, d.Writer+e.Writer
	}
	for place, n := range map[string]int64{
		placeKernel: d.Kernel, placeRing: d.Ring, placeWriter: d.Writer, placeUnlisted: status.Totals.Dropped - d.Total(),
	} {
		dropped.WithLabelValues(place).Add(float64(max(n, 0)))
	}
}

// Refused counts a refusal by a webhook. reason is one of the API's status reasons.
func Refused(reason string) { refusals.WithLabelValues(reason).Inc() }
