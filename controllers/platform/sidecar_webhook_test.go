package platform

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/gate"
)

// TestSidecarConditions evaluates the match conditions as the API server does.
func TestSidecarConditions(t *testing.T) {
	var conditions []cel.ExpressionAccessor
	for _, c := range sidecarWebhook(ConfigurationOptions{Namespace: "sonde-system"}).MatchConditions {
		conditions = append(conditions, &matchconditions.MatchCondition{Name: *c.Name, Expression: *c.Expression})
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	evaluator := compiler.CompileCondition(conditions, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	policy := admissionregistrationv1.Fail
	matcher := matchconditions.NewMatcher(evaluator, &policy, "webhook", "admit", "sidecar")

	annotated := func(key string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Annotations: map[string]string{"a": "b", key: "logs"}}
	}
	tests := map[string]struct {
		meta      metav1.ObjectMeta
		namespace string // by default shop
		want      bool
	}{
		"our annotation":           {meta: annotated(sondev1.KeyFluentPVC), want: true},
		"the source's annotation":  {meta: annotated(sondev1.KeyFluentPVCSource), want: true},
		"our label":                {meta: metav1.ObjectMeta{Labels: map[string]string{sondev1.KeyFluentPVC: "logs"}}, want: true},
		"the source's label":       {meta: metav1.ObjectMeta{Labels: map[string]string{sondev1.KeyFluentPVCSource: "logs"}}, want: true},
		"an empty value":           {meta: metav1.ObjectMeta{Labels: map[string]string{sondev1.KeyFluentPVC: ""}}, want: true},
		"no labels or annotations": {},
		"other keys":               {meta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"}}},
		"a claim alone":            {meta: annotated(sondev1.AnnotationClaim)},

		"the cluster's namespace":     {meta: annotated(sondev1.KeyFluentPVC), namespace: "kube-flannel"},
		"OpenShift's":                 {meta: annotated(sondev1.KeyFluentPVC), namespace: "openshift"},
		"an operator's of OpenShift":  {meta: annotated(sondev1.KeyFluentPVC), namespace: "openshift-dns"},
		"ours":                        {meta: annotated(sondev1.KeyFluentPVC), namespace: "sonde-system"},
		"one whose name begins alike": {meta: annotated(sondev1.KeyFluentPVC), namespace: "sonde-system-2", want: true},
		"openshifted":                 {meta: annotated(sondev1.KeyFluentPVC), namespace: "openshifted", want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.namespace == "" {
				tc.namespace = "shop"
			}
			pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: tc.meta}
			resource, kind := schema.GroupVersionResource{Version: "v1", Resource: "pods"}, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
			attributes := admission.NewAttributesRecord(pod, nil, kind, tc.namespace, "", resource, "", admission.Create, &metav1.CreateOptions{}, false, nil)
			result := matcher.Match(t.Context(), &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: admission.NewLazyObject(pod)}, nil, nil)
			if result.Error != nil || result.Matches != tc.want {
				t.Errorf("matches: %t, %v; want %t", result.Matches, result.Error, tc.want)
			}
			if protected := gate.Protected(tc.namespace, "sonde-system"); protected && result.Matches {
				t.Errorf("a Pod of the protected namespace %s is sent", tc.namespace)
			}
		})
	}
}
