package platform

import (
	"slices"

	"github.com/sonde-operator/sonde/internal/operator/webhookpath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	acmeta "k8s.io/client-go/applyconfigurations/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

// GateConfigurationName of the MutatingWebhookConfiguration for Pods. It is not that of Sonde's own kinds, because it
// changes with every Trace that gates, and is gone when none does.
const GateConfigurationName = "sonde-gate"

// gateTimeoutSeconds bounds what an operator that hangs adds to the creation of a Pod, in seconds.
const gateTimeoutSeconds = 3

// BuildGateConfiguration returns the configuration that has the Pods of these namespaces gated: those of the live
// Traces that gate. It is nil where that is none, and then nothing may be there. Protected namespaces are left out. Of
// its two entries each asks about other Pods, so that none is asked about twice.
func BuildGateConfiguration(o ConfigurationOptions, namespaces []string) *acadmission.MutatingWebhookConfigurationApplyConfiguration {
	in := slices.DeleteFunc(slices.Clone(namespaces), func(n string) bool { return gate.Protected(n, o.Namespace) })
	slices.Sort(in)
	in = slices.Compact(in)
	if len(in) == 0 {
		return nil
	}
	c := acadmission.MutatingWebhookConfiguration(GateConfigurationName).
		WithLabels(naming.Own()).
		WithWebhooks(
			gateEntry(o, "gate", webhookpath.Gate, in, admissionregistrationv1.Ignore, metav1.LabelSelectorOpNotIn),
			// The name stands in what a Pod's creator reads when the operator is away.
			gateEntry(o, "trace-required", webhookpath.GateRequired, in, admissionregistrationv1.Fail, metav1.LabelSelectorOpIn),
		)
	for _, r := range platform.References(o.OwnerUID) {
		c.WithOwnerReferences(acmeta.OwnerReference().WithAPIVersion(r.APIVersion).WithKind(r.Kind).WithName(r.Name).WithUID(r.UID))
	}
	return c
}

// gateEntry writes out what the API server would default, as webhookFor does.
func gateEntry(o ConfigurationOptions, name, path string, namespaces []string, policy admissionregistrationv1.FailurePolicyType, required metav1.LabelSelectorOperator) *acadmission.MutatingWebhookApplyConfiguration {
	return acadmission.MutatingWebhook().
		WithName(name + "." + sondev1.GroupVersion.Group).
		WithClientConfig(acadmission.WebhookClientConfig().
			WithService(acadmission.ServiceReference().
				WithNamespace(o.Namespace).WithName(certs.ServiceWebhook).WithPath(path + o.SecretPath).WithPort(443)).
			WithCABundle(o.CABundle...)).
		WithRules(acadmission.RuleWithOperations().
			WithAPIGroups("").WithAPIVersions("v1").WithResources("pods").
			WithScope(admissionregistrationv1.NamespacedScope).
			WithOperations(admissionregistrationv1.Create)).
		WithFailurePolicy(policy).
		WithMatchPolicy(admissionregistrationv1.Equivalent).
		WithNamespaceSelector(acmeta.LabelSelector().WithMatchExpressions(acmeta.LabelSelectorRequirement().
			WithKey(corev1.LabelMetadataName).WithOperator(metav1.LabelSelectorOpIn).WithValues(namespaces...))).
		WithObjectSelector(acmeta.LabelSelector().WithMatchExpressions(acmeta.LabelSelectorRequirement().
			WithKey(sondev1.LabelTraceRequired).WithOperator(required).WithValues("true"))).
		WithSideEffects(admissionregistrationv1.SideEffectClassNone).
		WithTimeoutSeconds(gateTimeoutSeconds).
		WithAdmissionReviewVersions("v1").
		// Another webhook may put its init container before the gate.
		WithReinvocationPolicy(admissionregistrationv1.IfNeededReinvocationPolicy)
}
