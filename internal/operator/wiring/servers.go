package wiring

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/connections"
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
	endpoint := &connections.Server{
		Name: "results", Address: fmt.Sprintf(":%d", m.ResultsPort), Flag: "--results-port",
		GetCertificate: m.serving.GetCertificate, Handler: handler, MaxConnections: results.MaxConnections,
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

// Bounds of the webhook server. An API server has a connection for each request in flight and keeps some of them. It has a
// request in memory when it sends it.
const (
	webhookConnections = 512
	webhookReadTimeout = 10 * time.Second
)

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
		MaxConnections: webhookConnections, ReadTimeout: webhookReadTimeout, Grace: shutdownGrace,
	}}
}

// Start implements webhook.Server.
func (s webhookServer) Start(ctx context.Context) error { return s.bounded.Start(ctx) }

// StartedChecker implements webhook.Server.
func (s webhookServer) StartedChecker() healthz.Checker { return s.bounded.Ready }
