package gate

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// ConfigurationName of the MutatingWebhookConfiguration for Pods. It is separate from the one for Sonde's own kinds, because it
// changes with every Trace that gates, and does not exist when no Pods are reviewed.
const ConfigurationName = "sonde-pods"

// WebhookName and WebhookNameRequired are the webhooks of gates in the configuration. The second one is for Pods that must
// not start without a gate.
var (
	WebhookName         = "gate." + sondev1.GroupVersion.Group
	WebhookNameRequired = "trace-required." + sondev1.GroupVersion.Group
)

// Configured reports whether both webhooks of gates are called for a namespace, as soon as the API servers have read the
// configuration.
func Configured(ctx context.Context, reader client.Reader, namespace string) (bool, error) {
	var c admissionregistrationv1.MutatingWebhookConfiguration
	err := reader.Get(ctx, client.ObjectKey{Name: ConfigurationName}, &c)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get webhook configuration %s: %w", ConfigurationName, err)
	}
	selected := 0
	for i := range c.Webhooks {
		if w := &c.Webhooks[i]; (w.Name == WebhookName || w.Name == WebhookNameRequired) && selects(w.NamespaceSelector, namespace) {
			selected++
		}
	}
	return selected == 2, nil
}

// selects reports whether a selector of a gate's webhook contains a namespace.
func selects(selector *metav1.LabelSelector, namespace string) bool {
	return selector != nil && len(selector.MatchExpressions) == 1 && slices.Contains(selector.MatchExpressions[0].Values, namespace)
}
