package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
)

// scrapeTimeout bounds the reads of a scrape.
const scrapeTimeout = 5 * time.Second

// Gauges are values that are read from the cache at each scrape, so that all replicas report the same and a restart loses nothing. It
// implements prometheus.Collector.
type Gauges struct {
	// Descriptions of all gauges.
	Descriptions []*prometheus.Desc
	// Read passes each value with its labels to set. After an error the scrape has what was set before.
	Read func(ctx context.Context, set func(of *prometheus.Desc, value int, labels ...string)) error
}

// Describe implements prometheus.Collector.
func (g Gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range g.Descriptions {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g Gauges) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	err := g.Read(ctx, func(of *prometheus.Desc, value int, labels ...string) {
		out <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, float64(value), labels...)
	})
	if err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Reading metrics failed")
	}
}
