package platform

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	acmeta "k8s.io/client-go/applyconfigurations/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
)

// gateTimeoutSeconds bounds the delay that a hanging operator adds to the creation of a Pod.
const gateTimeoutSeconds = 3

// gateWebhooks returns the webhooks that gate the Pods of these namespaces, without the protected ones. It returns none if
// no namespace is left, because an empty selector would match every namespace. The two select disjoint sets of Pods, so
// that each Pod is reviewed once.
func gateWebhooks(o ConfigurationOptions, namespaces []string) []*acadmission.MutatingWebhookApplyConfiguration {
	gated := slices.DeleteFunc(slices.Clone(namespaces), func(n string) bool { return gate.Protected(n, o.Namespace) })
	slices.Sort(gated)
	gated = slices.Compact(gated)
	if len(gated) == 0 {
		return nil
	}
	return []*acadmission.MutatingWebhookApplyConfiguration{
		gateWebhook(o, gate.WebhookName, webhookpath.Gate, gated, admissionregistrationv1.Ignore, metav1.LabelSelectorOpNotIn),
		// The creator of a Pod reads this name in the error while the operator is down.
		gateWebhook(o, gate.WebhookNameRequired, webhookpath.GateRequired, gated, admissionregistrationv1.Fail, metav1.LabelSelectorOpIn),
	}
}

// gateWebhook sets each field that the API server would default, as resourceWebhook does.
func gateWebhook(o ConfigurationOptions, name, path string, namespaces []string, policy admissionregistrationv1.FailurePolicyType, required metav1.LabelSelectorOperator) *acadmission.MutatingWebhookApplyConfiguration {
	return acadmission.MutatingWebhook().
		WithName(name).
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
