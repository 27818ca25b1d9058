package platform

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
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
func NewGateConfigurationReconciler(c client.Client, live client.Reader, gates ConfigurationCache, namespace string, secret webhookpath.Secret, bundle func() []byte) *ConfigurationReconciler {
	return &ConfigurationReconciler{
		Client: c, Live: live, Namespace: namespace, Secret: secret, CABundle: bundle,
		name: GateConfigurationName, observed: gates, triggers: make(chan event.GenericEvent, 1),
		build: func(ctx context.Context, o ConfigurationOptions) (*acadmission.MutatingWebhookConfigurationApplyConfiguration, error) {
			namespaces, err := gatedNamespaces(ctx, c)
			return BuildGateConfiguration(o, namespaces), err
		},
		watch: func(b *builder.Builder) *builder.Builder {
			return watchPods(b, GateConfigurationName, gates, &sondev1.Trace{})
		},
	}
}

// watchPods adds the watches of a configuration for Pods: of the configuration itself, and of the objects that it depends on. All
// lead to the only request of the controller.
func watchPods(b *builder.Builder, name string, observed ConfigurationCache, dependsOn client.Object) *builder.Builder {
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	})
	return b.Named(name).Watches(dependsOn, enqueue).
		WatchesRawSource(source.Kind(observed, client.Object(&admissionregistrationv1.MutatingWebhookConfiguration{}), enqueue))
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
