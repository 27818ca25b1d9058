package fluentpvc

import (
	"errors"
	"fmt"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
)

// TestDefinitionConditions checks that Ready turns True only when the API servers have read the configuration, and that it follows
// the configuration and the stamp.
func TestDefinitionConditions(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), sondev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	f := &sondev1.FluentPVC{ObjectMeta: metav1.ObjectMeta{Name: "logs", UID: "f-1", Generation: 1}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(f).WithStatusSubresource(f).Build()
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	var invalid error
	r := &DefinitionReconciler{Client: c, Configuration: c, Verify: func(*sondev1.FluentPVC) error { return invalid }, Clock: clk}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: gate.ConfigurationName},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: gate.WebhookName}},
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []struct {
		what   string
		before func()
		want   string // status and reason of Ready
		wait   time.Duration
	}{
		{"no configuration", func() {}, "False WebhookMissing", 0},
		{"gates alone", func() { must(c.Create(t.Context(), configuration)) }, "False WebhookMissing", 0},
		{"configured", func() {
			configuration.Webhooks = append(configuration.Webhooks, admissionregistrationv1.MutatingWebhook{Name: sidecar.WebhookName})
			must(c.Update(t.Context(), configuration))
		}, "Unknown WebhookSettling", settle},
		{"too soon", func() { clk.SetTime(clk.Now().Add(settle - time.Second)) }, "Unknown WebhookSettling", time.Second},
		{"settled", func() { clk.SetTime(clk.Now().Add(time.Second)) }, "True Configured", 0},
		{"again", func() {}, "True Configured", 0},
		{"changed without the webhook", func() { invalid = errors.New("the stamp is invalid") }, "False NotAdmitted", 0},
		{"changed back", func() { invalid = nil }, "Unknown WebhookSettling", settle},
		{"settled again", func() { clk.SetTime(clk.Now().Add(time.Minute)) }, "True Configured", 0},
		{"the configuration is gone", func() { must(c.Delete(t.Context(), configuration)) }, "False WebhookMissing", 0},
	} {
		s.before()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f)})
		must(err)
		must(c.Get(t.Context(), client.ObjectKeyFromObject(f), f))
		ready := apimeta.FindStatusCondition(f.Status.Conditions, sondev1.ConditionReady)
		if got := fmt.Sprint(ready.Status, " ", ready.Reason); got != s.want || result.RequeueAfter != s.wait {
			t.Errorf("%s: Ready is %s, and the next pass is in %s; want %s in %s", s.what, got, result.RequeueAfter, s.want, s.wait)
		}
	}
}
