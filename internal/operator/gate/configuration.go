package gate

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConfigurationName of the MutatingWebhookConfiguration for Pods. It is separate from the one for Sonde's own kinds, because it
// changes with every Trace that gates, and does not exist when none does.
const ConfigurationName = "sonde-gate"

// Configured reports whether all webhooks for Pods are called for a namespace, as soon as the API servers have read the
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
	for i := range c.Webhooks {
		selector := c.Webhooks[i].NamespaceSelector
		if selector == nil || len(selector.MatchExpressions) != 1 || !slices.Contains(selector.MatchExpressions[0].Values, namespace) {
			return false, nil
		}
	}
	return len(c.Webhooks) > 0, nil
}
