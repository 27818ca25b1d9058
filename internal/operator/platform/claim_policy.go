package platform

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
)

const (
	// claimPolicy is the name of the policy and of its binding.
	claimPolicy = "sonde-fluentpvc"
	// bindingKind is the value of sondev1.LabelKind on the claims of FluentPVCs.
	bindingKind = "FluentPVCBinding"
)

// ClaimPolicy returns the policy that protects the bindings of FluentPVCs and their claims, with the object that puts
// it into force. namespace is the operator's.
//
// Without it, a user with ordinary rights could delete a volume before its data is processed, or forge the state of one.
// Deletion by namespace, by garbage collection and with the CRD passes, so that nothing hangs. The deletion of a CRD
// passes no admission at all.
func ClaimPolicy(namespace string) []*unstructured.Unstructured {
	return policy(claimPolicy, protectedResources(), claimPolicyConditions(namespace), append(bindingValidations(), claimValidations()...))
}

func protectedResources() []admissionregistrationv1.NamedRuleWithOperations {
	rule := func(group schema.GroupVersion, resource string) admissionregistrationv1.NamedRuleWithOperations {
		return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{group.Group}, APIVersions: []string{group.Version}, Resources: []string{resource, resource + "/status"},
				Scope: new(admissionregistrationv1.NamespacedScope),
			},
		}}
	}
	return []admissionregistrationv1.NamedRuleWithOperations{
		rule(sondev1.GroupVersion, "fluentpvcbindings"), rule(schema.GroupVersion{Version: "v1"}, "persistentvolumeclaims"),
	}
}

// claimPolicyConditions select the requests that the validations are for. A claim is the operator's if it has, or would
// get, one of the labels by which the operator knows it.
func claimPolicyConditions(namespace string) []admissionregistrationv1.MatchCondition {
	manager := "system:serviceaccount:" + namespace + ":" + agentjob.ManagerServiceAccount
	return []admissionregistrationv1.MatchCondition{
		{Name: "not-the-manager", Expression: fmt.Sprintf("request.userInfo.username != '%s'", manager)},
		notTheControlPlane,
		{Name: "an-object-of-sonde", Expression: fmt.Sprintf("request.resource.resource == 'fluentpvcbindings' || "+
			"[object, oldObject].exists(o, o != null && (o.metadata.?labels[?'%s'].orValue('') == '%s' || o.metadata.?labels[?'%s'].hasValue()))",
			sondev1.LabelKind, bindingKind, sondev1.LabelUID)},
	}
}

// bindingValidations allow the two annotations of users, and nothing else.
func bindingValidations() []admissionregistrationv1.Validation {
	const of = "request.resource.resource != 'fluentpvcbindings' || "
	return []admissionregistrationv1.Validation{
		denied(of+"request.operation != 'CREATE'",
			"only Sonde creates FluentPVCBindings. To give a Pod a volume, annotate it with "+sondev1.KeyFluentPVC+"=NAME", ""),
		denied(of+"request.operation != 'UPDATE' || ("+strings.Join([]string{
			unchanged("spec"), unchanged("?status"), unchanged("metadata.?labels"), unchanged("metadata.?ownerReferences"),
			unchanged("metadata.?finalizers"), otherAnnotationsUnchanged(),
		}, " && ")+")",
			"only Sonde changes FluentPVCBindings. Use kubectl sonde fluentpvc retry or discard",
			"'only Sonde changes FluentPVCBindings. To process the data again, run: kubectl sonde fluentpvc retry ' + oldObject.metadata.name + ' -n ' + request.namespace"),
		denied(of+"request.operation != 'UPDATE' || "+mayDiscard, noDiscard,
			"'discard deletes a volume with its data: you need the right to delete the PersistentVolumeClaim ' + oldObject.metadata.name + ' in namespace ' + request.namespace"),
		// The manager keeps all bindings in its cache, and an annotation may have 256 KiB.
		denied(of+"request.operation != 'UPDATE' || "+allAnnotations("object", strings.Join([]string{
			"!(k in " + userAnnotations + ")", fmt.Sprintf("object.metadata.annotations[k].size() <= %d", maxUserAnnotation), unchangedAnnotation,
		}, " || ")),
			fmt.Sprintf("the annotations %s and %s have at most %d characters: use kubectl sonde fluentpvc retry or discard",
				sondev1.AnnotationRetry, sondev1.AnnotationDiscard, maxUserAnnotation), ""),
		denied(of+"request.operation != 'DELETE'",
			"Sonde deletes a FluentPVCBinding after its data is processed. To give the data up, use kubectl sonde fluentpvc discard",
			"'Sonde deletes this FluentPVCBinding after its data is processed. To give the data up, run: "+discardCommand),
	}
}

