package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/health"
)

// SecretName is the Secret in the operator's namespace that all replicas share.
const SecretName = "sonde-webhook-cert"

// Services that the certificate is for, in the operator's namespace.
const (
	ServiceWebhook = "sonde-webhook"
	ServiceResults = "sonde-results"
	ServiceMetrics = "sonde-metrics"
)

// checkInterval is how often the certificate is checked when the Secret has no events: time passes without events. The check
// reads the cache, and the API server only if the Secret has to change.
const checkInterval = 30 * time.Second

// retryInterval is for failures: nothing is served before the first success.
const retryInterval = 2 * time.Second

// syncTimeout bounds one check: an API server that takes connections and does not answer is away too.
const syncTimeout = 10 * time.Second

// maxAttempts of one check, when replicas write at the same time.
const maxAttempts = 5

// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=secrets,verbs=get;create
// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=secrets,resourceNames=sonde-webhook-cert,verbs=update

// Manager maintains the Secret and keeps the certificate in memory. Every replica runs one. They agree by the Secret's
// resourceVersion, so no leader is needed and a standby serves at once.
type Manager struct {
	client    client.Client
	namespace string
	clock     clock.WithTicker
	names     []string

	// secrets reads the Secret: client, or after Follow a cache, whose events come on wake.
	secrets client.Reader
	wake    chan struct{}

	mu       sync.Mutex
	current  *Material
	data     map[string][]byte // of the Secret, when it was last read
	watchers []func()

	// Watchdog records each check.
	Watchdog *health.Watchdog
}

// NewManager returns a manager for the operator's namespace. c must read live: a cache would hold all Secrets, and a replica
// could act on data that another has just replaced.
func NewManager(c client.Client, namespace string, clk clock.WithTicker) *Manager {
	m := &Manager{client: c, secrets: c, namespace: namespace, clock: clk, wake: make(chan struct{}, 1)}
	for _, s := range []string{ServiceWebhook, ServiceResults, ServiceMetrics} {
		m.names = append(m.names, s+"."+namespace+".svc", s+"."+namespace+".svc.cluster.local")
	}
	return m
}

// OnChange registers fn, which is called without locks when CABundle has changed. Call it before Start.
func (m *Manager) OnChange(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers = append(m.watchers, fn)
}

// GetCertificate returns the current certificate, for tls.Config.
func (m *Manager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return nil, errors.New("no serving certificate yet: see the manager's log for why Secret " + SecretName + " cannot be created")
	}
	return &m.current.Serving, nil
}

// CABundle returns the authorities that clients of the services trust, as PEM, and nil before the first success.
func (m *Manager) CABundle() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return nil
	}
	return bytes.Clone(m.current.CABundle)
}

// Ready is a readiness check. Without a certificate no webhook call would succeed.
func (m *Manager) Ready(*http.Request) error {
	_, err := m.GetCertificate(nil)
	return err
}

// NeedLeaderElection tells controller-runtime to run it on every replica.
func (*Manager) NeedLeaderElection() bool { return false }

// Start checks the Secret when it has changed and every 30 s until ctx ends; failures are logged and tried again.
func (m *Manager) Start(ctx context.Context) error {
	log := ctrllog.FromContext(ctx).WithName("certs")
	for {
		wait := checkInterval
		if err := m.check(ctx); err != nil && ctx.Err() == nil {
			wait = retryInterval
			log.Error(err, "Checking the serving certificate")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-m.clock.After(wait):
		}
	}
}

func (m *Manager) check(ctx context.Context) error {
	defer m.Watchdog.Begin("checking the serving certificate")()
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !m.due(ctx) {
		return nil
	}
	return m.Sync(ctx)
}

// due reports whether the Secret must be read live and perhaps written: it has changed, or a certificate in it is old.
func (m *Manager) due(ctx context.Context) bool {
	m.mu.Lock()
	served, data := m.current != nil, m.data
	m.mu.Unlock()
	if !served {
		return true
	}
	var s corev1.Secret
	if err := m.secrets.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: SecretName}, &s); err != nil {
		return true
	}
	_, _, changed, err := Plan(m.clock.Now(), s.Data, m.names)
	return err != nil || changed || !maps.EqualFunc(s.Data, data, bytes.Equal)
}

// Sync checks the Secret once, updates it if needed, and serves from it. If it fails, the certificate stays as it was.
func (m *Manager) Sync(ctx context.Context) error {
	for range maxAttempts {
		got, data, err := m.reconcile(ctx)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			continue // another replica was faster: use what it wrote
		}
		if err != nil {
			return err
		}
		m.serve(got, data)
		return nil
	}
	return fmt.Errorf("write Secret %s/%s: %d attempts conflicted with other writers: find out in the audit log of the API server who changes it", m.namespace, SecretName, maxAttempts)
}

func (m *Manager) reconcile(ctx context.Context) (got Material, next map[string][]byte, err error) {
	name := client.ObjectKey{Namespace: m.namespace, Name: SecretName}
	var s corev1.Secret
	err = m.client.Get(ctx, name, &s)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return Material{}, nil, fmt.Errorf("get Secret %s: %w", name, err)
	}
	var changed bool
	next, got, changed, err = Plan(m.clock.Now(), s.Data, m.names)
	if err != nil {
		return Material{}, nil, err
	}
	switch {
	case absent:
		if err := m.client.Create(ctx, m.secret(next)); err != nil {
			return Material{}, nil, fmt.Errorf("create Secret %s: %w", name, err)
		}
	case changed:
		s.Data = next
		if err := m.client.Update(ctx, &s); err != nil { // with the resourceVersion that was read
			return Material{}, nil, fmt.Errorf("update Secret %s: %w", name, err)
		}
	}
	return got, next, nil
}

func (m *Manager) secret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: SecretName, Namespace: m.namespace,
			Labels: naming.Own(),
		},
		Type: corev1.SecretTypeOpaque,
		Data: data,
	}
}

// serve serves got from now on, and calls the functions of OnChange if the bundle has changed.
func (m *Manager) serve(got Material, data map[string][]byte) {
	m.mu.Lock()
	changed := m.current == nil || !bytes.Equal(m.current.CABundle, got.CABundle)
	m.current, m.data = &got, data
	watchers := m.watchers
	m.mu.Unlock()
	if !changed {
		return
	}
	for _, fn := range watchers {
		fn()
	}
}
