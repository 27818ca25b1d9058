package capture

import (
	"cmp"
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

var (
	capturesMetric = prometheus.NewDesc("sonde_captures", "PacketCaptures and Traces that exist, by phase.", []string{"phase"}, nil)
	jobsMetric     = prometheus.NewDesc("sonde_jobs", "Agent Jobs that exist, of captures that exist.", nil, nil)
)

// phases of the metric; a capture without a phase is Pending.
var phases = []sondev1.Phase{
	sondev1.PhasePending, sondev1.PhaseCapturing, sondev1.PhaseEnding, sondev1.PhaseCompleted, sondev1.PhaseIncomplete, sondev1.PhaseFailed,
}

// Metrics returns the gauges of captures, for an operator in this namespace.
func Metrics(cached client.Reader, namespace string) metrics.Gauges {
	return metrics.Gauges{
		Descriptions: []*prometheus.Desc{capturesMetric, jobsMetric},
		Read: func(ctx context.Context, set func(*prometheus.Desc, int, ...string)) error {
			captures, err := allCaptures(ctx, cached)
			if err != nil {
				return err
			}
			byPhase := map[sondev1.Phase]int{}
			for _, capture := range captures {
				byPhase[cmp.Or(capture.CaptureStatus().Phase, sondev1.PhasePending)]++
			}
			for _, phase := range phases {
				set(capturesMetric, byPhase[phase], string(phase))
			}
			n, err := countJobs(ctx, cached, namespace, captures)
			if err == nil {
				set(jobsMetric, n)
			}
			return err
		},
	}
}

func allCaptures(ctx context.Context, cached client.Reader) ([]sondev1.Capture, error) {
	var captures []sondev1.Capture
	for _, k := range kind.Captures {
		list := k.NewList()
		if err := cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %ss: %w", k.Name, err)
		}
		captures = append(captures, list.Captures()...)
	}
	return captures, nil
}

// countJobs counts part by part: all Jobs at once would take most of a scrape's memory.
func countJobs(ctx context.Context, cached client.Reader, namespace string, captures []sondev1.Capture) (int, error) {
	n := 0
	for _, capture := range captures {
		for _, part := range target.Parts(capture.GetUID()) {
			var jobs batchv1.JobList
			if err := cached.List(ctx, &jobs, client.InNamespace(namespace), part); err != nil {
				return 0, fmt.Errorf("list Jobs: %w", err)
			}
			n += len(jobs.Items)
		}
	}
	return n, nil
}