// claimValidations leave everything else about a claim, such as its size, to its users and to the cluster's controllers.
func claimValidations() []admissionregistrationv1.Validation {
	const of = "request.resource.resource != 'persistentvolumeclaims' || "
	labels := []string{sondev1.LabelKind, sondev1.LabelUID, sondev1.LabelTargetPodUID}
	// By these the operator makes a lost binding again.
	annotations := []string{sondev1.AnnotationOwner, sondev1.AnnotationClaim, sondev1.AnnotationTargetPod}
	same := []string{unchanged("metadata.?ownerReferences")}
	for _, key := range annotations {
		same = append(same, unchanged(annotation(key)))
	}
	for _, key := range labels {
		same = append(same, unchanged("metadata.?labels[?'"+key+"']"))
	}
	return []admissionregistrationv1.Validation{
		denied(of+"request.operation != 'CREATE'",
			fmt.Sprintf("only Sonde creates PersistentVolumeClaims with the labels %s=%s and %s: leave these labels out", sondev1.LabelKind, bindingKind, sondev1.LabelUID), ""),
		denied(of+"request.operation != 'UPDATE' || ("+strings.Join(same, " && ")+")",
			fmt.Sprintf("only Sonde changes the owner references of this PersistentVolumeClaim, its labels %s and its annotations %s: leave them as they are",
				strings.Join(labels, ", "), strings.Join(annotations, ", ")), ""),
		denied(of+"request.operation != 'UPDATE' || "+mayDiscard, noDiscard, ""),
		// A claim that carries the annotation itself may be deleted: after someone has deleted the CRD there is no binding
		// to discard.
		denied(of+"request.operation != 'DELETE' || oldObject."+annotation(sondev1.AnnotationDiscard)+".hasValue()",
			"this volume may hold data that no Job has processed. To give the data up, use kubectl sonde fluentpvc discard",
			"'this volume may hold data that no Job has processed. To delete it with its data, run: "+discardCommand),
	}
}

// mayDiscard is a CEL expression for an update by a user who leaves discard alone, or may delete the claim, which has the name of
// its binding.
var mayDiscard = unchanged(annotation(sondev1.AnnotationDiscard)) +
	" || authorizer.group('').resource('persistentvolumeclaims').namespace(request.namespace).name(oldObject.metadata.name).check('delete').allowed()"

const noDiscard = "discard deletes a volume with its data: you need the right to delete the PersistentVolumeClaim"

// discardCommand ends a message, as part of a CEL string.
const discardCommand = "kubectl sonde fluentpvc discard ' + oldObject.metadata.name + ' -n ' + request.namespace"

func annotation(key string) string { return "metadata.?annotations[?'" + key + "']" }

// maxUserAnnotation bounds the annotations of users, which are times.
const maxUserAnnotation = 256

const (
	userAnnotations     = "['" + sondev1.AnnotationRetry + "', '" + sondev1.AnnotationDiscard + "']"
	unchangedAnnotation = "object.metadata.?annotations[?k] == oldObject.metadata.?annotations[?k]"
)

// allAnnotations returns a CEL expression that holds if predicate holds for each key k of an object's annotations.
func allAnnotations(which, predicate string) string {
	return fmt.Sprintf("%s.metadata.?annotations.orValue({}).all(k, %s)", which, predicate)
}

// otherAnnotationsUnchanged returns a CEL expression for all annotations but those of users.
func otherAnnotationsUnchanged() string {
	const unlessUsers = "k in " + userAnnotations + " || " + unchangedAnnotation
	return allAnnotations("object", unlessUsers) + " && " + allAnnotations("oldObject", unlessUsers)
}
