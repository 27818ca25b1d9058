// Package platform keeps the webhook configurations and the objects of optional APIs as the operator wants them.
package platform

import (
	"fmt"
	"strings"

	"github.com/sonde-operator/sonde/internal/operator/webhookpath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	acmeta "k8s.io/client-go/applyconfigurations/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

// ConfigurationName of the MutatingWebhookConfiguration.
const ConfigurationName = "sonde"

// timeoutSeconds is enough for a filter that has to wait for its turn to be compiled.
const timeoutSeconds = 10

// ConfigurationOptions is what differs between installs.
type ConfigurationOptions struct {
	// Namespace of the operator, where the Service lies.
	Namespace string
	// CABundle in PEM.
	CABundle []byte
	// SecretPath of the server (webhookpath.Secret).
	SecretPath string
	// OwnerUID of the ClusterRole platform.OwnerClusterRole; empty makes a configuration without owner.
	OwnerUID types.UID
}

// BuildConfiguration returns the whole configuration. Each field that the API server would default
// is written out, so that it can be compared with what is there, and is taken back when somebody
// changes it.
func BuildConfiguration(o ConfigurationOptions) *acadmission.MutatingWebhookConfigurationApplyConfiguration {
	c := acadmission.MutatingWebhookConfiguration(ConfigurationName).
		WithLabels(naming.Own()).
		WithWebhooks(
			webhookFor(o, "packetcaptures", "packetcapture", webhookpath.PacketCapture),
			webhookFor(o, "traces", "trace", webhookpath.Trace),
			webhookFor(o, "resultaccesses", "resultaccess", webhookpath.ResultAccess),
		)
	for _, r := range platform.References(o.OwnerUID) {
		c.WithOwnerReferences(acmeta.OwnerReference().WithAPIVersion(r.APIVersion).WithKind(r.Kind).WithName(r.Name).WithUID(r.UID))
	}
	return c
}

func webhookFor(o ConfigurationOptions, resource, singular, path string) *acadmission.MutatingWebhookApplyConfiguration {
	return acadmission.MutatingWebhook().
		WithName(singular + "." + sondev1.GroupVersion.Group).
		WithClientConfig(acadmission.WebhookClientConfig().
			WithService(acadmission.ServiceReference().
				WithNamespace(o.Namespace).WithName(certs.ServiceWebhook).WithPath(path + o.SecretPath).WithPort(443)).
			WithCABundle(o.CABundle...)).
		WithRules(acadmission.RuleWithOperations().
			WithAPIGroups(sondev1.GroupVersion.Group).
			WithAPIVersions(sondev1.GroupVersion.Version).
			WithResources(resource). // not resource/status: status is never asked about
			WithScope(admissionregistrationv1.NamespacedScope).
			WithOperations(admissionregistrationv1.Create, admissionregistrationv1.Update)).
		WithFailurePolicy(admissionregistrationv1.Fail).
		WithMatchPolicy(admissionregistrationv1.Equivalent).
		WithNamespaceSelector(acmeta.LabelSelector()).
		WithObjectSelector(acmeta.LabelSelector()).
		WithSideEffects(admissionregistrationv1.SideEffectClassNone).
		WithTimeoutSeconds(timeoutSeconds).
		WithAdmissionReviewVersions("v1").
		// Another webhook that changes the spec after us would break the stamp.
		WithReinvocationPolicy(admissionregistrationv1.IfNeededReinvocationPolicy).
		WithMatchConditions(acadmission.MatchCondition().
			WithName("created-or-changed").
			WithExpression(changed()))
}

// changed is the CEL expression that keeps labels, other annotations, owners and finalizers out of
// the webhook: while it is down, a capture can still be labelled, released and garbage collected.
func changed() string {
	conditions := []string{"request.operation == 'CREATE'", "object.spec != oldObject.spec"}
	for _, a := range []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp} {
		conditions = append(conditions, fmt.Sprintf("%s != %s", annotation("object", a), annotation("oldObject", a)))
	}
	return strings.Join(conditions, " || ")
}

// annotation reads an annotation that may be absent. CEL's optional values would be shorter, and
// are newer than match conditions.
func annotation(object, name string) string {
	return fmt.Sprintf("(has(%[1]s.metadata.annotations) && '%[2]s' in %[1]s.metadata.annotations ? %[1]s.metadata.annotations['%[2]s'] : '')", object, name)
}
