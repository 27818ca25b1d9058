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

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=sonde-pods,verbs=create;list;watch;patch;delete

// NewPodConfigurationReconciler returns a reconciler of the configuration for Pods. It has the webhooks of gates while
// there are live Traces that gate, for their namespaces, and the one of sidecars while there is a FluentPVC. It is
// deleted when there is neither.
func NewPodConfigurationReconciler(c client.Client, live client.Reader, observed ConfigurationCache, namespace string, secret webhookpath.Secret, bundle func() []byte) *ConfigurationReconciler {
	return &ConfigurationReconciler{
		Client: c, Live: live, Namespace: namespace, Secret: secret, CABundle: bundle,
		name: PodConfigurationName, observed: observed, triggers: make(chan event.GenericEvent, 1),
		build: func(ctx context.Context, o ConfigurationOptions) (*acadmission.MutatingWebhookConfigurationApplyConfiguration, error) {
			gated, err := gatedNamespaces(ctx, c)
			if err != nil {
				return nil, err
			}
			var volumes sondev1.FluentPVCList
			if err := c.List(ctx, &volumes, client.UnsafeDisableDeepCopy, client.Limit(1)); err != nil {
				return nil, fmt.Errorf("list fluentpvcs: %w", err)
			}
			return BuildPodConfiguration(o, PodWebhooks{Gated: gated, Sidecars: len(volumes.Items) > 0}), nil
		},
		watch: func(b *builder.Builder) *builder.Builder {
			// All watches lead to the only request of the controller.
			enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: PodConfigurationName}}}
			})
			return b.Named(PodConfigurationName).Watches(&sondev1.Trace{}, enqueue).Watches(&sondev1.FluentPVC{}, enqueue).
				WatchesRawSource(source.Kind(observed, client.Object(&admissionregistrationv1.MutatingWebhookConfiguration{}), enqueue))
		},
	}
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
