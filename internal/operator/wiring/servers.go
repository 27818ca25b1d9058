package wiring

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsfilters "sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/controllers/collector"
	"github.com/sonde-operator/sonde/controllers/fluentpvc"
	"github.com/sonde-operator/sonde/controllers/intercept"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/connections"
	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/internal/operator/memory"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
	"github.com/sonde-operator/sonde/internal/operator/results"
)

// reviewTTL is how long the results endpoint reuses the answer to an access review.
const reviewTTL = 5 * time.Second

// resultReads is how many captures that have ended the results endpoint reads at once.
var resultReads = fewreads.Limits{Places: 2}

// addServers adds the certificate, the metrics and the results endpoint.
func (m *manager) addServers(_ context.Context, mgr ctrl.Manager) error {
	handler := results.New(results.Config{
		Cache: mgr.GetClient(), Live: fewreads.New(m.live, m.Agent.Namespace, resultReads), Key: m.key, Namespace: m.Agent.Namespace,
		Reviews:  access.NewCached(access.NewReviewer(m.live), clock.RealClock{}, reviewTTL),
		Recorder: mgr.GetEventRecorder("sonde-results"), Clock: clock.RealClock{}, Drain: m.downloads,
	})
	endpoint := &connections.Server{
		Name: "results", Address: fmt.Sprintf(":%d", m.ResultsPort), Flag: "--results-port",
		GetCertificate: m.serving.GetCertificate, Handler: handler, MaxConnections: results.MaxConnections,
	}
	m.results = endpoint
	return errors.Join(
		metrics.Register(crmetrics.Registry),
		crmetrics.Registry.Register(capture.Metrics(mgr.GetClient(), m.Agent.Namespace)),
		crmetrics.Registry.Register(fluentpvc.Metrics(mgr.GetClient())),
		crmetrics.Registry.Register(intercept.Metrics(mgr.GetClient(), m.Agent.Namespace)),
		crmetrics.Registry.Register(collector.Metrics(mgr.GetClient())),
		mgr.Add(m.secret),
		mgr.Add(memory.Releaser{Clock: clock.RealClock{}}),
		mgr.Add(m.serving),
		mgr.Add(endpoint),
		m.addMetrics(mgr),
	)
}

// addMetrics adds the metrics endpoint, with bounds that the one of controller-runtime lacks.
func (m *manager) addMetrics(mgr ctrl.Manager) error {
	if m.MetricsAddress == noAddress {
		return nil
	}
	authorized, err := metricsfilters.WithAuthenticationAndAuthorization(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make the client that checks the tokens of scrapers: %w", err)
	}
	handler, err := authorized(ctrl.Log.WithName("metrics"), promhttp.HandlerFor(crmetrics.Registry, promhttp.HandlerOpts{}))
	if err != nil {
		return fmt.Errorf("make the handler of the metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", &metrics.Strangers{Next: handler, Clock: clock.RealClock{}})
	return mgr.Add(&connections.Server{
		Name: "metrics", Address: m.MetricsAddress, Flag: "--metrics-bind-address",
		GetCertificate: m.serving.GetCertificate, Handler: mux, MaxConnections: metrics.MaxConnections, ReadTimeout: readTimeout,
	})
}

// webhookConnections is plenty: an API server has a connection for each request in flight and keeps some of them.
const webhookConnections = 512

// readTimeout of a request with its body. An API server has a request in memory when it sends it.
const readTimeout = 10 * time.Second

// webhookServer is a webhook.Server with bounded connections. controller-runtime's own registers the webhooks and their
// metrics, and is never started: it has no bound.
type webhookServer struct {
	webhook.Server
	bounded *connections.Server
}

// newWebhookServer returns a server without webhooks.
func (m *manager) newWebhookServer() webhookServer {
	mux := http.NewServeMux()
	return webhookServer{webhook.NewServer(webhook.Options{WebhookMux: mux}), &connections.Server{
		Name: "webhooks", Address: fmt.Sprintf(":%d", m.WebhookPort), Flag: "--webhook-port",
		GetCertificate: m.serving.GetCertificate, Handler: mux,
		MaxConnections: webhookConnections, ReadTimeout: readTimeout, Grace: shutdownGrace,
	}}
}

// Start implements webhook.Server.
func (s webhookServer) Start(ctx context.Context) error { return s.bounded.Start(ctx) }

// StartedChecker implements webhook.Server.
func (s webhookServer) StartedChecker() healthz.Checker { return s.bounded.Ready }
