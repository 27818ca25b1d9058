// Package webhooks decides which PacketCaptures, Traces and ResultAccesses are admitted and stamps them
// with their requester. Both webhooks fail closed: without them nothing is admitted, and what gets
// in all the same carries no stamp, so that the controller does nothing for it. They match Sonde's
// kinds alone and never DELETE or status, so they cannot hold up anything else, nor a deletion.
package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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
)

// ConfigurationName of the MutatingWebhookConfiguration.
const ConfigurationName = "sonde"

// Paths at which the webhook server answers, each with what SecretPath adds.
const (
	PathPacketCapture = "/mutate-monitoring-openshift-tpg-v1alpha1-packetcapture"
	PathTrace         = "/mutate-monitoring-openshift-tpg-v1alpha1-trace"
	PathResultAccess  = "/mutate-monitoring-openshift-tpg-v1alpha1-resultaccess"
)

// SecretPath is the end of the webhooks' paths, made from the key of the stamps. The API server does not
// say who it is when it calls a webhook, and anything in the cluster's network can call one. Whoever
// could ask in the API server's place would get the stamp of any requester, and be told what exists in
// every namespace. Those who may read webhook configurations know it, and while a webhook is away the API
// server tells it to those who may write what the webhook admits: it is a second wall, not the only one.
func SecretPath(key []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("sonde-webhook-path-v1"))
	return "/" + hex.EncodeToString(h.Sum(nil)[:16])
}

// timeoutSeconds is enough for a filter that has to wait for its turn to be compiled.
const timeoutSeconds = 10

// ConfigurationOptions is what differs between installs.
type ConfigurationOptions struct {
	// Namespace of the operator, where the Service lies.
	Namespace string
	// CABundle in PEM.
	CABundle []byte
	// SecretPath of the server (see SecretPath).
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
			webhookFor(o, "packetcaptures", "packetcapture", PathPacketCapture),
			webhookFor(o, "traces", "trace", PathTrace),
			webhookFor(o, "resultaccesses", "resultaccess", PathResultAccess),
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
