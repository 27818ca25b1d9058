package gate

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestConfigured checks that both webhooks of gates must select the namespace, whatever other webhooks there are.
func TestConfigured(t *testing.T) {
	webhook := func(name string, namespaces ...string) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{Name: name, NamespaceSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: namespaces}},
		}}
	}
	other := admissionregistrationv1.MutatingWebhook{Name: "fluentpvc-pods.monitoring.openshift.tpg"}
	for name, tc := range map[string]struct {
		webhooks []admissionregistrationv1.MutatingWebhook // nil: no configuration
		want     bool
	}{
		"no configuration":     {},
		"no webhook of gates":  {webhooks: []admissionregistrationv1.MutatingWebhook{other}},
		"other namespaces":     {webhooks: []admissionregistrationv1.MutatingWebhook{webhook(WebhookName, "bank"), webhook(WebhookNameRequired, "bank")}},
		"one of the two":       {webhooks: []admissionregistrationv1.MutatingWebhook{webhook(WebhookName, "shop"), webhook(WebhookNameRequired, "bank")}},
		"both":                 {webhooks: []admissionregistrationv1.MutatingWebhook{webhook(WebhookName, "bank", "shop"), webhook(WebhookNameRequired, "bank", "shop")}, want: true},
		"both, beside another": {webhooks: []admissionregistrationv1.MutatingWebhook{other, webhook(WebhookName, "shop"), webhook(WebhookNameRequired, "shop")}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := clientgoscheme.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			b := fake.NewClientBuilder().WithScheme(scheme)
			if tc.webhooks != nil {
				b.WithObjects(&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName}, Webhooks: tc.webhooks})
			}
			if got, err := Configured(t.Context(), b.Build(), "shop"); err != nil || got != tc.want {
				t.Errorf("got %t, %v; want %t", got, err, tc.want)
			}
		})
	}
}
