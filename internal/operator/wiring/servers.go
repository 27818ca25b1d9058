package wiring

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/memory"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
	"github.com/sonde-operator/sonde/internal/operator/results"
)

// reviewTTL is how long the results endpoint reuses the answer to an access review.
const reviewTTL = 5 * time.Second

// addServers adds the certificate, the metrics and the results endpoint.
func (m *manager) addServers(_ context.Context, mgr ctrl.Manager) error {
	handler := results.New(results.Config{
		Cache: mgr.GetClient(), Live: m.live, Key: m.key, Namespace: m.Agent.Namespace,
		Reviews:  access.NewCached(access.NewReviewer(m.live), clock.RealClock{}, reviewTTL),
		Recorder: mgr.GetEventRecorder("sonde-results"), Clock: clock.RealClock{}, Drain: m.downloads,
	})
	endpoint := &results.Server{
		Address: fmt.Sprintf(":%d", m.ResultsPort), GetCertificate: m.serving.GetCertificate, Handler: handler,
		MaxConnections: results.MaxConnections,
	}
	return errors.Join(
		metrics.Register(crmetrics.Registry),
		crmetrics.Registry.Register(capture.Metrics{Reader: mgr.GetClient(), Namespace: m.Agent.Namespace}),
		mgr.Add(m.secret),
		mgr.Add(memory.Releaser{Clock: clock.RealClock{}}),
		mgr.Add(m.serving),
		mgr.Add(endpoint),
		mgr.AddReadyzCheck("results", endpoint.Ready),
	)
}
