package platform

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// collectorPolicy is the name of the policy and of its binding.
const collectorPolicy = "sonde-collector"

// CollectorPolicy returns the policy that protects the releases of a hub's Collectors, with the object that puts it into
// force.
//
// Without it, each user who may delete Collectors in a hub could remove releases in other namespaces. Deletion by
// namespace and by garbage collection passes, so that nothing hangs. A user could have a Collector collected as garbage
// by giving it an owner that does not exist, so the owners are protected, too.
func CollectorPolicy() []*unstructured.Unstructured {
	rules := []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update, admissionregistrationv1.Delete},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{sondev1.GroupVersion.Group}, APIVersions: []string{sondev1.GroupVersion.Version}, Resources: []string{"collectors"},
			Scope: new(admissionregistrationv1.NamespacedScope),
		},
	}}}
	conditions := []admissionregistrationv1.MatchCondition{
		notTheControlPlane,
		{Name: "a-release-in-another-namespace", Expression: releaseNamespace + " != request.namespace"},
	}
	const need = ": you need the right to create Jobs in "
	return policy(collectorPolicy, rules, conditions, []admissionregistrationv1.Validation{
		denied("request.operation != 'DELETE' || "+mayCreateJobs,
			"the deletion of this Collector removes its release"+need+"the release's namespace",
			"'the deletion of this Collector removes its release in namespace ' + "+releaseNamespace+" + '"+need+"that namespace'"),
		denied("request.operation != 'UPDATE' || "+unchanged("metadata.?ownerReferences")+" || "+mayCreateJobs,
			"a Collector is deleted with its owners, and its release with it"+need+"the release's namespace to change metadata.ownerReferences", ""),
		// A Collector that a finalizer keeps is never gone, so the operator would not remove its release.
		denied("request.operation != 'UPDATE' || "+unchanged("metadata.?finalizers")+" || "+mayCreateJobs,
			"a finalizer keeps this Collector's release"+need+"the release's namespace to change metadata.finalizers", ""),
		// A retry runs Helm there: it may upgrade to a newer chart, and begins a failed upgrade anew instead of its rollback.
		denied("request.operation != 'UPDATE' || "+unchanged(annotation(sondev1.AnnotationRetry))+" || "+mayCreateJobs,
			"a retry runs Helm in the release's namespace"+need+"the release's namespace", ""),
	})
}

const (
	// releaseNamespace is a CEL expression. A Collector without tenant.reference was stored past the schema: only users with
	// the right in all namespaces may delete it.
	releaseNamespace = "oldObject.?spec.?tenant.?reference.orValue('').lowerAscii()"
	// mayCreateJobs is the right that the admission of a Collector needs.
	mayCreateJobs = "authorizer.group('batch').resource('jobs').namespace(" + releaseNamespace + ").check('create').allowed()"
)
