package platform

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	acmeta "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
)

// sidecarTimeoutSeconds is enough for the lookups of one Pod.
const sidecarTimeoutSeconds = 5

// sidecarWebhook returns the webhook for Pods that name a FluentPVC. It fails closed, so its conditions select no other
// Pods, and none of the namespaces that the cluster needs to run. It sets each field that the API server would
// default, as resourceWebhook does.
func sidecarWebhook(o ConfigurationOptions) *acadmission.MutatingWebhookApplyConfiguration {
	return acadmission.MutatingWebhook().
		WithName(sidecar.WebhookName).
		WithClientConfig(acadmission.WebhookClientConfig().
			WithService(acadmission.ServiceReference().
				WithNamespace(o.Namespace).WithName(certs.ServiceWebhook).WithPath(webhookpath.Sidecar+o.SecretPath).WithPort(443)).
			WithCABundle(o.CABundle...)).
		WithRules(acadmission.RuleWithOperations().
			WithAPIGroups("").WithAPIVersions("v1").WithResources("pods").
			WithScope(admissionregistrationv1.NamespacedScope).
			WithOperations(admissionregistrationv1.Create)).
		WithFailurePolicy(admissionregistrationv1.Fail).
		WithMatchPolicy(admissionregistrationv1.Equivalent).
		// The condition below excludes these by prefix. If someone removes it, the cluster still heals.
		WithNamespaceSelector(acmeta.LabelSelector().WithMatchExpressions(acmeta.LabelSelectorRequirement().
			WithKey(corev1.LabelMetadataName).WithOperator(metav1.LabelSelectorOpNotIn).
			WithValues("kube-system", "kube-public", "kube-node-lease", o.Namespace))).
		WithObjectSelector(acmeta.LabelSelector()).
		WithSideEffects(admissionregistrationv1.SideEffectClassNone).
		WithTimeoutSeconds(sidecarTimeoutSeconds).
		WithAdmissionReviewVersions("v1").
		// Another webhook may add a container, which needs the volume, too.
		WithReinvocationPolicy(admissionregistrationv1.IfNeededReinvocationPolicy).
		WithMatchConditions(
			acadmission.MatchCondition().WithName("names-a-fluentpvc").WithExpression(namesFluentPVC()),
			acadmission.MatchCondition().WithName("not-in-a-protected-namespace").WithExpression(notProtected(o.Namespace)),
		)
}

// namesFluentPVC returns the CEL expression that is true for a Pod with one of the keys as an annotation or a label.
func namesFluentPVC() string {
	var names []string
	for _, key := range sidecar.Keys {
		for _, field := range []string{"annotations", "labels"} {
			names = append(names, fmt.Sprintf("(has(object.metadata.%[1]s) && '%[2]s' in object.metadata.%[1]s)", field, key))
		}
	}
	return strings.Join(names, " || ")
}

// notProtected returns the CEL expression of gate.Protected, negated.
func notProtected(operatorNamespace string) string {
	return fmt.Sprintf("!(request.namespace.startsWith('kube-') || request.namespace.startsWith('openshift-') || request.namespace in ['openshift', '%s'])",
		operatorNamespace)
}
