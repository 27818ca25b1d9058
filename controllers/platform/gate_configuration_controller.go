package platform

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/gate"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=sonde-gate,verbs=create;list;watch;patch;delete

// NewGateConfigurationReconciler returns a reconciler that keeps the configuration of gates for the namespaces of live
// Traces that gate: it changes with them, and is gone when there is none. seen is a GateConfigurationCache.
func NewGateConfigurationReconciler(c client.Client, live, seen client.Reader, namespace, secretPath string, bundle func() []byte) *ConfigurationReconciler {
	r := &ConfigurationReconciler{
		Client: c, APIReader: live, Namespace: namespace, SecretPath: secretPath, CABundle: bundle,
		name: GateConfigurationName, seen: seen, wake: make(chan event.GenericEvent, 1),
		build: func(ctx context.Context, o ConfigurationOptions) (*acadmission.MutatingWebhookConfigurationApplyConfiguration, error) {
			in, err := gatedNamespaces(ctx, c)
			return BuildGateConfiguration(o, in), err
		},
	}
	r.watch = func(b *builder.Builder) *builder.Builder {
		b = b.Named(GateConfigurationName).Watches(&sondev1.Trace{}, handler.EnqueueRequestsFromMapFunc(toGateConfiguration))
		if seen, ok := seen.(cache.Cache); ok {
			b = b.WatchesRawSource(source.Kind(seen, client.Object(&admissionregistrationv1.MutatingWebhookConfiguration{}), handler.EnqueueRequestsFromMapFunc(toGateConfiguration)))
		}
		return b
	}
	return r
}

// toGateConfiguration is the one request that there is, whatever has changed.
func toGateConfiguration(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: GateConfigurationName}}}
}

// gatedNamespaces are those in which a live Trace gates; one may be there several times.
func gatedNamespaces(ctx context.Context, cached client.Reader) ([]string, error) {
	var all sondev1.TraceList
	if err := cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list traces: %w", err)
	}
	var in []string
	for i := range all.Items {
		if t := &all.Items[i]; gate.Live(t) {
			in = append(in, t.Common().TargetNamespace)
		}
	}
	return in, nil
}

// GateConfigurationCache holds the configuration of gates and nothing else: the right to list by name is for one name,
// which the manager's cache has for the other configuration. It runs on every replica, as pause.Cache does.
type GateConfigurationCache struct{ cache.Cache }

// NewGateConfigurationCache returns the cache; the manager must run it.
func NewGateConfigurationCache(config *rest.Config, scheme *runtime.Scheme) (GateConfigurationCache, error) {
	c, err := cache.New(config, cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}: {
			Field: fields.OneTermEqualSelector(metav1.ObjectNameField, GateConfigurationName),
		},
	}})
	if err != nil {
		return GateConfigurationCache{}, fmt.Errorf("make cache of the gates' webhook configuration: %w", err)
	}
	return GateConfigurationCache{c}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (GateConfigurationCache) NeedLeaderElection() bool { return false }
