package collector

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
)

var collectorsMetric = prometheus.NewDesc("sonde_collectors", "Collectors that exist, by state.", []string{"state"}, nil)

// heldState is the state in the metric of a Collector that is suspended, or waits because the operator is paused.
const heldState = "Held"

// Metrics returns the gauge of Collectors.
func Metrics(cached client.Reader) metrics.Gauges {
	return metrics.Gauges{
		Descriptions: []*prometheus.Desc{collectorsMetric},
		Read: func(ctx context.Context, set func(*prometheus.Desc, int, ...string)) error {
			var all sondev1.CollectorList
			if err := cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
				return fmt.Errorf("list Collectors: %w", err)
			}
			byState := map[string]int{}
			for i := range all.Items {
				byState[stateOf(&all.Items[i])]++
			}
			for _, s := range []string{sondev1.ConditionReady, sondev1.ConditionReconciling, sondev1.ConditionStalled, heldState} {
				set(collectorsMetric, byState[s], s)
			}
			return nil
		},
	}
}

// stateOf names the state of a Collector by the condition that is true. A new one is being reconciled.
func stateOf(c *sondev1.Collector) string {
	for _, s := range []string{sondev1.ConditionStalled, sondev1.ConditionReconciling, sondev1.ConditionReady} {
		if apimeta.IsStatusConditionTrue(c.Status.Conditions, s) {
			return s
		}
	}
	if len(c.Status.Conditions) == 0 {
		return sondev1.ConditionReconciling
	}
	return heldState
}
