package fluentpvc

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// scrapeTimeout bounds the read of a scrape.
const scrapeTimeout = 5 * time.Second

var bindingsMetric = prometheus.NewDesc("sonde_fluentpvc_bindings", "FluentPVCBindings that exist, by phase.", []string{"phase"}, nil)

// phases of the metric.
var phases = []sondev1.BindingPhase{
	sondev1.BindingPending, sondev1.BindingReady, sondev1.BindingOutOfUse, sondev1.BindingFinalizerJobApplied, sondev1.BindingFinalizerJobSucceeded,
	sondev1.BindingFinalizerJobFailed, sondev1.BindingDiscarded, sondev1.BindingUnknown, sondev1.BindingDataLost,
}

// Metrics reads the cache at each scrape, so that all replicas report the same and a restart loses nothing. It implements
// prometheus.Collector.
type Metrics struct{ Reader client.Reader }

// Describe implements prometheus.Collector.
func (m Metrics) Describe(out chan<- *prometheus.Desc) { out <- bindingsMetric }

// Collect implements prometheus.Collector.
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var all sondev1.FluentPVCBindingList
	if err := m.Reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Listing bindings failed")
		return
	}
	byPhase := map[sondev1.BindingPhase]int{}
	for i := range all.Items {
		byPhase[phaseOf(&all.Items[i])]++
	}
	for _, phase := range phases {
		out <- prometheus.MustNewConstMetric(bindingsMetric, prometheus.GaugeValue, float64(byPhase[phase]), string(phase))
	}
}
