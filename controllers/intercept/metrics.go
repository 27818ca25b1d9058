package intercept

import (
	"cmp"
	"context"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
)

var (
	requestsMetric = prometheus.NewDesc("sonde_intercepts", "InterceptRequests that exist, by phase.", []string{"phase"}, nil)
	carriersMetric = prometheus.NewDesc("sonde_carriers", "Carriers that exist, one for each intercepted Pod.", nil, nil)
)

// phases of the metric; a request without a phase is Pending.
var phases = []sondev1.InterceptPhase{
	sondev1.InterceptPending, sondev1.InterceptActive, sondev1.InterceptLost, sondev1.InterceptEnded, sondev1.InterceptFailed,
}

// Metrics returns the gauges of intercepts, for an operator in this namespace.
func Metrics(cached client.Reader, namespace string) metrics.Gauges {
	return metrics.Gauges{
		Descriptions: []*prometheus.Desc{requestsMetric, carriersMetric},
		Read: func(ctx context.Context, set func(*prometheus.Desc, int, ...string)) error {
			var requests sondev1.InterceptRequestList
			if err := cached.List(ctx, &requests, client.UnsafeDisableDeepCopy); err != nil {
				return wrap("list InterceptRequests", err)
			}
			byPhase := map[sondev1.InterceptPhase]int{}
			for i := range requests.Items {
				byPhase[cmp.Or(requests.Items[i].Status.Phase, sondev1.InterceptPending)]++
			}
			for _, phase := range phases {
				set(requestsMetric, byPhase[phase], string(phase))
			}
			var carriers batchv1.JobList
			if err := cached.List(ctx, &carriers, client.InNamespace(namespace), client.MatchingLabels{sondev1.LabelKind: agentjob.KindCarrier}); err != nil {
				return wrap("list carriers", err)
			}
			set(carriersMetric, len(carriers.Items))
			return nil
		},
	}
}
