// Package platform applies the webhook configurations and the objects of optional APIs, and reverts changes to them.
package platform

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	acmeta "k8s.io/client-go/applyconfigurations/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
)

// ConfigurationName of the MutatingWebhookConfiguration for Sonde's own kinds.
const ConfigurationName = "sonde"

// timeoutSeconds is enough for a filter that waits until others have been compiled.
const timeoutSeconds = 10

// ConfigurationOptions are the values that differ between installs.
type ConfigurationOptions struct {
	// Namespace of the operator and of the webhook Service.
	Namespace string
	// CABundle in PEM.
	CABundle []byte
	// SecretPath is the last segment of the paths (webhookpath.Secret).
	SecretPath string
	// OwnerUID of the ClusterRole platform.OwnerClusterRole; empty makes a configuration without owner.
	OwnerUID types.UID
}

// BuildConfiguration returns the configuration for Sonde's own kinds. It sets each field that the API server would
// default, so that the reconciler can compare it with the live one and revert changes.
func BuildConfiguration(o ConfigurationOptions) *acadmission.MutatingWebhookConfigurationApplyConfiguration {
	c := acadmission.MutatingWebhookConfiguration(ConfigurationName).
		WithLabels(naming.Own()).
		WithWebhooks(
			resourceWebhook(o, stopped("packetcaptures", "packetcapture", webhookpath.PacketCapture)),
			resourceWebhook(o, stopped("traces", "trace", webhookpath.Trace)),
			resourceWebhook(o, stopped("resultaccesses", "resultaccess", webhookpath.ResultAccess)),
			resourceWebhook(o, resource{
				plural: "interceptrequests", singular: "interceptrequest", path: webhookpath.Intercept, scope: admissionregistrationv1.NamespacedScope,
				annotations: []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp},
			}),
			resourceWebhook(o, resource{
				plural: "collectors", singular: "collector", path: webhookpath.Collector, scope: admissionregistrationv1.NamespacedScope,
				annotations: []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp, sondev1.AnnotationRetry}, // a retry can renew the stamp
			}),
			resourceWebhook(o, resource{
				plural: "fluentpvcs", singular: "fluentpvc", path: webhookpath.FluentPVC, scope: admissionregistrationv1.ClusterScope,
				annotations: []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp},
			}),
		)
	return c.WithOwnerReferences(platform.AppliedOwners(o.OwnerUID)...)
}

// resource is one of Sonde's kinds that a webhook admits. Users never write FluentPVCBindings: a policy refuses theirs.
type resource struct {
	plural, singular, path string
	scope                  admissionregistrationv1.ScopeType
	// annotations whose changes the webhook reviews.
	annotations []string
}

// stopped is a namespaced kind with an immutable spec, whose objects may record who stopped them.
func stopped(plural, singular, path string) resource {
	return resource{
		plural: plural, singular: singular, path: path, scope: admissionregistrationv1.NamespacedScope,
		annotations: []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp, sondev1.AnnotationStoppedBy},
	}
}

func resourceWebhook(o ConfigurationOptions, r resource) *acadmission.MutatingWebhookApplyConfiguration {
	return acadmission.MutatingWebhook().
		WithName(r.singular + "." + sondev1.GroupVersion.Group).
		WithClientConfig(acadmission.WebhookClientConfig().
			WithService(acadmission.ServiceReference().
				WithNamespace(o.Namespace).WithName(certs.ServiceWebhook).WithPath(r.path + o.SecretPath).WithPort(443)).
			WithCABundle(o.CABundle...)).
		WithRules(acadmission.RuleWithOperations().
			WithAPIGroups(sondev1.GroupVersion.Group).
			WithAPIVersions(sondev1.GroupVersion.Version).
			WithResources(r.plural). // not resource/status: writes of the status are not reviewed
			WithScope(r.scope).
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
			WithExpression(changed(r.annotations)))
}

// changed returns the CEL expression that skips the webhook for changes of labels, other annotations, owners and
// finalizers, unless these are many. While the webhook is down, a capture can still be labelled, released and garbage
// collected.
func changed(annotations []string) string {
	conditions := []string{"request.operation == 'CREATE'", "object.spec != oldObject.spec"}
	for _, a := range annotations {
		conditions = append(conditions, fmt.Sprintf("%s != %s", annotation("object", a), annotation("oldObject", a)))
	}
	for _, list := range []string{"labels", "ownerReferences", "finalizers"} {
		conditions = append(conditions, fmt.Sprintf("has(object.metadata.%[1]s) && size(object.metadata.%[1]s) > %d", list, webhookpath.MaxMetadata))
	}
	return strings.Join(conditions, " || ")
}

// annotation returns the CEL expression for an annotation that may be absent. CEL's optional values would be shorter,
// but are newer than match conditions.
func annotation(object, name string) string {
	return fmt.Sprintf("(has(%[1]s.metadata.annotations) && '%[2]s' in %[1]s.metadata.annotations ? %[1]s.metadata.annotations['%[2]s'] : '')", object, name)
}
