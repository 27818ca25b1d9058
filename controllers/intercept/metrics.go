package intercept

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
)

// scrapeTimeout bounds the reads of a scrape.
const scrapeTimeout = 5 * time.Second

var (
	requestsMetric = prometheus.NewDesc("sonde_intercepts", "InterceptRequests that exist, by phase.", []string{"phase"}, nil)
	carriersMetric = prometheus.NewDesc("sonde_carriers", "Carriers that exist, one for each intercepted Pod.", nil, nil)
)

// phases of the metric.
var phases = []sondev1.InterceptPhase{
	sondev1.InterceptPending, sondev1.InterceptActive, sondev1.InterceptLost, sondev1.InterceptEnded, sondev1.InterceptFailed,
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
	out <- requestsMetric
	out <- carriersMetric
}

// Collect implements prometheus.Collector.
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var requests sondev1.InterceptRequestList
	var carriers batchv1.JobList
	err := m.Reader.List(ctx, &requests, client.UnsafeDisableDeepCopy)
	if err == nil {
		err = m.Reader.List(ctx, &carriers, client.InNamespace(m.Namespace), client.MatchingLabels{sondev1.LabelKind: agentjob.KindCarrier})
	}
	if err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Listing intercepts failed")
		return
	}
	byPhase := map[sondev1.InterceptPhase]int{}
	for i := range requests.Items {
		byPhase[requests.Items[i].Status.Phase]++
	}
	byPhase[sondev1.InterceptPending] += byPhase[""]
	for _, phase := range phases {
		out <- prometheus.MustNewConstMetric(requestsMetric, prometheus.GaugeValue, float64(byPhase[phase]), string(phase))
	}
	out <- prometheus.MustNewConstMetric(carriersMetric, prometheus.GaugeValue, float64(len(carriers.Items)))
}
