package platform

import (
	"context"
	"fmt"

	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=sonde-fluentpvc,verbs=create;list;watch;patch;delete

// NewSidecarConfigurationReconciler returns a reconciler of the configuration for Pods that name a FluentPVC. It exists while there
// is a FluentPVC.
func NewSidecarConfigurationReconciler(c client.Client, live client.Reader, observed ConfigurationCache, namespace string, secret webhookpath.Secret, bundle func() []byte) *ConfigurationReconciler {
	return &ConfigurationReconciler{
		Client: c, Live: live, Namespace: namespace, Secret: secret, CABundle: bundle,
		name: SidecarConfigurationName, observed: observed, triggers: make(chan event.GenericEvent, 1),
		build: func(ctx context.Context, o ConfigurationOptions) (*acadmission.MutatingWebhookConfigurationApplyConfiguration, error) {
			var all sondev1.FluentPVCList
			if err := c.List(ctx, &all, client.UnsafeDisableDeepCopy, client.Limit(1)); err != nil {
				return nil, fmt.Errorf("list fluentpvcs: %w", err)
			}
			if len(all.Items) == 0 {
				return nil, nil
			}
			return BuildSidecarConfiguration(o), nil
		},
		watch: func(b *builder.Builder) *builder.Builder {
			return watchPods(b, SidecarConfigurationName, observed, &sondev1.FluentPVC{})
		},
	}
}
