package platform

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=sonde-fluentpvc;sonde-collector,verbs=create;get;list;watch;patch;delete

// exemptControllers end namespaces and collect garbage. Clusters whose controllers do not have ServiceAccounts use the
// last name for all of them.
var exemptControllers = []string{
	"system:serviceaccount:kube-system:generic-garbage-collector",
	"system:serviceaccount:kube-system:namespace-controller",
	"system:kube-controller-manager",
}

// notTheControlPlane selects the requests of everyone but exemptControllers. They are not exempt when they create: a
// controller creates claims with the labels that users write into their templates.
var notTheControlPlane = admissionregistrationv1.MatchCondition{
	Name: "not-the-control-plane",
	Expression: fmt.Sprintf("request.operation == 'CREATE' || !(request.userInfo.username in ['%s'])",
		strings.Join(exemptControllers, "', '")),
}

// policy returns a ValidatingAdmissionPolicy that refuses what its validations do not allow, and the object of the same name that puts it
// into force. The API server evaluates it, so it holds while the operator does not run.
func policy(
	name string, rules []admissionregistrationv1.NamedRuleWithOperations,
	conditions []admissionregistrationv1.MatchCondition, validations []admissionregistrationv1.Validation,
) []*unstructured.Unstructured {
	version := admissionregistrationv1.SchemeGroupVersion
	return []*unstructured.Unstructured{
		content(version.WithKind("ValidatingAdmissionPolicy"), &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: meta("", name),
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy:    new(admissionregistrationv1.Fail),
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules, MatchPolicy: new(admissionregistrationv1.Equivalent)},
				MatchConditions:  conditions,
				Validations:      validations,
			},
		}),
		content(version.WithKind("ValidatingAdmissionPolicyBinding"), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: meta("", name),
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}),
	}
}

// denied returns a validation. The API server uses message where it cannot evaluate expression, or where that is empty.
func denied(unless, message, expression string) admissionregistrationv1.Validation {
	return admissionregistrationv1.Validation{Expression: unless, Message: message, MessageExpression: expression, Reason: new(metav1.StatusReasonForbidden)}
}

// unchanged returns a CEL expression for a field that an update leaves alone. A missing field equals only a missing one.
func unchanged(path string) string { return "object." + path + " == oldObject." + path }
