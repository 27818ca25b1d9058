package fluentpvc

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
)

var bindingsMetric = prometheus.NewDesc("sonde_fluentpvc_bindings", "FluentPVCBindings that exist, by phase.", []string{"phase"}, nil)

// phases of the metric.
var phases = []sondev1.BindingPhase{
	sondev1.BindingPending, sondev1.BindingReady, sondev1.BindingOutOfUse, sondev1.BindingFinalizerJobApplied, sondev1.BindingFinalizerJobSucceeded,
	sondev1.BindingFinalizerJobFailed, sondev1.BindingDiscarded, sondev1.BindingUnknown, sondev1.BindingDataLost,
}

// Metrics returns the gauges of bindings.
func Metrics(cached client.Reader) metrics.Gauges {
	return metrics.Gauges{
		Descriptions: []*prometheus.Desc{bindingsMetric},
		Read: func(ctx context.Context, set func(*prometheus.Desc, int, ...string)) error {
			var all sondev1.FluentPVCBindingList
			if err := cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
				return fmt.Errorf("list bindings: %w", err)
			}
			byPhase := map[sondev1.BindingPhase]int{}
			for i := range all.Items {
				byPhase[phaseOf(&all.Items[i])]++
			}
			for _, phase := range phases {
				set(bindingsMetric, byPhase[phase], string(phase))
			}
			return nil
		},
	}
}
