package capture

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// scrapeTimeout bounds the reads of a scrape.
const scrapeTimeout = 5 * time.Second

var (
	capturesMetric = prometheus.NewDesc("sonde_captures", "PacketCaptures and Traces that exist, by phase.", []string{"phase"}, nil)
	jobsMetric     = prometheus.NewDesc("sonde_jobs", "Agent Jobs that exist, of captures that exist.", nil, nil)
)

// phases of the metric; a capture without a phase is Pending.
var phases = []sondev1.Phase{
	sondev1.PhasePending, sondev1.PhaseCapturing, sondev1.PhaseEnding, sondev1.PhaseCompleted, sondev1.PhaseIncomplete, sondev1.PhaseFailed,
}

// Metrics reads the cache at each scrape, so that all replicas report the same and a restart loses nothing. It implements
// prometheus.Collector.
type Metrics struct {
	Reader client.Reader
	// Namespace of the operator.
	Namespace string
}

// Describe implements prometheus.Collector.
func (m Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{capturesMetric, jobsMetric} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var captures []sondev1.Capture
	for _, k := range kind.Captures {
		list := k.NewList()
		if err := m.Reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.Log.WithName("metrics").Error(err, "Listing captures failed")
			return
		}
		captures = append(captures, list.Captures()...)
	}
	byPhase := map[sondev1.Phase]int{}
	for _, capture := range captures {
		phase := capture.CaptureStatus().Phase
		if phase == "" {
			phase = sondev1.PhasePending
		}
		byPhase[phase]++
	}
	for _, phase := range phases {
		out <- prometheus.MustNewConstMetric(capturesMetric, prometheus.GaugeValue, float64(byPhase[phase]), string(phase))
	}
	// Part by part: all Jobs at once would take most of a scrape's memory.
	n := 0
	for _, capture := range captures {
		for _, part := range target.Parts(capture.GetUID()) {
			var jobs batchv1.JobList
			if err := m.Reader.List(ctx, &jobs, client.InNamespace(m.Namespace), part); err != nil {
				ctrl.Log.WithName("metrics").Error(err, "Listing Jobs failed")
				return
			}
			n += len(jobs.Items)
		}
	}
	out <- prometheus.MustNewConstMetric(jobsMetric, prometheus.GaugeValue, float64(n))
}
