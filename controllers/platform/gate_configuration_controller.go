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
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=sonde-gate,verbs=create;list;watch;patch;delete

// NewGateConfigurationReconciler returns a reconciler of the configuration for Pods. It selects the namespaces of live
// Traces that gate, and is deleted when there are none.
func NewGateConfigurationReconciler(c client.Client, live client.Reader, gates GateConfigurationCache, namespace string, secret webhookpath.Secret, bundle func() []byte) *ConfigurationReconciler {
	return &ConfigurationReconciler{
		Client: c, Live: live, Namespace: namespace, Secret: secret, CABundle: bundle,
		name: GateConfigurationName, observed: gates, triggers: make(chan event.GenericEvent, 1),
		build: func(ctx context.Context, o ConfigurationOptions) (*acadmission.MutatingWebhookConfigurationApplyConfiguration, error) {
			namespaces, err := gatedNamespaces(ctx, c)
			return BuildGateConfiguration(o, namespaces), err
		},
		watch: func(b *builder.Builder) *builder.Builder {
			enqueue := handler.EnqueueRequestsFromMapFunc(toGateConfiguration)
			return b.Named(GateConfigurationName).Watches(&sondev1.Trace{}, enqueue).
				WatchesRawSource(source.Kind(gates, client.Object(&admissionregistrationv1.MutatingWebhookConfiguration{}), enqueue))
		},
	}
}

// toGateConfiguration maps every object to the only request of the controller.
func toGateConfiguration(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: GateConfigurationName}}}
}

// gatedNamespaces returns the target namespaces of live Traces that gate, with duplicates.
func gatedNamespaces(ctx context.Context, cached client.Reader) ([]string, error) {
	var all sondev1.TraceList
	if err := cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list traces: %w", err)
	}
	var namespaces []string
	for i := range all.Items {
		if t := &all.Items[i]; gate.Live(t) {
			namespaces = append(namespaces, t.Common().TargetNamespace)
		}
	}
	return namespaces, nil
}

// GateConfigurationCache holds the configuration for Pods and nothing else. The manager's cache cannot hold it, because it
// lists this kind by the name of the other configuration. It runs on every replica, so that a standby can take over at once.
type GateConfigurationCache struct{ cache.Cache }

// NewGateConfigurationCache returns the cache. The caller adds it to the manager.
func NewGateConfigurationCache(config *rest.Config, scheme *runtime.Scheme) (GateConfigurationCache, error) {
	c, err := cache.New(config, cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}: {
			Field: fields.OneTermEqualSelector(metav1.ObjectNameField, GateConfigurationName),
		},
	}})
	if err != nil {
		return GateConfigurationCache{}, fmt.Errorf("create the cache of the webhook configuration for gates: %w", err)
	}
	return GateConfigurationCache{c}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (GateConfigurationCache) NeedLeaderElection() bool { return false }
