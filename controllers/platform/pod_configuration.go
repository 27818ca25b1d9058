package platform

import (
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

// PodConfigurationName of the MutatingWebhookConfiguration for Pods. All webhooks for Pods share it, because each further
// configuration would be a further right that equals root.
const PodConfigurationName = gate.ConfigurationName

// PodWebhooks are the reasons to review Pods.
type PodWebhooks struct {
	// Gated namespaces, of Traces that gate. They may repeat, and contain protected ones, which are left out.
	Gated []string
	// Sidecars reports whether there is a FluentPVC.
	Sidecars bool
}

// BuildPodConfiguration returns the configuration for Pods, or nil if there is no reason to review any.
func BuildPodConfiguration(o ConfigurationOptions, p PodWebhooks) *acadmission.MutatingWebhookConfigurationApplyConfiguration {
	var webhooks []*acadmission.MutatingWebhookApplyConfiguration
	if p.Sidecars { // The gate goes first into the Pod, and so its webhook is called last.
		webhooks = append(webhooks, sidecarWebhook(o))
	}
	webhooks = append(webhooks, gateWebhooks(o, p.Gated)...)
	if len(webhooks) == 0 {
		return nil
	}
	c := acadmission.MutatingWebhookConfiguration(PodConfigurationName).
		WithLabels(naming.Own()).
		WithWebhooks(webhooks...)
	return c.WithOwnerReferences(platform.AppliedOwners(o.OwnerUID)...)
}
